"""CG103: a Python protocol reads the value of a device tensor."""

from __future__ import annotations

from cgsafe.events import HostRead
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule

from .reads import IMPLICIT


class ImplicitHostRead(Rule):
    """Converting a device tensor to a Python number or text reads it on the host, and waits for the GPU.

    `int(t)`, `float(t)`, slice bounds, `range(t)`, functions of `math`, f-strings and `print` call `Tensor.__index__`,
    `__float__` and their like, which copy from the device as `.item()` does.
    """

    code = "CG103"
    name = "implicit-host-read"
    severity = Severity.ERROR
    instead = "Compute with the tensor on the device, or carry the number on the host from where it was made."
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "For tensors on the CPU, and behind `torch.cuda.is_current_stream_capturing()`."

    def on_host_read(self, event: HostRead) -> Hit | None:
        how = IMPLICIT.get(event.how)
        if how is None:
            return None
        verb = "needs a Python value" if event.how in ("index", "math") else "turns it into a Python value"
        message = f"`{event.source}` reads a tensor on the GPU: {how} {verb}, and waits for the device"
        if event.partly:
            message = f"`{event.source}` reads a tensor on the GPU (or {event.partly}): {how} {verb}, and then waits for the device"
        if event.why:
            message += f"; {event.why}"
        advice = "Keep the value a tensor and compute with it on the device, or pass the number down from where the host knows it"
        if event.how in ("print", "log", "format", "str"):
            advice = "Move the output out of the captured code, or print shapes and host values only"
        return Hit(message, Fix(advice))
