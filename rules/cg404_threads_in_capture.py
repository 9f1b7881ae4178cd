"""CG404: a capture that another thread can invalidate."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import ThreadsBeside


class ThreadsInCapture(Rule):
    """A capture in the default error mode runs while another thread of the program may call CUDA.

    In the mode "global" a call that may not happen during a capture is refused to every thread, and it invalidates the
    capture: a thread that pins a batch, allocates or copies at that moment fails, and so does the capture. It depends on
    timing, so tests rarely show it.
    """

    code = "CG404"
    name = "threads-in-capture"
    severity = Severity.WARNING
    instead = (
        'Pass `capture_error_mode="thread_local"`, or capture before the threads start (or while they are stopped).'
    )
    error = (
        "not measured: it depends on timing; PyTorch documents that with capture_error_mode='global' unsafe calls of other "
        "threads fail during a capture"
    )
    allowed = "Where the threads stand still during the capture."

    def on_threads(self, event: ThreadsBeside) -> Hit:
        where = f"line {event.line} of {event.where}" if event.where else f"line {event.line}"
        if event.how == "pin":
            other = f"the pinning thread of `{event.what}` ({where})"
        else:
            other = f"`{event.what}` ({where}), whose work uses CUDA,"
        message = (
            f'`{event.source}(...)` captures in the default mode "global" while {other} may be running: an allocation '
            "or a copy there at that moment fails, and invalidates the capture"
        )
        return Hit(message, Fix('Add `capture_error_mode="thread_local"`, or capture before the thread starts'))
