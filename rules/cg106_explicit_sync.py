"""CG106: captured code waits for the device, or asks it, by name."""

from __future__ import annotations

from cgsafe.events import DeviceWait
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class ExplicitSync(Rule):
    """Waiting for the device, or asking how far it is, is not permitted while a graph is captured.

    `torch.cuda.synchronize()`, `Stream.synchronize()`, `Stream.query()` and the same of events end the capture with an
    error: there is nothing to wait for, since the work is recorded and not run.
    """

    code = "CG106"
    name = "explicit-sync"
    severity = Severity.ERROR
    instead = (
        "Order streams on the device (`stream.wait_stream`, `stream.wait_event`), and wait outside of the capture."
    )
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "Outside of captures, and behind `torch.cuda.is_current_stream_capturing()`."

    def on_device_wait(self, event: DeviceWait) -> Hit | None:
        if event.why:
            message = f"`{event.source}` {event.why}, which no capture permits"
            return Hit(message, Fix("Move it out of the captured code"))
        message = f"`{event.source}` waits for the GPU or queries it ({event.how}), which no capture permits"
        advice = "Move it out of the captured code; to order streams use `stream.wait_stream(...)` or `stream.wait_event(...)`"
        return Hit(message, Fix(advice))
