"""CG402: streams that a capture forks and does not join, or joins without having forked them."""

from __future__ import annotations

from cgsafe.events import StreamHazard
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class UnjoinedStream(Rule):
    """A capture must wait for every stream that it forked before it ends, and for nothing that lies outside of it.

    A side stream becomes part of the capture when it waits for the capturing stream. Left unjoined, it makes the end of
    the capture fail. An event or a stream whose work lies before the capture cannot be waited for: the graph has no way to
    say so.
    """

    code = "CG402"
    name = "unjoined-stream"
    severity = Severity.ERROR
    instead = (
        "Fork with `side.wait_stream(torch.cuda.current_stream())` and join with "
        "`torch.cuda.current_stream().wait_stream(side)`, both inside the captured code."
    )
    error = (
        "torch.AcceleratorError: CUDA error: capturing stream has unjoined work; or: dependency created on uncaptured work "
        "in another stream"
    )
    allowed = "With events made by `torch.cuda.Event(external=True)`, which order work across graphs."

    def on_stream_hazard(self, event: StreamHazard) -> Hit | None:
        if event.how == "unjoined":
            message = f"`{event.source}` ({event.fork}) forks a stream that is not joined when the capture ends"
            advice = "Let the capturing stream wait for it as the last thing in the captured code (`wait_stream`)"
        elif event.how == "outside-event":
            message = f"`{event.source}` waits for an event that nothing in this capture records"
            advice = "Record the event in the captured code, or do this wait outside of it"
        elif event.how == "outside-stream":
            message = f"`{event.source}` waits for a stream that this capture did not fork"
            advice = "Let that stream wait for the capturing one first, in the captured code"
        else:
            return None
        return Hit(message, Fix(advice))
