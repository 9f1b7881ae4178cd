"""CG405: a capture or a replay inside a capture."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import InsideCapture


class CaptureInCapture(Rule):
    """Captured code opens another capture, replays another graph or makes graphed callables.

    A stream records one graph at a time, and PyTorch replays no graph while one is recorded: the inner call fails, and the
    outer capture with it.
    """

    code = "CG405"
    name = "capture-in-capture"
    severity = Severity.ERROR
    instead = (
        "Call the code itself inside the capture, not its graph; or run the inner graph before or after the outer one."
    )
    error = (
        "a replay: RuntimeError: Cannot prepare for replay during capturing stage. during CUDA graph capture; a capture: "
        "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    )

    def on_inside(self, event: InsideCapture) -> Hit:
        if event.how == "replay":
            message = f"`{event.source}` replays a graph while another one is recorded, which is refused"
            return Hit(message, Fix("Call the code of that graph here, or replay it outside of this capture"))
        what = "records a graph" if event.how == "capture" else "makes graphed callables, which records graphs,"
        message = f"`{event.source}` {what} while another one is recorded, which is refused"
        return Hit(message, Fix("Capture once, around all of it, or before this capture"))
