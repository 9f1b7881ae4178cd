"""Classes: methods, inheritance, attributes, properties and special methods."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

HEAD = TORCH + "from dataclasses import dataclass, field\nfrom typing import NamedTuple, Optional\n\n"

PROGRAMS = {
    "method": """
        class M(nn.Module):
            def hot(self, t):
                return t.item()  # expect: CG102

            def forward(self, x: torch.Tensor):
                return self.hot(x.sum())
        """,
    "inherited method": """
        class Base(nn.Module):
            def hot(self, t):
                return t.item()  # expect: CG102

        class M(Base):
            def forward(self, x: torch.Tensor):
                return self.hot(x.sum())
        """,
    "overridden method": """
        class Base(nn.Module):
            def step(self, t):
                return t.item()

            def forward(self, x: torch.Tensor):
                raise NotImplementedError

        class M(Base):
            def step(self, t):
                return t * 2

            def forward(self, x: torch.Tensor):
                return self.step(x)
        """,
    "method of the concrete class, called by its base": """
        class Base(nn.Module):
            def step(self, t):
                raise NotImplementedError

            def forward(self, x: torch.Tensor):
                return self.step(x.sum())

        class M(Base):
            def step(self, t):
                return t.item()  # expect: CG102
        """,
    "super": """
        class Base(nn.Module):
            def forward(self, x: torch.Tensor):
                return x.sum().item()  # expect: CG102

        class M(Base):
            def forward(self, x: torch.Tensor):
                return super().forward(x) + 1
        """,
    "super with arguments": """
        class Base(nn.Module):
            def hot(self, t):
                return t.sum().item()  # expect: CG102

        class M(Base):
            def hot(self, t):
                return 1

            def forward(self, x: torch.Tensor):
                return super(M, self).hot(x)
        """,
    "super follows the concrete order": """
        class Base(nn.Module):
            def step(self, t):
                return t

        class Left(Base):
            def step(self, t):
                return super().step(t)

        class Right(Base):
            def step(self, t):
                return super().step(t.sum().item())  # expect: CG102

        class M(Left, Right):
            def forward(self, x: torch.Tensor):
                return self.step(x)
        """,
    "mixin": """
        class Hot:
            def hot(self, t):
                return self.scale(t).item()  # expect: CG102

        class M(Hot, nn.Module):
            def scale(self, t):
                return t.max()

            def forward(self, x: torch.Tensor):
                return self.hot(x)
        """,
    "base class by call": """
        class Base(nn.Module):
            def hot(self, t):
                return t.item()  # expect: CG102

        class M(Base):
            def hot(self, t):
                return Base.hot(self, t.sum())

            def forward(self, x: torch.Tensor):
                return self.hot(x)
        """,
    "property": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            @property
            def total(self):
                return self.weight.sum()

            @property
            def size(self):
                return self.weight.shape[0]

            def forward(self, x: torch.Tensor):
                if self.size > 3:
                    return x
                if self.total > 3:  # expect: CG101
                    return x
        """,
    "property with a read in it": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            @property
            def total(self):
                return self.weight.sum().item()  # expect: CG102

            def forward(self, x: torch.Tensor):
                return x * self.total
        """,
    "cached_property": """
        from functools import cached_property

        class M(nn.Module):
            @cached_property
            def total(self):
                return torch.ones(3, device="cuda").sum()

            def forward(self, x: torch.Tensor):
                return x if self.total > 2 else -x  # expect: CG101
        """,
    "static and class methods": """
        class M(nn.Module):
            @staticmethod
            def one(t):
                return t.item()  # expect: CG102

            @classmethod
            def two(cls, t):
                return cls.one(t.sum()) + int(t.max())  # expect: CG103

            def forward(self, x: torch.Tensor):
                return self.one(x.sum()) + M.one(x.max()) + self.two(x)
        """,
    "class attribute": """
        class M(nn.Module):
            limit = 4
            table = torch.ones(3, device="cuda")

            def forward(self, x: torch.Tensor):
                if self.limit > 3:
                    x = x + 1
                return x if self.table.sum() > 3 else -x  # expect: CG101
        """,
    "function as a class attribute": """
        def hot(self, t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            step = hot

            def forward(self, x: torch.Tensor):
                return self.step(x.sum())
        """,
    "attribute set in another method": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.cached = None

            def prepare(self, n: int):
                self.cached = torch.zeros(n, device="cuda").sum()

            def forward(self, x: torch.Tensor):
                if self.cached is not None and self.cached > 3:  # expect: CG101
                    return x
        """,
    "attribute set in forward before": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                self.last = x.max()
                return self.check(x)

            def check(self, x):
                return x if self.last > 3 else -x  # expect: CG101
        """,
    "host attributes": """
        class M(nn.Module):
            def __init__(self, config, size: int = 3):
                super().__init__()
                self.size = size
                self.half = size // 2
                self.rate = config.rate
                self.names = [f"layer{i}" for i in range(size)]
                self.kind = config.kind or "plain"

            def forward(self, x: torch.Tensor):
                if self.size > 3 and self.half and self.rate > 0.5 and self.names and self.kind == "plain":
                    return x
                return x if self.training else -x
        """,
    "plain object": """
        class State:
            def __init__(self, t):
                self.value = t.sum()
                self.size = t.shape[0]

            def is_big(self):
                return self.value > 3

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                state = State(x)
                if state.size > 3:
                    return x
                if state.is_big():  # expect: CG101
                    return x
        """,
    "object with operators": """
        class Wrapped:
            def __init__(self, t):
                self.t = t

            def __bool__(self):
                return bool(self.t.any())  # expect: CG101

            def __len__(self):
                return len(self.t)

            def __getitem__(self, index):
                return self.t[index].item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                w = Wrapped(x)
                if w:
                    return w[0]
        """,
    "context manager": """
        class Timer:
            def __init__(self, t):
                self.t = t

            def __enter__(self):
                return self.t.sum()

            def __exit__(self, *error):
                print(self.t)  # expect: CG103

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                with Timer(x) as total:
                    return x if total > 0 else -x  # expect: CG101
        """,
    "class in a function": """
        def make(limit):
            class Layer(nn.Module):
                def forward(self, x: torch.Tensor):
                    return x if x.max() > limit else -x  # expect: CG101

            return Layer

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = make(3)()

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
    "generic class": """
        from typing import Generic, TypeVar

        T = TypeVar("T")

        class Base(nn.Module, Generic[T]):
            def hot(self, t):
                return t.item()  # expect: CG102

        class M(Base[int]):
            def forward(self, x: torch.Tensor):
                return self.hot(x.sum())
        """,
    "del of an attribute": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                self.t = x
                del self.t
                return x
        """,
}

GAPS = {
    "object with operators": "the truth of an object calls its __bool__",
    "context manager": "__exit__ is not run at the end of a with block",
}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_classes(check, program):
    verify(check, {"model.py": HEAD + textwrap.dedent(program)})


def test_a_base_class_in_another_module(check):
    base = """
        from torch import nn

        class Base(nn.Module):
            def __init__(self):
                super().__init__()
                self.limit = 3
                self.norm = self.make_norm()

            def check(self, t):
                if t > self.limit:  # expect: CG101
                    return True
        """
    model = """
        import torch
        from pkg.base import Base
        from torch import nn

        class M(Base):
            def make_norm(self):
                return nn.LayerNorm(3)

            def forward(self, x):
                return self.check(self.norm(x).max())
        """
    verify(check, {"pkg/__init__.py": "", "pkg/base.py": base, "pkg/model.py": model})


def test_each_concrete_class_counts_for_itself(check):
    """The same forward with two kinds of layer: only one of them reads."""
    program = """
        class Base(nn.Module):
            def forward(self, x: torch.Tensor):
                return self.scale(x)

        class Cold(Base):
            def scale(self, t):
                return t * 2

        class Hot(Base):
            def scale(self, t):
                return t * t.max().item()  # expect: CG102
        """
    report = verify(check, {"model.py": HEAD + textwrap.dedent(program)})
    assert report.findings[0].root_count == 1
