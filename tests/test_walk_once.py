"""What runs only until something is stored: a warm-up has run it, where no capture is seen."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

ONCE = {
    "an attribute that is made when it is missing": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = None

            def forward(self, x: torch.Tensor):
                if self.scale is None or self.scale.device != x.device:
                    self.scale = x.max().item()
                return x * self.scale + x.min().item()  # expect: CG102
        """,
    "a way out where it is there": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self._packed = None

            def packed(self, x: torch.Tensor):
                if self._packed is not None:
                    return self._packed
                checks(x)
                self._packed = x + 1
                return self._packed

            def forward(self, x: torch.Tensor):
                return self.packed(x)

        def checks(x):
            assert torch.equal(x, x.abs())
        """,
    "a set of what was done": """
        class M(nn.Module):
            done = set()

            def __init__(self, key: str):
                super().__init__()
                self.key = key

            def forward(self, x: torch.Tensor):
                self.meet()
                return x

            def meet(self):
                if self.key in self.done:
                    return
                torch.cuda.synchronize()
                self.done.add(self.key)
        """,
    "a table of the module": """
        TABLES = {}

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if x.dtype not in TABLES:
                    TABLES[x.dtype] = x.max().item()
                return x * TABLES[x.dtype]
        """,
    "an attribute that is not there yet": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if not hasattr(self, "scale"):
                    self.scale = x.max().item()
                return x * self.scale
        """,
    "an attribute that another method hands on": """
        class M(nn.Module):
            def prepare(self, x: torch.Tensor):
                if not hasattr(self, "scale"):
                    self.scale = x.max().item()

            def scaled(self, x: torch.Tensor):
                return times(x, self.scale)

            def forward(self, x: torch.Tensor):
                self.prepare(x)
                return self.scaled(x)

        def times(x, scale):
            return x * scale
        """,
    "an attribute that another method sets by name": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if not hasattr(self, "scale"):
                    self.scale = x.max().item()  # expect: CG102
                return x * self.scale

            def renew(self, x: torch.Tensor):
                setattr(self, "scale", None)
        """,
    "a slot that is kept for one key": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.slot = None

            def table(self, device: torch.device):
                key = (device.type, str(device))
                traced = torch.compiler.is_compiling()
                if not traced and self.slot is not None and self.slot[0] == key:
                    return self.slot[1]
                table = torch.arange(8).to(device)
                if not traced:
                    self.slot = (key, table)
                return table

            def forward(self, x: torch.Tensor):
                return x + self.table(x.device)
        """,
    "a slot that is used under another condition": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.slot = None

            def table(self, device: torch.device, again: bool):
                if again and self.slot is not None:
                    return self.slot
                self.slot = torch.arange(8).to(device)  # expect: CG202
                return self.slot

            def forward(self, x: torch.Tensor, again: bool):
                return x + self.table(x.device, again)
        """,
    "a table that is asked for a key": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.tables = {}

            def table(self, n: int, device: torch.device):
                found = self.tables.get(n)
                if found is None:
                    found = torch.arange(n).to(device)
                    self.tables[n] = found
                return found

            def forward(self, x: torch.Tensor):
                return x + self.table(x.shape[0], x.device)
        """,
    "a table that keeps what was moved": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.tables = {}

            def table(self, n: int, device: torch.device):
                found = self.tables.get(n)
                if found is None:
                    found = torch.arange(n)
                if found.device != device:
                    found = found.to(device)
                self.tables[n] = found
                return found

            def forward(self, x: torch.Tensor):
                return x + self.table(x.shape[0], x.device)
        """,
    "a table that keeps it on the CPU": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.tables = {}

            def table(self, n: int, device: torch.device):
                found = self.tables.get(n)
                if found is None:
                    found = torch.arange(n)
                    self.tables[n] = found
                return found.to(device)  # expect: CG202

            def forward(self, x: torch.Tensor):
                return x + self.table(x.shape[0], x.device)
        """,
    "a table of which only a copy is asked": """
        class M(nn.Module):
            def table(self, n: int, device: torch.device, given: dict):
                found = given.get(n)
                if found is None:
                    found = torch.arange(n).to(device)  # expect: CG202
                    given[n] = found
                return found

            def forward(self, x: torch.Tensor):
                return x + self.table(x.shape[0], x.device, {})
        """,
    "an attribute under another name": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.kept = None

            def forward(self, x: torch.Tensor):
                kept = self.kept
                if kept is None:
                    kept = torch.arange(4).to(x.device)
                    self.kept = kept
                return x + kept
        """,
    "what a cache keeps": """
        import functools

        def once(size):
            def around(function):
                cached = functools.lru_cache(maxsize=size)(function)
                if torch.__version__ < "2.7":
                    return cached

                @functools.wraps(function)
                def called(*args):
                    if torch.compiler.is_compiling():
                        return function(*args)
                    return cached(*args)

                return called

            return around

        @functools.cache
        def table(n: int, device: torch.device):
            return torch.arange(n).to(device)

        @functools.lru_cache(maxsize=None)
        def largest(x: torch.Tensor):
            return x.max().item()  # expect: CG102

        class M(nn.Module):
            @functools.lru_cache
            def method(self, n: int, device: torch.device):
                return torch.arange(n).to(device)

            @once(8)
            def wrapped(self, n: int, device: torch.device):
                return torch.arange(n).to(device)

            def forward(self, x: torch.Tensor):
                n, device = x.shape[0], x.device
                return x + table(n, device) + self.method(n, device) + self.wrapped(n, device) + largest(x)
        """,
    "another method empties it": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = None

            def renew(self):
                self.scale = None

            def forward(self, x: torch.Tensor):
                if self.scale is None:
                    self.scale = x.max().item()  # expect: CG102
                return x * self.scale
        """,
    "what another method leaves for one call": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.mask = None

            def embed(self, x: torch.Tensor):
                self.mask = x > 0
                return x

            def run(self, x: torch.Tensor, mask=None):
                if mask is not None and mask.any():
                    x = x + 1
                return x

            def forward(self, x: torch.Tensor):
                given = {}
                if self.mask is not None:
                    given.update({"mask": self.mask})
                    self.mask = None
                return self.run(x, **given)
        """,
    "what another method leaves for good": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.mask = None

            def embed(self, x: torch.Tensor):
                self.mask = x > 0
                return x

            def forward(self, x: torch.Tensor):
                if self.mask is not None:
                    if self.mask.any():  # expect: CG101
                        x = x + 1
                return x
        """,
    "what is made anew when it is too small": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = None

            def forward(self, x: torch.Tensor):
                if self.table is None or self.table.shape[0] < x.shape[0]:
                    self.table = torch.arange(x.shape[0]).to(x.device)  # expect: CG202
                return x + self.table
        """,
    "nothing is stored": """
        class M(nn.Module):
            def __init__(self, scale: float | None):
                super().__init__()
                self.scale = scale

            def forward(self, x: torch.Tensor):
                scale = self.scale
                if self.scale is None:
                    scale = x.max().item()  # expect: CG102
                return x * scale
        """,
    "an object of this step": """
        class Step:
            def __init__(self, lengths: torch.Tensor):
                self.lengths = lengths
                self.most = None

            def longest(self):
                if self.most is None:
                    self.most = self.lengths.max().item()  # expect: CG102
                return self.most

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return x * Step(x).longest()
        """,
}


@pytest.mark.parametrize("program", cases(ONCE))
def test_once(check, program):
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})
