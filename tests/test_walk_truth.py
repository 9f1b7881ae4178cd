"""Every disguise of a truth value of a device tensor, and what looks like one but was measured to be none.

What a GPU does with each is in tests/gpu/results/truth_value.json.
"""

from __future__ import annotations

import pytest

from expectations import cases, verify_forward

ASKED = {
    "if": "if x:  # expect: CG101\n    return 1",
    "if not": "if not x:  # expect: CG101\n    return 1",
    "if comparison": "if x.sum() > 0:  # expect: CG101\n    return 1",
    "if equal": "if x[0] == 1:  # expect: CG101\n    return 1",
    "if torch.any": "if torch.any(x > 1):  # expect: CG101\n    return 1",
    "if all()": "if (x > 0).all():  # expect: CG101\n    return 1",
    "int variable": "t = x.max() + 1\nif n > t:  # expect: CG101\n    return 1",
    "elif": "if flag:\n    return 1\nelif x.sum():  # expect: CG101\n    return 2",
    "while": "while x.sum() > n:  # expect: CG101\n    x = x / 2",
    "while not": "while not x.all():  # expect: CG101\n    x = x + 1",
    "assert": "assert x.sum() > 0, 'text'  # expect: CG101",
    "ternary": "return 1 if x.sum() > 0 else 2  # expect: CG101",
    "ternary in a call": "return torch.add(x, 1 if x.sum() > 0 else 2)  # expect: CG101",
    "and, first operand": "return x.sum() and n  # expect: CG101",
    "and in a condition": "if flag and x.sum() > 0:  # expect: CG101\n    return 1",
    "or, first operand": "return x.sum() or n  # expect: CG101",
    "or as a default": "y = x or torch.zeros(3)  # expect: CG101\nreturn y",
    "or, middle operand": "return flag or x.sum() or n  # expect: CG101",
    "not": "return not x.sum()  # expect: CG101",
    "chained comparison": "return 0 <= x.sum() <= 1  # expect: CG101",
    "list comprehension": "return [i for i in range(n) if x.sum() > i]  # expect: CG101",
    "set comprehension": "return {i for i in range(n) if x.sum() > i}  # expect: CG101",
    "dict comprehension": "return {i: 1 for i in range(n) if x.sum() > i}  # expect: CG101",
    "generator": "return list(i for i in range(n) if x.sum() > i)  # expect: CG101",
    "match guard": "match n:\n    case 3 if x.sum() > 0:  # expect: CG101\n        return 1",
    "match value": "match x.sum():\n    case 1:  # expect: CG101\n        return 1",
    "match value in a sequence": "match (x.sum(), n):\n    case (1, 1):  # expect: CG101\n        return 1",
    "number in tensor": "return 1 in x  # expect: CG101",
    "number not in tensor": "return n not in x  # expect: CG101",
    "tensor in tensor": "return x[0] in x  # expect: CG101",
    "tensor in tuple of numbers": "return x.sum() in (0, 1)  # expect: CG101",
    "tensor in list of others": "y = x + 1\nreturn x in [y, y]  # expect: CG101",
    "number in list of tensors": "return 1 in [x, x]  # expect: CG101",
    "tensor in dict values": "return x in {'a': x + 1}.values()  # expect: CG101",
    "any of a list": "return any([x.sum(), x.max()])  # expect: CG101",
    "all of a tuple": "return all((x.sum(), x.max()))  # expect: CG101",
    "any over a tensor": "return any(x)  # expect: CG101",
    "all over a tensor": "return all(x > 0)  # expect: CG101",
    "any of a generator": "return any(v > 0 for v in x)  # expect: CG101",
    "all of a generator": "return all(v.sum() > 0 for v in (x, x))  # expect: CG101",
    "max of two": "return max(x.sum(), x.max())  # expect: CG101",
    "min of two": "return min(x.sum(), x.max())  # expect: CG101",
    "max of number and tensor": "return max(0, x.sum())  # expect: CG101",
    "max over a tensor": "return max(x)  # expect: CG101",
    "max over a generator": "return max(v.sum() for v in x)  # expect: CG101",
    "max with default": "return max([v.sum() for v in x], default=0)  # expect: CG101",
    "max with a key of tensors": "return max([1, 2], key=lambda i: x[i])  # expect: CG101",
    "sorted": "return sorted([x.sum(), x.max()])  # expect: CG101",
    "sorted over a tensor": "return sorted(x)  # expect: CG101",
    "sorted with a key of tensors": "return sorted([0, 1], key=lambda i: x[i])  # expect: CG101",
    "list.sort": "ts = [x.sum(), x.max()]\nts.sort()  # expect: CG101",
    "filter None": "return list(filter(None, [x.sum(), x.max()]))  # expect: CG101",
    "filter with a function": "return list(filter(lambda v: v > 0, [x.sum(), x.max()]))  # expect: CG101",
    "bool": "return bool(x.sum())  # expect: CG101",
    "bool in a condition": "if bool(x.sum() > 0):  # expect: CG101\n    return 1",
    "map bool": "return list(map(bool, [x.sum(), x.max()]))  # expect: CG101",
    "operator.not_": "import operator\nreturn operator.not_(x.sum())  # expect: CG101",
    "operator.truth": "import operator\nreturn operator.truth(x.sum())  # expect: CG101",
    "operator.contains": "import operator\nreturn operator.contains([x + 1], x)  # expect: CG101",
    "itertools.takewhile": "import itertools\n"
    "return list(itertools.takewhile(lambda v: v > 0, [x.sum()]))  # expect: CG101",
    "itertools.compress": "import itertools\n"
    "return list(itertools.compress([1, 2], [x.sum(), x.max()]))  # expect: CG101",
    "list.index": "return [x + 1, x].index(x)  # expect: CG101",
    "list.count": "return [x + 1, x + 2].count(x)  # expect: CG101",
    "list.remove": "ts = [x + 1, x]\nts.remove(x)  # expect: CG101",
    "list ==": "return [x] == [x + 1]  # expect: CG101",
    "tuple == in a condition": "if (x, 1) == (x + 1, 1):  # expect: CG101\n    return 1",
    "tuple !=": "return (x, 1) != (x + 1, 1)  # expect: CG101",
    "tuple <": "return (1, x) < (1, x + 1)  # expect: CG101",
    "dict ==": "return {'a': x} == {'a': x + 1}  # expect: CG101",
    "torch._assert": "torch._assert(x.sum() > 0, 'text')  # expect: CG101",
    "walrus": "if (total := x.sum()) > 0:  # expect: CG101\n    return total",
    "walrus alone": "if total := x.sum():  # expect: CG101\n    return total",
    "lambda": "check = lambda v: 1 if v.sum() > 0 else 2  # expect: CG101\nreturn check(x)",
    "comparison of two tensors": "if x.sum() < x.max():  # expect: CG101\n    return 1",
    "not equal": "if x.sum() != 0:  # expect: CG101\n    return 1",
    "negated parts": "if not (flag and not x.any()):  # expect: CG101\n    return 1",
    "bitwise of comparisons": "if (x.sum() > 0) & (x.max() < 1):  # expect: CG101\n    return 1",
    "after arithmetic": "t = 2 * x.mean() - 1\nu = abs(-t)\nif u:  # expect: CG101\n    return 1",
    "condition of a conditional operand": "return x + (1 if x.any() else 0)  # expect: CG101",
    "in an f-string": "return f'{1 if x.any() else 0}'  # expect: CG101",
    "in a keyword argument": "return torch.add(x, 1, alpha=1 if x.any() else 2)  # expect: CG101",
    "in a subscript": "return x[0 if x.any() else 1]  # expect: CG101",
    "in a default": "def g(v=1 if x.any() else 2):  # expect: CG101\n    return v\nreturn g()",
    "in a return of a nested tuple": "return x, (n, not x.any())  # expect: CG101",
    "in an augmented assignment": "x += 1 if x.any() else 2  # expect: CG101\nreturn x",
    "in a star argument": "return torch.stack(*([x] if x.any() else [x]))  # expect: CG101",
    "in a starred list": "return [*([x] if x.any() else [])]  # expect: CG101",
    "in a yield": "yield 1 if x.any() else 2  # expect: CG101",
    "in a delete's neighbour": "y = x\ndel y\nif x.any():  # expect: CG101\n    return 1",
}

NOT_ASKED = {
    "comparison kept": "return x > 0",
    "and, last operand": "return flag and x",
    "or, last operand": "return None or x",
    "or after something true": "return 5 or x",
    "and after something false": "return 0 and x.sum() and n",
    "chained comparison, decided before": "return 1 <= 0 <= x.sum()",
    "chained comparison, tensor last": "return 0 <= n <= x.sum()",
    "match True": "match x:\n    case True:\n        return 1",
    "match None": "match x:\n    case None:\n        return 1",
    "match capture": "match x:\n    case v:\n        return v",
    "match wildcard": "match x:\n    case _:\n        return 1",
    "match class": "match x:\n    case torch.Tensor():\n        return 1",
    "is None": "return 1 if x is None else 2",
    "is not None": "if x is not None:\n    return 1",
    "isinstance": "return 1 if isinstance(x, torch.Tensor) else 2",
    "== None": "return 1 if x == None else 2",
    "!= None": "if x != None:\n    return 1",
    "same object first in a list": "return x in [x, x + 1]",
    "tensor in a dict": "return x in {x: 1}",
    "tensor in a set": "return x in {x, x + 1}",
    "tensor as a key": "d = {x: 1}\nreturn d[x]",
    "hash": "return hash(x) == hash(x)",
    "id": "return id(x) == id(x)",
    "max of one": "return max([x])",
    "min of one": "return min((x,))",
    "max with a host key": "return max([x, x + 1], key=lambda v: v.dim())",
    "max with a constant key": "return max([x, x + 1], key=lambda v: 1)",
    "sorted of one": "return sorted([x])",
    "sorted by a host key": "return sorted([x, x + 1], key=id)",
    "sorted by shape": "return sorted([x, x + 1], key=lambda v: v.shape[0])",
    "list.sort by a host key": "ts = [x, x + 1]\nts.sort(key=id)",
    "list.index of the first": "return [x, x + 1].index(x)",
    "list == same object": "return [x] == [x]",
    "sum": "return sum([x, x + 1])",
    "sum over a tensor": "return sum(x)",
    "filter that is never read": "return filter(None, [x, x + 1]) is None",
    "torch._assert_async": "torch._assert_async(x.sum() > 0)",
    "torch.where": "return torch.where(x > 0, x, x + 1)",
    "torch.any kept": "return torch.any(x)",
    "torch.isclose": "return torch.isclose(x, x)",
    "logical": "return torch.logical_or(x > 0, x < 1)",
    "bitwise": "return (x > 0) | (x < 1)",
    "truth of a shape": "if x.shape:\n    return 1",
    "truth of a size": "if x.size(0) > n:\n    return 1",
    "numel": "if x.numel() == 0:\n    return 1",
    "len": "if len(x) > 1:\n    return 1",
    "dim": "while x.dim() < 3:\n    x = x[None]\nreturn x",
    "ndim": "if x.ndim == 3 and x.shape[1] > 1:\n    return 1",
    "dtype": "if x.dtype == torch.float16 or x.dtype in (torch.float32, torch.bfloat16):\n    return 1",
    "is_floating_point": "if x.is_floating_point():\n    return 1",
    "is_contiguous": "if not x.is_contiguous():\n    x = x.contiguous()\nreturn x",
    "device": "if x.device == torch.device('cuda') or x.is_cuda:\n    return 1",
    "requires_grad": "if x.requires_grad and torch.is_grad_enabled():\n    return 1",
    "data_ptr": "if x.data_ptr() % 16 == 0:\n    return 1",
    "stride": "if x.stride(-1) != 1:\n    return 1",
    "truth of a list of tensors": "ts = [x]\nif ts:\n    return 1",
    "truth of a tuple of tensors": "if (x, x):\n    return 1",
    "truth of a dict of tensors": "if {'a': x}:\n    return 1",
    "truth of a split": "if x.split(2):\n    return 1",
    "length of a split": "if len(x.split(2)) > 1:\n    return 1",
    "0-dim tensor on the CPU": "t = torch.tensor(1)\nif t > 0:\n    return 1",
    "vector on the CPU": "t = torch.arange(4, device='cpu')\nif t.sum() > n:\n    return 1",
    "numpy": "import numpy as np\nt = np.arange(4)\nif t.sum() > n:\n    return 1",
    "raised message": "if n > 3:\n    raise ValueError('many')\nreturn x",
    "comparison of shapes": "if x.shape == (x + 1).shape:\n    return 1",
    "any over sizes": "if any(s > 1 for s in x.shape):\n    return 1",
    "max of sizes": "return max(x.shape[0], x.size(1))",
    "sorted sizes": "return sorted(x.shape)",
    "truth of a callable": "f = x.sum\nif f:\n    return 1",
    "truth of a module": "m = nn.Linear(3, 3)\nif m:\n    return m(x)",
    "truth of a string": "if str(x.dtype):\n    return 1",
    "empty generator of shapes": "return all(v.dim() == 2 for v in (x, x))",
    "zip of shapes": "return any(a != b for a, b in zip(x.shape, x.shape))",
    "inverted": "return ~(x > 0)",
    "unused lambda": "check = lambda v: 1 if v.sum() > 0 else 2\nreturn x",
    "unused nested function": "def check():\n    if x.sum() > 0:\n        return 1\nreturn x",
}


OPERATOR = "functions of `operator` do what the operators do"
ITERTOOLS = "functions of itertools ask their predicate, or the selectors, for its truth"
PARTS = "comparing containers compares their elements, and asks for the truth of each comparison"
SAME = "of tensors whose abstract values are equal, nothing tells whether they are one object"
ASKED_GAPS = {
    "torch._assert": "torch._assert asserts on the host",
}
NOT_ASKED_GAPS = {
    "list.index of the first": SAME,
    "filter that is never read": "filter is lazy",
}


@pytest.mark.parametrize("body", cases(ASKED, ASKED_GAPS))
def test_a_truth_value_is_asked_for(check, body):
    verify_forward(check, body)


@pytest.mark.parametrize("body", cases(NOT_ASKED, NOT_ASKED_GAPS))
def test_no_truth_value_is_asked_for(check, body):
    verify_forward(check, body)


def test_the_column_and_the_text_are_those_of_the_asked_expression(check):
    report = verify_forward(check, "if flag and x.sum() > 0:  # expect: CG101\n    return 1")
    (finding,) = report.findings
    line = "        if flag and x.sum() > 0:"
    assert line[finding.column - 1 : finding.end_column - 1] == "x.sum() > 0"
    assert "`x.sum() > 0`" in finding.message


def test_the_message_tells_where_the_value_comes_from(check):
    report = verify_forward(check, "longest = x.max() + 1\nif longest > n:  # expect: CG101\n    return 1")
    assert "`longest` is `x.max() + 1` (line 8)" in report.findings[0].message
