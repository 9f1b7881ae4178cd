"""CG205: pinned memory is allocated while a graph is captured."""

from __future__ import annotations

from cgsafe.events import FrozenCall
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class PinnedAllocation(Rule):
    """Captured code allocates pinned host memory: the graph keeps the address of a buffer that nobody keeps.

    A copy from the buffer is recorded with its address. Once the tensor is gone, the allocator of pinned memory gives the
    same block to somebody else, and each replay copies whatever stands there then. Releases before 2.10 also query events
    when pinned memory is allocated, which fails the capture.
    """

    code = "CG205"
    name = "pinned-allocation"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = "Pin the buffer once, outside of the captured code, keep it, and fill it before each replay."
    error = "nothing is raised: each replay copies what stands in the buffer's memory by then"
    allowed = "Where the pinned tensor is kept for as long as the graph, and nothing copies from it in the graph."

    def on_frozen_call(self, event: FrozenCall) -> Hit | None:
        if event.how != "pinned":
            return None
        message = (
            f"`{event.source}` allocates pinned memory in captured code: the graph records its address, and nothing keeps "
            "the buffer"
        )
        return Hit(
            message, Fix("Make the pinned buffer once before the capture, keep it, and fill it before each replay")
        )
