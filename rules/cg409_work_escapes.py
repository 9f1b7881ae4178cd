"""CG409: work on a stream that is no part of the capture."""

from __future__ import annotations

from cgsafe.events import StreamHazard
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class WorkEscapes(Rule):
    """Work on a stream that does not belong to the capture runs at once, and is not in the graph.

    Only the capturing stream, and streams that wait for it in the captured code, are recorded. What is put on another
    stream, the default stream included, raises nothing: it runs once, while the graph is recorded, and no replay does it.
    """

    code = "CG409"
    name = "work-escapes-graph"
    severity = Severity.WARNING
    instead = "Fork the stream first: `side.wait_stream(torch.cuda.current_stream())`, and join it again."
    error = "nothing is raised: the work is not in the graph, and replays do not repeat it"
    allowed = "Where the work is meant to run once, at the capture."

    def on_stream_hazard(self, event: StreamHazard) -> Hit | None:
        if event.how != "escape":
            return None
        message = (
            f"`{event.source}` is a stream that does not belong to this capture: what runs on it is silently left out of the "
            "graph"
        )
        advice = (
            "Let the stream wait for the capturing one before (`side.wait_stream(torch.cuda.current_stream())`), and join it "
            "before the capture ends"
        )
        return Hit(message, Fix(advice))
