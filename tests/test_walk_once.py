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
