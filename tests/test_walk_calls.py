"""What the walk follows: functions, methods, closures, decorators, arguments and return values."""

from __future__ import annotations

import pytest

from expectations import TORCH, cases, verify

HEAD = TORCH + "\n"

# One file each; `M` is the root, `hot` the helper with the hazard.
PROGRAMS = {
    "function": """
        def hot(t):
            if t.sum() > 0:  # expect: CG101
                return 1

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x)
        """,
    "function three calls below": """
        def hot(t):
            return t.item()  # expect: CG102

        def middle(t):
            return hot(t + 1)

        def outer(t):
            return middle(t.sum())

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return outer(x)
        """,
    "only with a tensor": """
        def cold(v):
            if v > 0:
                return 1

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return cold(x.shape[0]) + cold(3)
        """,
    "with a tensor and with an int": """
        def hot(v):
            if v > 0:  # expect: CG101
                return 1

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x.shape[0]) + hot(x.sum())
        """,
    "function that nothing captured calls": """
        def cold(t: torch.Tensor):
            return t.item()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return x * 2

            def report(self, x: torch.Tensor):
                return cold(x)
        """,
    "keyword arguments": """
        def hot(a, b, *, c=None):
            return int(c) if c is not None else 0  # expect: CG103

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(1, b=2, c=x.sum())
        """,
    "keywords are not mixed up": """
        def cold(a, b, *, c=0):
            return int(a) + int(c)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return cold(b=x.sum(), a=2, c=3)
        """,
    "star arguments": """
        def hot(*values):
            return [v.item() for v in values]  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x, x + 1)
        """,
    "star arguments handed on": """
        def hot(a, b):
            return b.item()  # expect: CG102

        def on(*args, **kwargs):
            return hot(*args, **kwargs)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return on(1, b=x.sum())
        """,
    "double star of a known dict": """
        def hot(a=None, b=None):
            return b.item() + int(a)  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                options = {"a": 1, "b": x.sum()}
                return hot(**options)
        """,
    "defaults": """
        def cold(t, limit=4):
            if limit > 3:
                return t

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return cold(x)
        """,
    "return value": """
        def total(t):
            return t.sum()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if total(x) > 0:  # expect: CG101
                    return x
        """,
    "return value of the host": """
        def size(t):
            return t.shape[0] * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if size(x) > 0:
                    return x
        """,
    "one of several return values": """
        def either(t, flag):
            if flag:
                return t.sum()
            return 3

        class M(nn.Module):
            def forward(self, x: torch.Tensor, flag: bool):
                if either(x, flag) > 0:  # expect: CG101
                    return x
        """,
    "several return values": """
        def both(t):
            return t.shape[0], t.sum()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                size, total = both(x)
                if size > 0:
                    return int(total)  # expect: CG103
        """,
    "nested function": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                def hot(t):
                    return t.item()  # expect: CG102

                return hot(x.sum())
        """,
    "closure variable": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                total = x.sum()

                def hot():
                    return total.item()  # expect: CG102

                return hot()
        """,
    "nonlocal": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                total = 0

                def add(t):
                    nonlocal total
                    total = total + t.sum()

                add(x)
                if total > 0:  # expect: CG101
                    return x
        """,
    "closure returned": """
        def maker(limit):
            def check(t):
                return t.max() > limit

            return check

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                check = maker(3)
                if check(x):  # expect: CG101
                    return x
        """,
    "lambda": """
        hot = lambda t: t.sum().item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x)
        """,
    "lambda as an argument": """
        def apply(f, t):
            return f(t)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return apply(lambda t: t.item(), x.sum())  # expect: CG102
        """,
    "partial": """
        from functools import partial

        def hot(limit, t):
            if t.max() > limit:  # expect: CG101
                return t

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return partial(hot, 3)(x)
        """,
    "partial with keywords, kept on self": """
        import functools

        def hot(t, limit):
            return limit.item() if t.shape[0] > 1 else 0  # expect: CG102

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(()))
                self.call = functools.partial(hot, limit=self.weight)

            def forward(self, x: torch.Tensor):
                return self.call(x)
        """,
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
    "recursion": """
        def shrink(t, depth):
            if depth == 0:
                return t.sum().item()  # expect: CG102
            return shrink(t / 2, depth - 1)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return shrink(x, 5)
        """,
    "mutual recursion": """
        def even(t, depth):
            if depth == 0:
                return t.sum()
            return odd(t, depth - 1)

        def odd(t, depth):
            return even(t * 2, depth)

        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                if even(x, n) > 0:  # expect: CG101
                    return x
        """,
    "recursion over a structure": """
        def total(value):
            if isinstance(value, (list, tuple)):
                return sum(total(v) for v in value)
            return value.sum()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if total([x, (x, x)]) > 0:  # expect: CG101
                    return x
        """,
    "function in a conditional": """
        def cold(t):
            return t

        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor, flag: bool):
                step = hot if flag else cold
                return step(x.sum())
        """,
    "map over a function": """
        def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return list(map(hot, [x, x]))
        """,
    "generator function": """
        def halves(t):
            yield t.sum()
            yield t.max().item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                for value in halves(x):
                    x = x + value
                return x
        """,
    "async and await": """
        async def hot(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            async def forward(self, x: torch.Tensor):
                return await hot(x.sum())
        """,
    "checkpoint": """
        from torch.utils.checkpoint import checkpoint

        def hot(t):
            return t * t.max().item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return checkpoint(hot, x, use_reentrant=False)
        """,
    "function defined under a condition": """
        try:
            from fast import hot
        except ImportError:
            def hot(t):
                return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return hot(x.sum())
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
    "getattr with a constant": """
        class M(nn.Module):
            def hot(self, t):
                return t.item()  # expect: CG102

            def forward(self, x: torch.Tensor):
                return getattr(self, "hot")(x.sum())
        """,
    "reduce": """
        from functools import reduce

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return reduce(lambda a, b: a if a > b else b, [x.sum(), x.max()])  # expect: CG101
        """,
}


@pytest.mark.parametrize("program", cases(PROGRAMS))
def test_calls(check, program):
    import textwrap

    verify(check, {"model.py": HEAD + textwrap.dedent(program)})


# -- across modules ----------------------------------------------------------------------------------------------------

HOT = TORCH + "\n\ndef hot(t):\n    return t.sum().item()  # expect: CG102\n"
MODEL = TORCH + "{imports}\n\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return {call}(x)\n"

ACROSS = {
    "from import": ("helper.py", "from helper import hot", "hot"),
    "from import as": ("helper.py", "from helper import hot as h", "h"),
    "module": ("helper.py", "import helper", "helper.hot"),
    "module as": ("helper.py", "import helper as u", "u.hot"),
    "package": ("pkg/sub/helper.py", "import pkg.sub.helper", "pkg.sub.helper.hot"),
    "from a package": ("pkg/sub/helper.py", "from pkg.sub import helper", "helper.hot"),
    "inside the function": ("helper.py", "", "__import__"),
}


@pytest.mark.parametrize("where", cases({k: v for k, v in ACROSS.items() if k != "inside the function"}))
def test_across_modules(check, where):
    path, imports, call = where
    files = {path: HOT, "model.py": MODEL.format(imports=imports, call=call)}
    if "/" in path:
        files |= {"pkg/__init__.py": "", "pkg/sub/__init__.py": ""}
    verify(check, files)


def test_relative_imports_and_re_exports(check):
    verify(
        check,
        {
            "pkg/__init__.py": "from .model import M",
            "pkg/utils/__init__.py": "from .deep import hot as warm\nfrom .other import *",
            "pkg/utils/deep.py": HOT,
            "pkg/utils/other.py": HOT.replace("hot", "also") + "\n\n__all__ = ['also']",
            "pkg/model.py": MODEL.format(imports="from .utils import also, warm", call="also(x) + warm"),
        },
    )


def test_an_import_inside_the_function(check):
    model = MODEL.format(imports="", call="hot").replace("return", "from helper import hot\n\n        return")
    verify(check, {"helper.py": HOT, "model.py": model})


def test_an_import_under_type_checking_only(check):
    program = """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from torch import nn

        if TYPE_CHECKING:
            from meta import Meta

        class M(nn.Module):
            def forward(self, meta: Meta):
                return meta.lengths.tolist()  # expect: CG102
        """
    meta = "import torch\n\nclass Meta:\n    lengths: torch.Tensor\n"
    verify(check, {"model.py": program, "meta.py": meta})


def test_a_cycle_of_imports(check):
    verify(
        check,
        {
            "a.py": TORCH + "import b\n\n\ndef hot(t):\n    return t.item()  # expect: CG102\n",
            "b.py": TORCH + "import a\n\n\ndef on(t):\n    return a.hot(t.sum())\n",
            "model.py": MODEL.format(imports="import b", call="b.on"),
        },
    )


def test_two_modules_of_one_name_are_told_apart(check):
    cold = "def hot(t):\n    return t\n"
    model = MODEL.format(imports="from .helper import hot", call="hot")
    files = {"one/helper.py": HOT, "two/helper.py": cold, "one/model.py": model, "two/model.py": model}
    verify(check, files | {"one/__init__.py": "", "two/__init__.py": ""})
