"""CG504: the graph uses memory that nothing else keeps."""

from __future__ import annotations

from cgsafe.events import FrozenCall, HostRing
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class GraphLifetime(Rule):
    """A graph holds addresses, not objects: what it uses must be kept alive, and unchanged, by someone else.

    An address that is taken with `data_ptr()` and kept without its tensor points into memory that the pool gives to the next
    tensor. Texts of NVTX ranges that are made on the fly are gone when a profiler looks at a replay. A host buffer that one
    graph reads and then writes gives the replay after its own result as input.
    """

    code = "CG504"
    name = "graph-lifetime"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = "Keep the tensor (or the text) next to the graph; give each direction a buffer of its own."
    error = "nothing is raised: replays use memory that belongs to something else by then"
    allowed = "Where something else keeps the object for as long as the graph."

    def on_frozen_call(self, event: FrozenCall) -> Hit | None:
        if event.how == "address":
            message = (
                f"`{event.source}` is kept, and the tensor is not: once captured code is done with it, the pool gives its "
                "memory to the next one"
            )
            return Hit(message, Fix("Keep a reference to the tensor for as long as its address is in use"))
        if event.how == "text":
            message = (
                f"`{event.source}` makes its text on the fly in captured code: the graph refers to it when it is gone"
            )
            return Hit(message, Fix("Make the texts once and keep them"), confidence=Confidence.MEDIUM)
        return None

    def on_host_ring(self, event: HostRing) -> Hit | None:
        message = (
            f"the graph copies from `{event.name}` to the device and later writes its result there: the next replay reads "
            "that instead of new input"
        )
        return Hit(message, Fix("Give the results a pinned buffer of their own"))
