"""Modules of torch.nn: submodules, their containers, hooks, buffers and parameters."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

HEAD = TORCH + "from dataclasses import dataclass, field\nfrom typing import NamedTuple, Optional\n\n"

PROGRAMS = {
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
    "layers with weights, given what is not known": """
        from somewhere import load

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = load("encoder")
                self.head = nn.Linear(3, 4)
                self.act = nn.ReLU()

            def forward(self, x: torch.Tensor):
                pooled = self.encoder(x)[1]
                plain = self.act(pooled).cpu()
                return self.head(pooled).cpu()  # expect: CG102
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
}

GAPS: dict[str, str] = {}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_modules(check, program):
    verify(check, {"model.py": HEAD + textwrap.dedent(program)})
