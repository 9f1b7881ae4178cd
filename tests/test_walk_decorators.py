"""Decorators and registries, and what other code sets: what a name holds when it is called."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

HEAD = TORCH + "\n"

PROGRAMS = {
    "decorator with wraps": """
        from functools import wraps

        def checked(f):
            @wraps(f)
            def wrapper(self, x):
                if x.isnan().any():  # expect: CG101
                    raise ValueError
                return f(self, x)

            return wrapper

        class M(nn.Module):
            @checked
            def forward(self, x: torch.Tensor):
                return x.sum().item()  # expect: CG102
        """,
    "thirty arguments passed on": """
        def passed(f):
            def wrapper(*args, **kwargs):
                return f(*args, **kwargs)

            return wrapper

        @passed
        def many(
            a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, most: int, t1, t2, t3
        ):
            if most > 3:
                return a
            return x.sum().item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                return many(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, n, x, x, x)
        """,
    "decorator without wraps": """
        def checked(f):
            def wrapper(*args, **kwargs):
                result = f(*args, **kwargs)
                if result.isnan().any():  # expect: CG101
                    raise ValueError
                return result

            return wrapper

        @checked
        def double(t):
            return t * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return double(x)
        """,
    "decorator with arguments": """
        def limited(limit):
            def decorate(f):
                def wrapper(self, x):
                    if x.max() > limit:  # expect: CG101
                        x = x / 2
                    return f(self, x)

                return wrapper

            return decorate

        class M(nn.Module):
            @limited(3)
            def forward(self, x: torch.Tensor):
                return x
        """,
    "decorators on top of each other": """
        def one(f):
            def wrapper(t):
                return f(t.sum())

            return wrapper

        def two(f):
            def wrapper(t):
                return f(t).item()  # expect: CG102

            return wrapper

        @two
        @one
        def same(t):
            return t

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return same(x)
        """,
    "decorator that is a class": """
        class Checked:
            def __init__(self, f):
                self.f = f

            def __call__(self, t):
                return self.f(t).item()  # expect: CG102

        @Checked
        def total(t):
            return t.sum()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return total(x)
        """,
    "decorator that registers": """
        KNOWN = {}

        def register(name):
            def add(f):
                KNOWN[name] = f
                return f

            return add

        @register("hot")
        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return KNOWN["hot"](x.sum())
        """,
    "torch decorators": """
        @torch.no_grad()
        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            @torch.inference_mode()
            def forward(self, x: torch.Tensor):
                return hot(x.sum())
        """,
    "lru_cache": """
        from functools import lru_cache

        @lru_cache(maxsize=None)
        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x.sum())
        """,
    "registry of functions": """
        def cold(t):
            return t * 2

        def hot(t):
            return t * t.max().item()  # expect: CG102

        ROPE = {"plain": cold, "dynamic": hot}

        class M(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.init = ROPE[config.kind]

            def forward(self, x: torch.Tensor):
                return self.init(x)
        """,
    "registry read with a constant": """
        def cold(t):
            return t * 2

        def hot(t):
            return t * t.max().item()

        ROPE = {"plain": cold, "dynamic": hot}

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return ROPE["plain"](x)
        """,
    "registry read by get": """
        def hot(t):
            return t * t.max().item()  # expect: CG102

        ROPE = {"dynamic": hot}

        class M(nn.Module):
            def forward(self, x: torch.Tensor, kind: str):
                return ROPE.get(kind, hot)(x)
        """,
    "list of functions": """
        def hot(t):
            return t * t.max().item()  # expect: CG102

        STEPS = [torch.relu, hot]

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                for step in STEPS:
                    x = step(x)
                return x
        """,
    "checkpoint": """
        from torch.utils.checkpoint import checkpoint

        def hot(t):
            return t * t.max().item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return checkpoint(hot, x, use_reentrant=False)
        """,
    "dispatch by singledispatch": """
        from functools import singledispatch

        @singledispatch
        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x.sum())
        """,
}

GAPS: dict[str, str] = {}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_decorators(check, program):
    verify(check, {"model.py": HEAD + textwrap.dedent(program)})


# -- what is set from elsewhere ----------------------------------------------------------------------------------------

SET_ELSEWHERE = {
    "class attribute": """
        class State:
            metadata = None

        def prepare():
            State.metadata = [1]

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if State.metadata is None:
                    return x
                return x.sum().item()  # expect: CG102
        """,
    "global variable": """
        METADATA = None

        def prepare():
            global METADATA
            METADATA = [1]

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if METADATA is None:
                    return x
                return x.sum().item()  # expect: CG102
        """,
    "attribute of a module-level object": """
        class State:
            def __init__(self):
                self.metadata = None

        STATE = State()

        def prepare():
            STATE.metadata = [1]

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if STATE.metadata is None:
                    return x
                return x.sum().item()  # expect: CG102
        """,
    "attribute of a module": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.metadata = None

            def forward(self, x: torch.Tensor):
                if self.metadata is None:
                    return x
                return x.sum().item()  # expect: CG102

        def prepare(m: M):
            m.metadata = [1]
        """,
    "module-level list filled later": """
        HOOKS = []

        def hot(t):
            return t.item()  # expect: CG102

        HOOKS.append(hot)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                for hook in HOOKS:
                    hook(x.sum())
        """,
    "module-level dict filled later": """
        KNOWN = {}

        def hot(t):
            return t.item()  # expect: CG102

        KNOWN["hot"] = hot
        KNOWN.update(other=hot)

        class M(nn.Module):
            def forward(self, x: torch.Tensor, kind: str):
                return KNOWN[kind](x.sum())
        """,
    "objects that register themselves": """
        LAYERS: dict[str, "Layer"] = {}

        class Layer(nn.Module):
            def __init__(self, name):
                super().__init__()
                LAYERS[name] = self

            def core(self, t):
                return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor, name: str):
                return LAYERS[name].core(x.sum())
        """,
    "method replaced on the object": """
        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.step = hot

            def forward(self, x: torch.Tensor):
                return self.step(x.sum())
        """,
    "attribute of the class, by a decorator": """
        def registered(name, sizes=None):
            def decorator(cls):
                cls.label = name
                cls._sizes = sizes
                return cls

            return decorator

        class Op(nn.Module):
            def __init__(self):
                super().__init__()
                self.step = self.pick()

            def pick(self):
                sizes = getattr(self.__class__, "_sizes", None)
                return self.native if sizes is None else self.sized

        @registered("plain")
        class Plain(Op):
            def native(self, x):
                return x

            def sized(self, x):
                return x.sum().item()

            def forward(self, x: torch.Tensor):
                return self.step(x)

        @registered("sized", sizes={"x": 0})
        class Sized(Op):
            def native(self, x):
                return x.sum().item()

            def sized(self, x):
                return x.sum().item()  # expect: CG102

            def forward(self, x: torch.Tensor):
                return self.step(x)
        """,
    "method replaced on the class": """
        class Layer(nn.Module):
            def forward(self, t):
                return t

        def hot(self, t):
            return t.sum().item()  # expect: CG102

        Layer.forward = hot

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
}


CONSTANT = "an attribute that is None where it is made counts as None, whoever sets it from outside"
FILLED = "what is put into a module-level list or dict after it was made"
ELSEWHERE_GAPS = {
    "method replaced on the class": "an assignment to an attribute of a class, at module level",
}


@pytest.mark.parametrize("program", cases(SET_ELSEWHERE, ELSEWHERE_GAPS))
def test_what_is_set_elsewhere(check, program):
    verify(check, {"model.py": HEAD + textwrap.dedent(program)})
