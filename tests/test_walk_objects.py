"""PyTorch objects whose methods hide something, calls that fail without a read, numbers given as tensors."""

from __future__ import annotations

import pytest

from expectations import cases, verify_forward

OBJECTS = {
    "optimizer": "o = torch.optim.Adam([x], 0.1)\no.step()  # expect: CG106",
    "optimizer made for captures": "o = torch.optim.Adam([x], 0.1, capturable=True)\no.step()",
    "SGD": "o = torch.optim.SGD([x], 0.1)\no.step()",
    "SGD with a rate on the GPU": "o = torch.optim.SGD([x], lr=x.sum())\no.step()  # expect: CG104",
    "checked distribution": "d = torch.distributions.Normal(0.0, 1.0)\nreturn d.log_prob(x)  # expect: CG104",
    "unchecked": "d = torch.distributions.Normal(0.0, 1.0, validate_args=False)\nreturn d.log_prob(x)",
    "unknown class of the package": "d = torch.distributions.Some(0.0, 1.0)\nreturn d.cdf(x)  # expect: CG104",
    "samples by a deviation on the GPU": (
        "d = torch.distributions.Normal(x, x, validate_args=False)\nreturn d.sample()  # expect: CG104"
    ),
    "samples by a number": "return torch.distributions.Normal(x, 1.0, validate_args=False).sample()",
    "one inside another": (
        "d = torch.distributions.Normal(x, x, validate_args=False)\n"
        "d = torch.distributions.Independent(d, 1, validate_args=False)\nreturn d.sample()  # expect: CG104"
    ),
    "one inside another, again and again": (
        "d = torch.distributions.Normal(0.0, 1.0)\nfor _ in range(n):\n"
        "    d = torch.distributions.Independent(d, 1, validate_args=False)\nreturn d.rsample()"
    ),
    "generator": "g = torch.Generator('cuda')  # expect: CG106\ng.seed()  # expect: CG106",
    "generator of a device": "g = torch.Generator(device=x.device)  # expect: CG106",
    "generator on the host": "g = torch.Generator()\ng.seed()",
    "storage": "return x.untyped_storage()[0]  # expect: CG106",
    "storage on the host": "return torch.ones(3).untyped_storage()[0]",
    "collective": "w = torch.distributed.all_reduce(x, async_op=True)\nreturn w.is_completed()  # expect: CG106",
    "collective without a question": "w = torch.distributed.all_reduce(x, async_op=True)\nw.wait()",
    "layer": "return nn.BatchNorm1d(8, momentum=None)(x)  # expect: CG106",
    "layer, as usual": "return nn.BatchNorm1d(8)(x)",
}
CALLS = {
    "alternatives": "return torch.linalg.matrix_norm(x, 'nuc')  # expect: CG104",
    "none of the alternatives": "return torch.linalg.matrix_norm(x, 'fro')",
    "by keyword": "return torch.linalg.matrix_norm(x, ord=2)  # expect: CG104",
    "barrier": "torch.distributed.barrier()  # expect: CG106",
    "barrier without waiting": "torch.distributed.barrier(async_op=True)",
    "device as an object": "return torch.signal.windows.hann(8, device=x.device)  # expect: CG106",
    "device on the host": "return torch.signal.windows.hann(8)",
    "fails on the device only": "return torch.unravel_index(torch.tensor([3]), (2, 4))",
    "a constant of torch": "return torch.nested.nested_tensor([x, x], layout=torch.jagged)  # expect: CG106",
    "default device": "with torch.device('cuda'):\n    return torch.tensor([1.0, 2.0])  # expect: CG201",
    "default device, left again": "with torch.device('cuda'):\n    y = x + 1\nreturn torch.tensor([1.0, 2.0])",
    "objects to a group": "torch.distributed.all_gather_object([None], 'a')  # expect: CG106",
    "objects to a group of the host": (
        "g = torch.distributed.new_group(backend='gloo')\ntorch.distributed.all_gather_object([None], 'a', group=g)"
    ),
    "another package": "import triton\nreturn triton.cdiv(x.sum(), 8)  # expect: CG104",
    "tensor as a number": "return torch.topk(x, x.argmax())  # expect: CG104",
    "tensor as a factor": "return torch.add(x, x, alpha=x.sum())  # expect: CG104",
    "tensors among numbers": "return F.pad(x, (0, x.argmax()))  # expect: CG104",
    "number": "return torch.topk(x, n)",
    "imported by a call": "return __import__('math').sqrt(x.sum())  # expect: CG103",
    "tensor as a second operand": "return torch.distributions.Binomial(4, probs=x)  # expect: CG104",
}
STORES = {
    "one element by a 0-dim index": "i = x.argmax()\nx[i] = 1.0  # expect: CG103",
    "host number in a tensor, to one element": "c = torch.tensor(1.0)\nx = x.view(8)\nx[0] = c  # expect: CG202",
    "host number in a tensor, to a slice": "c = torch.tensor(1.0)\nx[0:3] = c",
    "host number in a tensor, to a row": "c = torch.tensor(1.0)\nx = x.view(8, 8)\nx[0] = c",
    "host number in a tensor, under a mask": "c = torch.tensor(1.0)\nx[x > 0] = c",
    "mask on the host": "x[torch.ones(8) > 0] = 0.0  # expect: CG203",
    "pinned": "c = torch.ones(8, pin_memory=True)\nx[:] = c  # expect: CG202",
    "in place": "c = torch.tensor(1.0)\nx -= c",
    "by pow": "c = torch.tensor(1.0)\nreturn pow(x, c)",
    "numbers under an index tensor and a slice": "i = torch.argsort(x)\nx[:, i] = 0.0  # expect: CG204",
    "list of tensors as an index": "i = torch.argsort(x)\nreturn x[[i, i]]",
    "dicts": "return {'a': x} == {'a': x + 1}  # expect: CG101",
}


@pytest.mark.parametrize("body", cases({**OBJECTS, **CALLS, **STORES}))
def test_what_hides_in_a_call(check, body):
    verify_forward(check, body)


def test_the_finding_says_what_the_call_does(check):
    report = verify_forward(check, "o = torch.optim.Adam([x], 0.1)\no.step()  # expect: CG106")
    assert "counts steps on the host (made without `capturable=True`)" in report.findings[0].message
