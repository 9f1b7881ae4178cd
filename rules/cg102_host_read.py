"""CG102: a device tensor is copied to the host by an explicit call."""

from __future__ import annotations

from cgsafe.events import HostRead
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule

from .reads import EXPLICIT

# The message may be named, by another name; the condition only goes by position.
_ASSERT_ON_DEVICE = ("call-function", "torch._assert", "torch._assert_async", "", "message=assert_msg")


class HostReadOfTensor(Rule):
    """Reading a device tensor on the host makes it wait for the GPU.

    `.item()`, `.tolist()`, `.cpu()`, `.numpy()`, `.to("cpu")` and calls that return a Python value made of a tensor's
    contents copy from the device and wait. While a CUDA graph is being captured that is an error; without a wait, the
    value read would be the one of the capture, in every replay.
    """

    code = "CG102"
    name = "host-read"
    severity = Severity.ERROR
    instead = (
        "Carry the number on the host from where it was made (an int argument, a CPU copy), or stay on the device."
    )
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "For tensors on the CPU, and behind `torch.cuda.is_current_stream_capturing()`."

    def on_host_read(self, event: HostRead) -> Hit | None:
        how = EXPLICIT.get(event.how)
        if how is None:
            return None
        message = f"{how} copies a tensor on the GPU to the host, which waits for it: `{event.source}`"
        if event.partly:
            message = (
                f"{how} copies to the host and waits where the value is a tensor on the GPU (it may be {event.partly}): "
                f"`{event.source}`"
            )
        if event.why:
            message += f"; {event.why}"
        if event.how in ("item", "tolist"):
            advice = "Pass the number down from where the host knows it, or keep it a tensor and compute with it on the device"
        elif event.how in ("_assert", "_check_tensor_all", "_check_tensor_all_with"):
            advice = "Use `torch._assert_async`, which checks on the device, or drop the check from captured code"
            if event.how == "_assert" and not event.partly:
                return Hit(message, Fix(advice, "unsafe", transform=_ASSERT_ON_DEVICE))
        elif event.how in ("equal", "allclose"):
            advice = "Compare on the device (`(a == b).all()`) and keep the result there"
        else:
            advice = "Keep the tensor on the device, or make the host copy before the capture and pass it in"
        return Hit(message, Fix(advice))
