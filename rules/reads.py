"""Which reads of device tensors which rule speaks of, by the event's `how`, and what to call them."""

from __future__ import annotations

EXPLICIT = {
    "item": "`.item()`",
    "tolist": "`.tolist()`",
    "cpu": "`.cpu()`",
    "numpy": "the conversion to numpy",
    "__array__": "the conversion to numpy",
    "to-cpu": "the copy to the CPU",
    "copy": "`copy_` into a tensor on the CPU",
    "is_nonzero": "`.is_nonzero()`",
    "_check_tensor_all": "`torch._check_tensor_all`, which reads the condition,",
    "_check_tensor_all_with": "`torch._check_tensor_all_with`, which reads the condition,",
    "_assert": "`torch._assert`, which reads the condition,",
    "equal": "`torch.equal`, which returns a Python bool,",
    "allclose": "`torch.allclose`, which returns a Python bool,",
}
IMPLICIT = {
    "int": "`int(...)`",
    "float": "`float(...)`",
    "complex": "`complex(...)`",
    "index": "use as an index or bound",
    "math": "a function of `math`",
    "format": "formatting it as text",
    "str": "`str(...)`",
    "print": "`print`",
    "log": "logging it",
}
