"""Every disguise of a truth value, and of a host use, of a tensor: what it does under CUDA graph capture.

Names in the snippets: `t` the tensor in question, `u` an equal clone of it, `w` another with another value, `x` 8 floats
on the GPU, `y` an empty buffer there, `ts` a list [u, w, t], `vec` a 3-element GPU tensor of the kind's dtype.
"""

from __future__ import annotations

import functools

from _harness import DEVICE, main, measure_snippet

TITLE = "truth values and host uses of a tensor under torch.cuda.graph"
FRESH_PROCESS = False

SNIPPETS = {
    # statements that ask for a truth value
    "if": "if t:\n    r = 1",
    "if not": "if not t:\n    r = 1",
    "elif": "if x is None:\n    r = 1\nelif t:\n    r = 2",
    "while": "while t:\n    r = 1\n    break",
    "assert": "assert t or True",
    "assert plain": "try:\n    assert t\nexcept AssertionError:\n    r = 'assertion'",
    "ternary": "r = 1 if t else 2",
    "ternary of tensors": "r = x if t else y",
    "if comparison": "if t > 0:\n    r = 1",
    "if ==": "if t == 1:\n    r = 1",
    "comparison kept": "r = t > 0",
    "and, first": "r = t and x",
    "and, last": "r = True and t",
    "or, first": "r = t or x",
    "or, last": "r = None or t",
    "or, after truthy host": "r = 5 or t",
    "not": "r = not t",
    "chained comparison": "r = 0 <= t <= 1",
    "chained comparison, host first": "r = 0 <= 1 <= t",
    "chained comparison, host first false": "r = 1 <= 0 <= t",
    "comprehension condition": "r = [k for k in (1, 2) if t]",
    "generator condition": "r = list(k for k in (1, 2) if t)",
    "match guard": "match 3:\n    case 3 if t:\n        r = 1\n    case _:\n        r = 2",
    "match value pattern": "match t:\n    case 1:\n        r = 1\n    case _:\n        r = 2",
    "match value pattern in tuple": "match (t, 1):\n    case (1, 1):\n        r = 1\n    case _:\n        r = 2",
    "match True pattern": "match t:\n    case True:\n        r = 1\n    case _:\n        r = 2",
    "match capture": "match t:\n    case v:\n        r = 1",
    "match class pattern": "match t:\n    case torch.Tensor():\n        r = 1",
    "if is None": "r = 1 if t is None else 2",
    "if isinstance": "r = 1 if isinstance(t, torch.Tensor) else 2",
    # membership
    "number in tensor": "r = 1 in t",
    "tensor in tensor": "r = t in vec",
    "number in vector": "r = 1 in vec",
    "tensor in list, identical object first": "r = t in [t, w]",
    "tensor in list, other objects": "r = t in [w, u]",
    "number in list of tensors": "r = 1 in [w, u]",
    "tensor in tuple of numbers": "r = t in (0, 1)",
    "tensor not in list": "r = t not in [w]",
    "tensor in set (identity hash)": "r = t in {w, u}",
    "tensor in dict": "r = t in {t: 1}",
    "tensor as dict key": "d = {t: 1}\nr = d[t]",
    "hash": "r = hash(t) == hash(t)",
    "tensor in dict values": "r = t in {'a': w}.values()",
    # builtins
    "any of tensors": "r = any([t, u])",
    "all of tensors": "r = all([t, u])",
    "any over vector": "r = any(vec)",
    "all over vector": "r = all(vec)",
    "any generator of comparisons": "r = any(v > 0 for v in ts)",
    "max of two": "r = max(t, w)",
    "min of two": "r = min(t, w)",
    "max of number and tensor": "r = max(0, t)",
    "max of one-element list": "r = max([t])",
    "max over vector": "r = max(vec)",
    "max key": "r = max([t, w], key=lambda v: 1)",
    "sorted": "r = sorted(ts)",
    "sorted of one": "r = sorted([t])",
    "sort": "ts.sort()",
    "sorted by host key": "r = sorted(ts, key=id) is None",
    "sum of list": "r = sum(ts)",
    "sum over vector": "r = sum(vec)",
    "filter None": "r = list(filter(None, [t, w]))",
    "filter bool": "r = list(filter(bool, [t, w]))",
    "filter made, never read": "r = filter(None, [t, w]) is None",
    "map bool": "r = list(map(bool, ts))",
    "map int": "r = list(map(int, ts))",
    "itertools.takewhile": "r = list(itertools.takewhile(lambda v: v, ts))",
    "itertools.compress": "r = list(itertools.compress([1, 2, 3], ts))",
    "bool": "r = bool(t)",
    "operator.not_": "r = operator.not_(t)",
    "operator.truth": "r = operator.truth(t)",
    "operator.contains": "r = operator.contains([w], t)",
    # lists and equality of containers
    "list.index": "r = [w, t].index(t)",
    "list.index first": "r = [t, w].index(t)",
    "list.count": "r = [w, u].count(t)",
    "list.remove": "l = [w, t]\nl.remove(t)",
    "list ==": "r = [t] == [u]",
    "list == same object": "r = [t] == [t]",
    "tuple ==": "r = (t, 1) == (u, 1)",
    "tuple == other length": "r = (t, 1) == (u,)",
    "tuple <": "r = (1, t) < (1, w)",
    "dict ==": "r = {'a': t} == {'a': u}",
    "dataclass ==": "D = dataclasses.make_dataclass('D', ['a'])\nr = D(t) == D(u)",
    "dataclass == same object": "D = dataclasses.make_dataclass('D', ['a'])\nd = D(t)\nr = d == d",
    "tensor ==": "r = t == u",
    "tensor == None": "r = t == None",
    "tensor != None as condition": "r = 1 if t != None else 2",
    # torch functions that answer on the host
    "is_nonzero": "r = t.is_nonzero()",
    "torch.is_nonzero": "r = torch.is_nonzero(t)",
    "torch.equal": "r = torch.equal(t, u)",
    "Tensor.equal": "r = t.equal(w)",
    "torch.equal other shape": "r = torch.equal(t, x)",
    "torch.equal same object": "r = torch.equal(t, t)",
    "torch.allclose": "r = torch.allclose(x, x + 1)",
    "torch.isclose": "r = torch.isclose(x, x)",
    "torch._check": "torch._check(t)",
    "torch._check lambda": "torch._check(t, lambda: 'no')",
    "torch._assert": "torch._assert(t, 'no')",
    "torch._assert_async": "torch._assert_async(vec.sum() >= 0)",
    "torch.testing.assert_close": "torch.testing.assert_close(t, u)",
    "torch.any kept": "r = torch.any(vec)",
    "if torch.any": "r = 1 if torch.any(vec) else 2",
    "if (x > 0).all()": "r = 1 if (x > 0).all() else 2",
    "torch.where": "r = torch.where(t > 0, x, x)",
    # integers and sizes
    "slice stop": "r = x[:t]",
    "slice start": "r = x[t:]",
    "list slice": "r = [1, 2, 3][:t]",
    "list index": "r = [1, 2, 3][t]",
    "tensor index": "r = x[t]",
    "range": "r = list(range(t))",
    "list times": "r = [0] * t",
    "number times": "r = 2 * t",
    "str times": "r = 'ab' * t",
    "torch.zeros size": "r = torch.zeros(t, device=x.device)",
    "view size": "r = x.view(t, -1)",
    "reshape size": "r = x.reshape(-1, t)",
    "expand size": "r = x.expand(t, 8)",
    "arange end": "r = torch.arange(t, device=x.device)",
    "narrow length": "r = x.narrow(0, 0, t)",
    "split size": "r = x.split(t)",
    "divmod": "r = divmod(t, 2)",
    "pow": "r = 2 ** t",
    "round": "r = round(t)",
    "abs": "r = abs(t)",
    "len": "r = len(vec)",
    "unpack vector": "a, b, c = vec\nr = a",
    "iterate vector": "for v in vec:\n    r = v + 1",
    "enumerate, star": "r = [*vec]",
    # text
    "f-string": "r = f'{t}'",
    "f-string repr": "r = f'{t!r}'",
    "f-string spec": "r = f'{t:.2f}'",
    "f-string of shape": "r = f'{t.shape} {t.dtype} {t.device}'",
    "f-string of vector": "r = f'{vec}'",
    "str": "r = str(t)",
    "repr": "r = repr(t)",
    "str.format": "r = '{}'.format(t)",
    "str.format spec": "r = '{:.2f}'.format(t)",
    "percent s": "r = '%s' % t",
    "percent d": "r = '%d' % t",
    "percent f": "r = '%.2f' % t",
    "print": "print(t, file=io.StringIO())",
    "print vector": "print(vec, file=io.StringIO())",
    "logging, shown": "log = logging.getLogger('a'); log.propagate = False; log.handlers = [logging.StreamHandler(io.StringIO())]\n"
    "log.setLevel('INFO'); log.info('%s', t)\nr = log.handlers[0].stream.getvalue()",
    "logging, level off": "log = logging.getLogger('b'); log.setLevel('ERROR'); log.info('%s', t)",
    "logging, level off, f-string": "log = logging.getLogger('b'); log.setLevel('ERROR'); log.info(f'{t}')",
    "warnings.warn": "import warnings; warnings.catch_warnings(record=True).__enter__(); warnings.warn(f'{t}')",
    "exception message": "try:\n    raise ValueError(f'bad {t}')\nexcept ValueError:\n    pass",
}

KINDS = {
    "bool 0-dim": lambda torch: (torch.tensor(True, device=DEVICE), torch.tensor(False, device=DEVICE)),
    "int 0-dim": lambda torch: (torch.tensor(1, device=DEVICE), torch.tensor(0, device=DEVICE)),
    "float 0-dim": lambda torch: (torch.tensor(1.0, device=DEVICE), torch.tensor(0.0, device=DEVICE)),
    "one element": lambda torch: (torch.ones(1, device=DEVICE), torch.zeros(1, device=DEVICE)),
    "empty": lambda torch: (torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE)),
    "cpu int 0-dim": lambda torch: (torch.tensor(1), torch.tensor(0)),
    "parameter": lambda torch: (torch.nn.Parameter(torch.tensor(1.0, device=DEVICE)), torch.tensor(0.0, device=DEVICE)),
}
PARAMETER_ONLY = ("if", "bool", "f-string", "max of two", "slice stop", "tensor in list, other objects")


def environment(kind: str) -> dict[str, object]:
    import torch

    t, w = KINDS[kind](torch)
    u = t.detach().clone()
    vec = torch.stack([u, w, u]).reshape(-1)[:3] if t.numel() else torch.ones(3, device=DEVICE)
    return {
        "t": t,
        "u": u,
        "w": w,
        "ts": [u, w, t],
        "vec": vec,
        "x": torch.arange(8, device=DEVICE, dtype=torch.float32),
        "y": torch.zeros(8, device=DEVICE),
    }


def cases():
    out = {}
    for name, code in SNIPPETS.items():
        for kind in KINDS:
            if kind == "parameter" and name not in PARAMETER_ONLY:
                continue
            out[f"{name} | {kind}"] = functools.partial(measure_snippet, code, functools.partial(environment, kind))
    return out


main(globals())
