"""Reads of a device tensor on the host: explicit calls (CG102), Python protocols (CG103), and what does not wait.

What a GPU does with each is in tests/gpu/results/reads.json, numbers.json and truth_value.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from expectations import cases, verify, verify_forward

EXPLICIT = {
    "item": "return x.sum().item()  # expect: CG102",
    "item of an element": "return x[0, 0].item()  # expect: CG102",
    "tolist": "return x.tolist()  # expect: CG102",
    "cpu": "return x.cpu()  # expect: CG102",
    "detach cpu": "return x.detach().cpu()  # expect: CG102",
    "cpu then numpy": "return x.cpu().numpy()  # expect: CG102",
    "numpy(force)": "return x.numpy(force=True)  # expect: CG102",
    "to('cpu')": "return x.to('cpu')  # expect: CG102",
    "to(device='cpu')": "return x.to(device='cpu')  # expect: CG102",
    "to(torch.device('cpu'))": "return x.to(torch.device('cpu'))  # expect: CG102",
    "to(device=torch.device('cpu'))": "return x.to(device=torch.device('cpu'))  # expect: CG102",
    "to a device variable": "place = torch.device('cpu')\nreturn x.to(place)  # expect: CG102",
    "to cpu and dtype": "return x.to('cpu', torch.float16)  # expect: CG102",
    "to a CPU tensor": "c = torch.zeros(4)\nreturn x.to(c)  # expect: CG102",
    "to the device of a CPU tensor": "c = torch.zeros(4)\nreturn x.to(c.device)  # expect: CG102",
    "type": "return x.type(torch.FloatTensor)  # expect: CG102",
    "type by name": "return x.type('torch.FloatTensor')  # expect: CG102",
    "type_as a CPU tensor": "return x.type_as(torch.zeros(4))  # expect: CG102",
    "is_nonzero": "return x.sum().is_nonzero()  # expect: CG102",
    "torch.is_nonzero": "return torch.is_nonzero(x.sum())  # expect: CG102",
    "torch.equal": "return torch.equal(x, x + 1)  # expect: CG102",
    "Tensor.equal": "return x.equal(x + 1)  # expect: CG102",
    "torch.allclose": "return torch.allclose(x, x + 1)  # expect: CG102",
    "Tensor.allclose": "return x.allclose(x + 1)  # expect: CG102",
    "copy into a CPU tensor": "c = torch.zeros(4)\nc.copy_(x)  # expect: CG102",
    "copy into a CPU tensor, non_blocking": "c = torch.zeros(4)\nc.copy_(x, non_blocking=True)  # expect: CG102",
    "copy into pinned memory": "c = torch.zeros(4, pin_memory=True)\nc.copy_(x)  # expect: CG102",
    "store into a CPU tensor": "c = torch.zeros(4)\nc[:] = x  # expect: CG102",
    "store an element into a CPU tensor": "c = torch.zeros(4)\nc[0] = x.sum()  # expect: CG102",
    "as_tensor on the CPU": "return torch.as_tensor(x, device='cpu')  # expect: CG102",
    "tensor on the CPU": "return torch.tensor(x, device='cpu')  # expect: CG102",
    "unbound method": "return torch.Tensor.item(x.sum())  # expect: CG102",
    "method kept": "read = x.sum().item\nreturn read()  # expect: CG102",
    "through getattr": "return getattr(x.sum(), 'item')()  # expect: CG102",
    "in a comprehension": "return [v.item() for v in x]  # expect: CG102",
    "one read, then host values": "m = x.max().item()  # expect: CG102\nif m > 1:\n    return int(m)",
    "read of an argmax": "return x.argmax().cpu()  # expect: CG102",
    "max of a read list": "return max(x.tolist())  # expect: CG102",
    "torch.save": "import io\ntorch.save(x, io.BytesIO())  # expect: CG102",
    "pickle.dumps": "import pickle\nreturn pickle.dumps(x)  # expect: CG102",
}

IMPLICIT = {
    "int": "return int(x.sum())  # expect: CG103",
    "float": "return float(x.sum())  # expect: CG103",
    "complex": "return complex(x.sum())  # expect: CG103",
    "slice by fractions, which no code can": "t = x.sum() / 2\nreturn x[:t]",
    "index by a row of nonzero": "rows = x.nonzero_static(size=4)\nreturn [x[row] for row in rows]",
    "what to write to, by name": "return torch.arange(0, 8, out=x)",
    "sizes of fractions, which no code can": "t = x.float()\nreturn x.new_ones(t[:2])",
    "size of an interpolation, named by the line that a traceback names": (
        "t = x.argmax()\nreturn F.interpolate(  # expect: CG103\n    x,\n    size=t,\n)"
    ),
    "end of a range by name": "return torch.arange(start=0, end=x.argmax(), device=x.device)  # expect: CG103",
    "step of a range by name": "return torch.arange(0, 8, step=x.argmax(), device=x.device)  # expect: CG103",
    "size by name": "return torch.zeros(size=(x.argmax(), 2), device=x.device)  # expect: CG103",
    "fill value by name": "return torch.full(size=(2,), fill_value=x.sum(), device=x.device)  # expect: CG103",
    "steps by name": "return torch.linspace(0, 1, steps=x.argmax(), device=x.device)  # expect: CG103",
    "index by an item of a row of nonzero": (
        "rows = x.nonzero_static(size=4)\nout = x\nfor row in rows:\n    out = out + x[row[0]]  # expect: CG103\nreturn out"
    ),
    "index by a row's number in a vector": (
        "hits = x.ravel().long()\nout = x\nfor hit in hits:\n    out = out + x[hit]  # expect: CG103\nreturn out"
    ),
    "slice stop": "t = x.argmax()\nreturn x[:t]  # expect: CG103",
    "slice start": "t = x.argmax()\nreturn x[t:]  # expect: CG103",
    "slice in a tuple": "t = x.argmax()\nreturn x[:, 1:t]  # expect: CG103",
    "slice of a list": "t = x.argmax()\nreturn [1, 2, 3][:t]  # expect: CG103",
    "index of a list": "t = x.argmax()\nreturn [1, 2, 3][t]  # expect: CG103",
    "index of a tuple": "t = x.argmax()\nreturn (1, 2, 3)[t]  # expect: CG103",
    "slice of a store": "t = x.argmax()\nx[:t] = 0  # expect: CG103",
    "range": "for i in range(x.argmax()):  # expect: CG103\n    x = x + i",
    "operator.index": "import operator\nreturn operator.index(x.argmax())  # expect: CG103",
    "__index__": "return x.argmax().__index__()  # expect: CG103",
    "math.floor": "import math\nreturn math.floor(x.sum())  # expect: CG103",
    "math.sqrt": "import math\nreturn math.sqrt(x.sum())  # expect: CG103",
    "math.isnan": "import math\nreturn math.isnan(x.sum())  # expect: CG103",
    "from math import": "from math import ceil\nreturn ceil(x.sum())  # expect: CG103",
    "hex": "return hex(x.argmax())  # expect: CG103",
    "bin": "return bin(x.argmax())  # expect: CG103",
    "list times": "return [0] * x.argmax()  # expect: CG103",
    "str times": "return 'ab' * x.argmax()  # expect: CG103",
    "size of zeros": "return torch.zeros(x.argmax(), device=x.device)  # expect: CG103",
    "view": "return x.view(x.argmax(), -1)  # expect: CG103",
    "reshape": "return x.reshape(-1, x.argmax())  # expect: CG103",
    "expand": "return x.expand(x.argmax(), 8)  # expect: CG103",
    "arange": "return torch.arange(x.argmax(), device=x.device)  # expect: CG103",
    "narrow": "return x.narrow(0, 0, x.argmax())  # expect: CG103",
    "split": "return x.split(x.argmax())  # expect: CG103",
    "full": "return torch.full((2,), x.sum(), device=x.device)  # expect: CG103",
    "map int": "return list(map(int, x))  # expect: CG103",
    "int in a comprehension": "return [int(v) for v in x]  # expect: CG103",
    "f-string": "return f'{x.sum()}'  # expect: CG103",
    "f-string repr": "return f'{x!r}'  # expect: CG103",
    "f-string spec": "return f'{x.sum():.2f}'  # expect: CG103",
    "str": "return str(x)  # expect: CG103",
    "repr": "return repr(x)  # expect: CG103",
    "format method": "return '{}'.format(x)  # expect: CG103",
    "format function": "return format(x.sum(), '.2f')  # expect: CG103",
    "percent": "return '%s' % x  # expect: CG103",
    "percent tuple": "return '%d %s' % (n, x.sum())  # expect: CG103",
    "print": "print(x)  # expect: CG103",
    "print among others": "print('x', n, x.shape, x)  # expect: CG103",
    "warnings.warn": "import warnings\nwarnings.warn(f'{x}')  # expect: CG103",
    "logging f-string": "import logging\nlogging.getLogger('a').info(f'{x}')  # expect: CG103",
    "tensor of tensors": "return torch.tensor([x.sum(), x.max()])  # expect: CG103",
}

NO_READ = {
    "shape": "return x.shape[0] + x.size(1) + x.numel() + x.dim() + x.stride(0) + x.storage_offset()",
    "int of a shape": "return int(x.shape[0]) + float(x.size(0)) + int(n / 2)",
    "to cuda": "return x.to('cuda')",
    "to its own device": "return x.to(x.device)",
    "to dtype": "return x.to(torch.float16).half().float().type(torch.float16).to(dtype=torch.long)",
    "to like another": "y = x + 1\nreturn x.to(y).type_as(y)",
    "type as a question": "return x.type()",
    "non_blocking to the CPU": "return x.to('cpu', non_blocking=True)",
    "non_blocking to the CPU, by position": "return x.to('cpu', torch.float32, True)",
    "copy into pinned memory, non_blocking": "c = torch.zeros(4, pin_memory=True)\nc.copy_(x, non_blocking=True)",
    "copy into pinned memory, by position": "c = torch.zeros(4, pin_memory=True)\nc.copy_(x, True)",
    "copy between device tensors": "y = torch.empty_like(x)\ny.copy_(x)\nreturn y",
    "item of a CPU tensor": "return torch.zeros(()).item()",
    "tolist of a CPU tensor": "return torch.arange(3).tolist()",
    "numpy of a CPU tensor": "return torch.zeros(4).numpy()",
    "cpu of a CPU tensor": "return torch.zeros(4).cpu()",
    "int of a CPU tensor": "return int(torch.tensor(3))",
    "tolist of a shape": "return list(x.shape)",
    "print of a shape": "print(x.shape, x.dtype, x.device, n)",
    "f-string of a shape": "return f'{x.shape} {x.dtype} {x.device} {n}'",
    "abs and pow": "return abs(x) + 2**x + x // 1 + 2 * x",
    "clamp": "return x.clamp(max=x.sum())",
    "stack": "return torch.stack([x.sum(), x.max()])",
    "index by a tensor": "return x[x.argmax(dim=0)]",
    "deepcopy": "import copy\nreturn copy.deepcopy(x)",
    "iterate": "total = 0\nfor v in x:\n    total = total + v\nreturn total",
    "unpack": "a, b, c = x\nreturn [a, *x]",
    "len": "return [0] * len(x)",
    "enumerate": "return {i: v for i, v in enumerate(x)}",
    "new_tensor on the CPU": "return x.new_zeros(3, device='cpu')",
    "tensor of a tensor": "return torch.as_tensor(x)",
    "logger with shapes": "import logging\nlogging.getLogger('a').info('%s', x.shape)",
    "type name": "return type(x).__name__",
    "memory questions": "return torch.cuda.memory_allocated() + torch.cuda.current_device()",
    "host dict": "d = {'a': 1}\nreturn d.get('a') + int(d['a'])",
    "item of a numpy array": "import numpy as np\nreturn np.arange(3).sum().item()",
    "items of a dict": "return [k for k, v in {'a': x}.items()]",
}


DEVICE = "torch.device(...) forgets its argument"
EXPLICIT_GAPS = {
    "torch.save": "serialising a tensor reads it",
}
INDEX = "an index or length of a host sequence calls __index__"
SIZE = "a size that is a tensor is read"
TEXT = "text made of a tensor reads it"
IMPLICIT_GAPS = {
    "__index__": INDEX,
}


@pytest.mark.parametrize("body", cases(EXPLICIT, EXPLICIT_GAPS))
def test_an_explicit_read(check, body):
    verify_forward(check, body)


@pytest.mark.parametrize("body", cases(IMPLICIT, IMPLICIT_GAPS))
def test_an_implicit_read(check, body):
    verify_forward(check, body)


@pytest.mark.parametrize("body", cases(NO_READ))
def test_no_read(check, body):
    verify_forward(check, body)


def test_arguments_of_a_logger_are_a_guess(check):
    """They are made text only where the level is on, which the code alone does not tell."""
    body = "import logging\nlogging.getLogger('a').warning('%s', x)"
    verify_forward(check, body)
    report = verify_forward(check, body + "  # expect: CG103", min_confidence="low")
    assert [f.confidence.label for f in report.findings] == ["low"]


NUMBER_GAPS = {
    "r = torch.normal(0.,s,(2,))": "where mean and deviation are tensors, and no size is given, nothing is read",
    "r = x.unsqueeze(n)": "dimensions are not looked at",
}
MEASURED = json.loads((Path(__file__).parent / "gpu" / "results" / "numbers.json").read_text())["cases"]
NUMBERS = [
    pytest.param(
        code,
        case["capture"] == "fail",
        id=code.removeprefix("r = "),
        marks=[pytest.mark.xfail(strict=True, reason=NUMBER_GAPS[code])] if code in NUMBER_GAPS else [],
    )
    for code, case in MEASURED.items()
    if case["eager"] == "ok"
]


@pytest.mark.parametrize(("code", "fails"), NUMBERS)
def test_a_number_that_is_a_device_tensor(check, code, fails):
    lines = [
        "import torch",
        "import torch.nn.functional as F",
        "class Model(torch.nn.Module):",
        "    def forward(self, x: torch.Tensor):",
        "        n, s, v, i = x.argmax(), x.sum(), x.ravel(), x.ravel().long()",
        f"        {code}",
        "        return r",
    ]
    found = [f for f in check({"model.py": "\n".join(lines)}).findings if f.line == 6 and f.code < "CG2"]
    assert bool(found) is fails


def test_a_method_of_what_is_a_guess_reads_no_number(check):
    """What looks like `Tensor.norm(p)` may be a module of that name."""
    verify(
        check,
        {
            "model.py": """
                import torch
                from elsewhere import make

                def scaled(logits, x: torch.Tensor):
                    return logits.norm(x)

                class Model(torch.nn.Module):
                    def forward(self, x: torch.Tensor):
                        return scaled(make(x), x)
            """
        },
    )
