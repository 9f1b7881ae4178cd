"""What the walk follows: functions, methods, closures, decorators, arguments and return values."""

from __future__ import annotations

import textwrap

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

GAPS = {
    "nonlocal": "what a nested function assigns to a nonlocal variable is not seen outside",
    "mutual recursion": "a running call counts as unknown instead of as nothing, so the join is of low confidence",
    "reduce": "functools.reduce calls its function",
}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_calls(check, program):
    verify(check, {"model.py": HEAD + textwrap.dedent(program)})


def test_many_arguments_through_a_generator_stay_apart(check):
    names = [f"a{i}" for i in range(20)]
    program = f"""
        import functools

        def contiguous(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return function(*(a if not isinstance(a, torch.Tensor) else a.contiguous() for a in args), **kwargs)

            return wrapper

        @contiguous
        def run({", ".join(names)}, fused=False):
            if fused:
                return a0
            if a0:  # expect: CG101
                return a1

        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int, fused: bool):
                return run({", ".join(["x"] * 10 + ["n"] * 10)}, fused)
        """
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})
