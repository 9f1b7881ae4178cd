"""Classes and modules: methods, inheritance, submodules, containers, attributes, properties and plain data."""

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
    "submodule": """
        class Layer(nn.Module):
            def forward(self, t):
                return t * t.max().item()  # expect: CG102

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
    "submodule assigned under a condition": """
        class Layer(nn.Module):
            def forward(self, t):
                return t * t.max().item()  # expect: CG102

        class M(nn.Module):
            def __init__(self, deep: bool):
                super().__init__()
                if deep:
                    self.layer = Layer()
                else:
                    self.layer = nn.Identity()

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
    "submodule by add_module and setattr": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.add_module("one", Layer())
                setattr(self, "two", Layer())

            def forward(self, x: torch.Tensor):
                return self.one(x, 3) + self.two(x, x.argmax())
        """,
    "submodule passed to the constructor": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        class Block(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, t):
                return self.inner(t, t.argmax())

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.block = Block(Layer())

            def forward(self, x: torch.Tensor):
                return self.block(x)
        """,
    "submodule made by a factory": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        def build(kind):
            return Layer() if kind == "a" else nn.Identity()

        class M(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layer = build(config.kind)

            def forward(self, x: torch.Tensor):
                return self.layer(x, x.argmax())
        """,
    "class kept in a registry": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        LAYERS = {"a": Layer, "b": nn.Identity}

        class M(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.layer = LAYERS[config.kind](config)

            def forward(self, x: torch.Tensor):
                return self.layer(x, x.argmax())
        """,
    "ModuleList": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        class M(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.layers = nn.ModuleList([Layer() for _ in range(n)])

            def forward(self, x: torch.Tensor):
                for layer in self.layers:
                    x = layer(x, x.argmax())
                return x
        """,
    "ModuleList with append, index and slice": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        class Other(nn.Module):
            def forward(self, t, bound):
                return t * int(bound)  # expect: CG103

        class M(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.layers = nn.ModuleList()
                for _ in range(n):
                    self.layers.append(Layer())
                self.more = nn.ModuleList(Other() for _ in range(n))

            def forward(self, x: torch.Tensor):
                x = self.layers[0](x, x.argmax())
                for index, layer in enumerate(self.more[1:]):
                    x = layer(x, x.argmax())
                return x
        """,
    "ModuleDict": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleDict({"a": nn.Identity(), "b": Layer()})

            def forward(self, x: torch.Tensor, kind: str):
                return self.layers[kind](x, x.argmax())
        """,
    "ModuleDict filled by key": """
        class Layer(nn.Module):
            def forward(self, t, bound):
                return t[: bound]  # expect: CG103

        class M(nn.Module):
            def __init__(self, names):
                super().__init__()
                self.layers = nn.ModuleDict()
                for name in names:
                    self.layers[name] = Layer()

            def forward(self, x: torch.Tensor):
                for name, layer in self.layers.items():
                    x = layer(x, x.argmax())
                return x
        """,
    "Sequential": """
        class Total(nn.Module):
            def forward(self, t):
                return t.sum()

        class Read(nn.Module):
            def forward(self, t):
                return t if t > 0 else -t  # expect: CG101

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(3, 3), Total(), Read())

            def forward(self, x: torch.Tensor):
                return self.layers(x)
        """,
    "Sequential of a starred list": """
        class Read(nn.Module):
            def forward(self, t):
                return t * int(t.sum())  # expect: CG103

        class M(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.layers = nn.Sequential(*[Read() for _ in range(n)])

            def forward(self, x: torch.Tensor):
                return self.layers(x)
        """,
    "subclass of Sequential": """
        class Read(nn.Module):
            def forward(self, t):
                return t * int(t.sum())  # expect: CG103

        class Stack(nn.Sequential):
            def __init__(self):
                super().__init__(nn.Linear(3, 3), Read())

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.stack = Stack()

            def forward(self, x: torch.Tensor):
                return self.stack(x)
        """,
    "result of a torch layer": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 3)

            def forward(self, x):
                y = self.linear(x)
                if y.sum() > 0:  # expect: CG101
                    return y
        """,
    "callable object": """
        class Scale:
            def __call__(self, t):
                return t.item()  # expect: CG102

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = Scale()

            def forward(self, x: torch.Tensor):
                return self.scale(x.sum())
        """,
    "module with its own __call__": """
        class Layer(nn.Module):
            def __call__(self, t):
                return super().__call__(t.sum())

            def forward(self, t):
                return t if t > 0 else -t  # expect: CG101

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
    "forward hooks": """
        def watch(module, args, output):
            print(output)  # expect: CG103

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()
                self.layer.register_forward_hook(watch)

            def forward(self, x: torch.Tensor):
                return self.layer(x)

        class Layer(nn.Module):
            def forward(self, t):
                return t
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
    "register_buffer": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", torch.zeros(()), persistent=False)

            def forward(self, x: torch.Tensor):
                if self.count > 3:  # expect: CG101
                    return x
        """,
    "optional buffer": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("count", None)

            def forward(self, x: torch.Tensor):
                if self.count is None:
                    return x
                return -x
        """,
    "parameter": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(()))
                self.register_parameter("other", nn.Parameter(torch.ones(())))

            def forward(self, x: torch.Tensor):
                return x * float(self.scale) + (1 if self.other > 0 else 2)  # expect: CG101, CG103
        """,
    "plain tensor attribute on the CPU": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.count = torch.zeros((), device="cpu")

            def forward(self, x: torch.Tensor):
                if self.count > 3:
                    return x
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
    "dataclass": """
        @dataclass
        class Batch:
            tokens: torch.Tensor
            size: int
            extra: Optional[torch.Tensor] = None
            names: list = field(default_factory=list)

        class M(nn.Module):
            def forward(self, batch: Batch):
                if batch.size > 3 and batch.names and batch.extra is None:
                    return batch.tokens
                if batch.tokens.sum() > 3:  # expect: CG101
                    return 1
                return 2 if batch.extra.sum() > 0 else 3  # expect: CG101
        """,
    "dataclass made on the way": """
        @dataclass
        class Pair:
            a: object
            b: object

        def pair(t):
            return Pair(a=t.shape[0], b=t.sum())

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                p = pair(x)
                if p.a > 3:
                    return int(p.b)  # expect: CG103
        """,
    "dataclass with __post_init__": """
        @dataclass
        class Batch:
            tokens: torch.Tensor

            def __post_init__(self):
                self.total = self.tokens.sum()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                batch = Batch(x)
                return 1 if batch.total > 0 else 2  # expect: CG101
        """,
    "dataclass comparison": """
        @dataclass
        class Pair:
            a: torch.Tensor

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Pair(x) == Pair(x + 1)  # expect: CG101
        """,
    "NamedTuple": """
        class Out(NamedTuple):
            hidden: torch.Tensor
            size: int

        def run(t) -> Out:
            return Out(t * 2, t.shape[0])

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                out = run(x)
                hidden, size = out
                if size > 1 and out.size > 2 and out[1] > 3:
                    return x
                if out.hidden.sum() > 0:  # expect: CG101
                    return hidden.sum().item() + out[0].sum().item()  # expect: CG102
        """,
    "namedtuple": """
        from collections import namedtuple

        Out = namedtuple("Out", ["hidden", "size"])

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                out = Out(x, x.shape[0])
                if out.size > 1:
                    return out.hidden.sum().item()  # expect: CG102
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
    "enum": """
        from enum import Enum

        class Kind(Enum):
            A = "a"
            B = "b"

        class M(nn.Module):
            def __init__(self, kind: Kind):
                super().__init__()
                self.kind = kind

            def forward(self, x: torch.Tensor):
                if self.kind == Kind.A or self.kind in (Kind.B,):
                    return x
        """,
    "tuple of tensors": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                t = (x.sum(), x.shape[0], [x.max()], {"a": x.min(), "b": x.dim()})
                if t[1] > 2 and t[3]["b"] > 3:
                    return x
                one = t[0].item()  # expect: CG102
                two = t[2][0].item()  # expect: CG102
                return one + two + t[3]["a"].item()  # expect: CG102
        """,
    "dict of tensors": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                d = dict(total=x.sum(), size=x.shape[0])
                d["max"] = x.max()
                if d["size"] > 3 and "max" in d and d.get("none") is None:
                    return x
                for key, value in d.items():
                    if key == "total":
                        continue
                a = d["max"].item()  # expect: CG102
                return a + d.get("total").item()  # expect: CG102
        """,
    "list built in a loop": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                sums = []
                for i in range(n):
                    sums.append(x[i].sum())
                if len(sums) > 3 and sums:
                    return x
                return sums[-1].item() + sums.pop().item()  # expect: CG102
        """,
    "tuple unpacking with a star": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                first, *rest, last = x.shape[0], x.sum(), x.max()
                if first > 3:
                    return x
                return last.item()  # expect: CG102
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
    "__getattr__": """
        class Wrapper(nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def __getattr__(self, name):
                return getattr(super().__getattr__("inner"), name)

            def forward(self, x: torch.Tensor):
                if self.limit > 3:
                    return self.inner(x)
        """,
    "del of an attribute": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                self.t = x
                del self.t
                return x
        """,
    "autograd.Function": """
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, t):
                print(t)  # expect: CG103
                return t * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Double.apply(x)
        """,
}


@pytest.mark.parametrize("program", cases(PROGRAMS))
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
