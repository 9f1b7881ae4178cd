"""Copies and reads that hide in calls: fills, conversions after another tensor, masks by name, data of unknown kind."""

from __future__ import annotations

import pytest

from expectations import cases, verify_forward

HIDDEN = {
    "a tensor or a list, by an index tensor": "rows = x if flag else [x, x]\nreturn rows[torch.cumsum(x.long(), 0)]",
    "a list, by an index tensor": "rows = [x, x]\nreturn rows[x.argmax()]  # expect: CG103",
    "a tensor or a list, times a tensor": "rows = x if flag else [x, x]\nreturn rows * (1 + x)",
    "a list, times a tensor": "return [1, 2] * x.argmax()  # expect: CG103",
    "a copy between two on either device": "a = x if flag else torch.ones(4)\nb = a.new_empty(4)\nb.copy_(a)\nreturn b",
    "a copy from the CPU": "x.copy_(torch.ones(4))  # expect: CG202\nreturn x",
    "masked_fill, as a method": "s = x.sum()\nreturn x.masked_fill(x > 0, s)  # expect: CG104",
    "masked_fill, as a function": "s = x.sum()\nreturn torch.masked_fill(x, x > 0, s)  # expect: CG104",
    "masked_fill by keyword": "s = x.sum()\nreturn torch.masked_fill(x, x > 0, value=s)  # expect: CG104",
    "index_fill, as a function": "return torch.index_fill(x, 0, x.argmax(dim=1), x.sum())  # expect: CG104",
    "scalar_tensor on the device": "f = torch.scalar_tensor(0.5, device=x.device)\n"
    "return torch.masked_fill(x, x > 0, f)  # expect: CG104",
    "masked_fill with a number": "return torch.masked_fill(x, x > 0, 0.5)",
    "masked_fill with a CPU number": "return torch.masked_fill(x, x > 0, torch.scalar_tensor(0.5))",
    "a method on a mask": "return x.masked_fill(x > 0, 1.0).index_fill(0, x.argmax(dim=1), 1.0)",
    "type_as a device tensor": "return torch.tensor(3).type_as(x)  # expect: CG202",
    "type_as among device tensors": "return (x > 0).type_as(x)",
    "a mask of unknown dtype": "valid_mask = x.new_zeros(4, dtype=self.kind)\nreturn x[valid_mask]  # expect: CG105",
    "an index of unknown dtype": "places = x.new_zeros(4, dtype=self.kind)\nreturn x[places]",
    "data of unknown kind": "return torch.tensor(self.sizes, device=x.device)  # expect: CG201",
    "data of unknown kind, on the CPU": "return torch.tensor(self.sizes)",
    "as_tensor of something unknown": "return torch.as_tensor(self.sizes, device=x.device)",
    "pinned before it is copied": "t = torch.ones(4)\nif not t.is_pinned():\n    t = t.pin_memory()\n"
    "return x + t.to(x.device, non_blocking=True)",
    "a flag has no such method": "same = (None if flag else x) == self.target()\n"
    "picked = same.all(-1)\nreturn x[picked]  # expect: CG105",
}

RANKS = {
    "returned where it has four dimensions": """
        def prepared(mask):
            if len(mask.shape) == 4:
                return mask
            return mask.to(x.device)  # expect: CG202

        m = torch.ones((n, n))
        return prepared(m).cpu()  # expect: CG102
        """,
    "moved where it has two": """
        m = torch.ones((n, n))
        if m.ndim == 2:
            m = m.to(x.device)  # expect: CG202
        return m.to(x.device)
        """,
    "dim()": """
        m = torch.ones((n, n))
        if m.dim() != 2:
            return x.cpu()
        return x
        """,
    "an unknown rank, moved under a condition": """
        m = torch.ones(x.shape)
        if m.ndim == 2:
            m = m.to(x.device)  # expect: CG202
        return m.to(x.device)
        """,
    "the rank is known from the test on": """
        total = x
        if total.ndim == 0:
            return torch.zeros(n, device=x.device).masked_fill(x > 0, total)  # expect: CG104
        return total
        """,
    "the shape of a known rank": """
        m = torch.ones((n, n), device=x.device)
        rows, columns = m.shape
        return m.view(rows, columns, 1), m.size(), len(m.shape) + 1, m.shape.numel()
        """,
}


@pytest.mark.parametrize("body", cases(HIDDEN))
def test_hidden_in_a_call(check, body):
    verify_forward(check, body)


@pytest.mark.parametrize("body", cases(RANKS))
def test_ranks_tell(check, body):
    verify_forward(check, body)
