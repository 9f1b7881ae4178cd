"""Statements: loops, branches, exceptions, `with`, `match`, comprehensions, and what they make of a variable."""

from __future__ import annotations

import pytest

from expectations import cases, verify_forward

BODIES = {
    "both branches of an if": """
        if flag:
            t = x.sum()
        else:
            t = x.max()
        return t.item()  # expect: CG102
        """,
    "one branch of an if": """
        t = 0
        if flag:
            t = x.sum()
        if t > 3:  # expect: CG101
            return x
        """,
    "neither branch of an if": """
        t = x.sum()
        if flag:
            t = 1
        else:
            t = x.shape[0]
        if t > 3:
            return x
        """,
    "overwritten": """
        t = x.sum()
        t = x.shape[0]
        if t > 3:
            return x
        """,
    "code behind a return": """
        return x
        x.item()
        """,
    "code behind a raise": """
        if n > 3:
            raise ValueError(n)
            x.item()
        return x
        """,
    "early return": """
        if x is None:
            return x.item()
        return x
        """,
    "constant condition": """
        if False:
            x.item()
        if not True or 0:
            x.item()
        while 0:
            x.item()
        return x
        """,
    "for over a tensor": """
        for row in x:
            if row.sum() > 0:  # expect: CG101
                return row
        """,
    "for over range": """
        total = x.sum()
        for i in range(n):
            if i > 3:
                total = total + i
        return total.item()  # expect: CG102
        """,
    "value carried round a loop": """
        t = 0
        for i in range(n):
            if t > 3:  # expect: CG101
                return t
            t = x[i].sum()
        """,
    "value carried round twice": """
        a = b = 0
        for i in range(n):
            if a > 3:  # expect: CG101
                return x
            a = b
            b = x[i].sum()
        """,
    "for else": """
        for i in range(n):
            if i > 3:
                break
        else:
            x.sum().item()  # expect: CG102
        return x
        """,
    "break and continue": """
        t = x.shape[0]
        while True:
            if n > 3:
                t = x.sum()
                break
            if n > 2:
                continue
            return x
        return x if t > 0 else -x  # expect: CG101
        """,
    "enumerate and zip": """
        for i, (row, size) in enumerate(zip(x, x.shape)):
            if i > 3 or size > 4:
                return row.sum().item()  # expect: CG102
        """,
    "reversed and sorted range": """
        for i in reversed(range(n)):
            x = x[i : i + 2]
        return x
        """,
    "dict items": """
        for key, value in {"a": x.sum(), "b": x.max()}.items():
            if key == "a" and value > 3:  # expect: CG101
                return x
        """,
    "while with a host bound": """
        i = 0
        while i < n:
            i += 1
            x = x * i
        return x
        """,
    "while with a tensor bound": """
        i = 0
        while i < x.max():  # expect: CG101
            i += 1
        return i
        """,
    "while, counting on the device": """
        i = torch.zeros((), device=x.device)
        while i < n:  # expect: CG101
            i = i + 1
        return i
        """,
    "try and except": """
        try:
            t = x.sum()
        except RuntimeError:
            t = 0
        return t.item()  # expect: CG102
        """,
    "hazards in all parts of try": """
        try:
            x.sum().item()  # expect: CG102
        except (ValueError, RuntimeError) as error:
            x.max().item()  # expect: CG102
        else:
            x.min().item()  # expect: CG102
        finally:
            x.mean().item()  # expect: CG102
        """,
    "return in try, hazard in finally": """
        try:
            return x
        finally:
            print(x)  # expect: CG103
        """,
    "with": """
        with torch.no_grad(), torch.autocast("cuda"):
            x.sum().item()  # expect: CG102
        return x
        """,
    "with nullcontext": """
        from contextlib import nullcontext
        with torch.no_grad() if flag else nullcontext():
            x.sum().item()  # expect: CG102
        """,
    "with record_function": """
        with torch.profiler.record_function("name"):
            return x.sum().item()  # expect: CG102
        """,
    "match on a host value": """
        match n:
            case 1 | 2:
                t = x.sum()
            case int(k) if k > 3:
                t = x.max()
            case _:
                return x
        return t.item()  # expect: CG102
        """,
    "match on a string": """
        match str(x.dtype):
            case "torch.float16":
                return x
            case "torch.bfloat16":
                return x.sum().item()  # expect: CG102
        """,
    "match binds parts": """
        match (x.sum(), n):
            case (t, 3):
                return t.item()  # expect: CG102
            case (t, k):
                return k + 1
        """,
    "match on a dict": """
        match {"a": x.sum()}:
            case {"a": t}:
                return t.item()  # expect: CG102
        """,
    "list comprehension over tensors": """
        rows = [row.sum() for row in x]
        return rows[0].item()  # expect: CG102
        """,
    "nested comprehension": """
        return [[v.item() for v in row] for row in x]  # expect: CG102
        """,
    "comprehension with a host condition": """
        return [row for i, row in enumerate(x) if i % 2 and row.dim() > 0]
        """,
    "comprehension variables stay inside": """
        t = 3
        rows = [t for t in x]
        if t > 2 and rows:
            return x
        """,
    "dict comprehension": """
        d = {i: row.sum() for i, row in enumerate(x)}
        return d[0].item()  # expect: CG102
        """,
    "walrus": """
        if (size := x.shape[0]) > 3 and (total := x.sum()) is not None:
            return total.item() if size > 4 else size  # expect: CG102
        """,
    "walrus in a comprehension": """
        found = [t for row in x if (t := row.shape)]
        return found
        """,
    "augmented assignment": """
        t = n
        t += x.sum()
        if t > 3:  # expect: CG101
            return t
        """,
    "augmented item": """
        d = {"a": 0}
        d["a"] += x.sum()
        return d["a"].item()  # expect: CG102
        """,
    "chained assignment": """
        a = b = x.sum()
        return a.item() + b.item()  # expect: CG102
        """,
    "swap": """
        a, b = x.sum(), n
        a, b = b, a
        if a > 3:
            return int(b)  # expect: CG103
        """,
    "conditional expression": """
        t = x.sum() if flag else n
        return x if t > 3 else -x  # expect: CG101
        """,
    "global": """
        global COUNT
        COUNT = n
        if COUNT > 3:
            return x
        """,
    "delete": """
        t = x.sum()
        del t
        return x
        """,
    "assert narrows": """
        assert isinstance(n, int)
        if n > 3:
            return x
        """,
    "semicolons": """
        t = x.sum(); t.item()  # expect: CG102
        """,
    "line continuation": """
        if flag and \\
                x.sum() > 0:  # expect: CG101
            return x
        """,
    "condition over several lines": """
        if (
            flag
            and x.sum() > 0  # expect: CG101
        ):
            return x
        """,
    "call over several lines": """
        return torch.add(
            x,
            x.max().item(),  # expect: CG102
        )
        """,
    "chain over several lines": """
        return (
            x.float()  # expect: CG102
            .sum()
            .item()
        )
        """,
    "except star": """
        try:
            t = x.sum()
        except* ValueError:
            t = x.max()
        return t.item()  # expect: CG102
        """,
}


GAPS = {"match on a dict": "mapping patterns do not bind the values of a known dict"}


@pytest.mark.parametrize("body", cases(BODIES, GAPS))
def test_statements(check, body):
    if "except*" in body:
        pytest.importorskip("tomllib", reason="syntax of Python 3.11")
    verify_forward(check, body)
