"""CG104: a PyTorch function that reads device values on its own account."""

from __future__ import annotations

from cgsafe.events import HostRead
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule

from .reads import EXPLICIT, IMPLICIT

_INSTEAD = {
    "inv": "`torch.linalg.inv_ex`",
    "cholesky": "`torch.linalg.cholesky_ex`",
    "solve": "`torch.linalg.solve_ex`",
    "lu_factor": "`torch.linalg.lu_factor_ex`",
    "masked_fill": "`torch.where(mask, value, x)`",
    "masked_fill_": "`x.copy_(torch.where(mask, value, x))`",
}


# The forms that do not check: function, and which part of its result is the old one's.
_UNCHECKED = {
    "inv": ("inv_ex", "[0]"),
    "cholesky": ("cholesky_ex", "[0]"),
    "solve": ("solve_ex", "[0]"),
    "lu_factor": ("lu_factor_ex", "[:2]"),
}
_DISTRIBUTIONS = "torch.distributions."


class HiddenSync(Rule):
    """Some PyTorch functions read device values themselves, and make the host wait for the GPU.

    Checks of errors (`torch.linalg.inv`, `cholesky`, `solve`), of arguments (`torch.distributions` with `validate_args`)
    and of ranges (`torch.histc`), and scalars that are given as tensors (`masked_fill(mask, tensor)`) copy from the
    device, though nothing in the call says so.
    """

    code = "CG104"
    name = "hidden-sync"
    severity = Severity.ERROR
    instead = "Use the form that does not check (`linalg.inv_ex`, `validate_args=False`), or do it before the capture."
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "For tensors on the CPU, and behind `torch.cuda.is_current_stream_capturing()`."

    def on_host_read(self, event: HostRead) -> Hit | None:
        if event.how in EXPLICIT or event.how in IMPLICIT:
            return None
        message = f"`{event.how}` reads values on the GPU and makes the host wait for them: `{event.source}`"
        if event.why:
            message += f"; {event.why}"
        instead = _INSTEAD.get(event.how)
        transform: tuple[str, ...] = ()
        if event.how in _UNCHECKED:
            function, item = _UNCHECKED[event.how]
            transform = ("call-function", f"torch.linalg.{event.how}", f"torch.linalg.{function}", item)
        elif event.how in ("masked_fill", "masked_fill_"):
            transform = ("masked-fill-to-where",)
        if instead:
            advice = f"Use {instead}, which stays on the device"
        elif event.source.startswith("torch.distributions") or event.how[:1].isupper():
            advice = "Pass `validate_args=False`, or make the distribution before the capture"
            transform = ("add-keyword", "validate_args", "False", "2", _DISTRIBUTIONS)
        else:
            advice = "Do it before the capture, or use a form of it that stays on the device"
        return Hit(message, Fix(advice, "unsafe" if transform else "manual", transform=transform))
