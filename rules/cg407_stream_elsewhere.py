"""CG407: the capture's stream may be on another device than what it records."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import StreamElsewhere


class StreamElsewhereRule(Rule):
    """The capture's stream is made on the current device, while the captured tensors live on a device with a number.

    `torch.cuda.Stream()` without a device belongs to the current device: device 0 in a process that never called
    `torch.cuda.set_device`. The work of tensors on another device does not run on that stream, so it is not what the
    graph records, and what the warm-up or the capture creates by default lands on the wrong device.
    """

    code = "CG407"
    name = "stream-elsewhere"
    severity = Severity.WARNING
    instead = "`torch.cuda.Stream(device=device)`, or `torch.cuda.set_device(device)` before anything else."
    error = "not measured: it takes two devices"
    allowed = "Where the process has made that device the current one, in code that is not seen here."

    def on_stream(self, event: StreamElsewhere) -> Hit:
        message = (
            f"`{event.source}` is made on the current device, what it captures lives on `{event.device}` (line "
            f"{event.line}): the work there is not on this stream"
        )
        return Hit(message, Fix("Name the device: `torch.cuda.Stream(device=...)`"))
