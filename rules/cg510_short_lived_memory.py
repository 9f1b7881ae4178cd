"""CG510: memory that a graph or a copy uses is given up too early."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import HostOverwritten, InputDies, PoolOutlives


class ShortLivedMemory(Rule):
    """A graph, or a copy that is still under way, uses memory that its owner gives up or writes anew.

    A graph keeps addresses, not tensors: once the last reference to an input is gone, the allocator hands its memory to
    somebody else, and replays read that. The same goes for a pool whose handle outlives its graphs, and for a pinned host
    buffer that is written again before an asynchronous copy from it has run. No error is raised, at best.
    """

    code = "CG510"
    name = "short-lived-memory"
    severity = Severity.WARNING
    instead = (
        "Keep the inputs beside the graph; own a pool per set of graphs; copy from a snapshot, or wait for the copy."
    )
    error = (
        "nothing is raised: the replay reads what lies there by then; with a pool that outlived its graphs: RuntimeError: "
        "it->second->use_count > 0 INTERNAL ASSERT FAILED"
    )
    allowed = "Where something that is not seen here keeps the tensor."

    def on_input(self, event: InputDies) -> Hit:
        instead = f"; `{event.trace}` keeps no memory alive" if event.trace else ""
        kept = "is returned" if event.kept == "returned" else f"lives on as `{event.kept}`"
        message = (
            f"`{event.name}` (line {event.made}) is held by a local variable only, and the graph that reads it {kept}{instead}: "
            "replays read freed memory"
        )
        return Hit(message, Fix(f"Keep `{event.name}` beside the graph, for as long as it is replayed"))

    def on_pool(self, event: PoolOutlives) -> Hit:
        owner = "the class" if event.scope == "class" else "the module"
        message = (
            f"the pool `{event.name}` belongs to {owner} and outlives the graphs, which are given up on line {event.reset}: the "
            "next capture uses the handle of a pool that may be gone"
        )
        return Hit(message, Fix("Let each set of graphs own its pool (`graph.pool()` of the first one)"))

    def on_host(self, event: HostOverwritten) -> Hit:
        message = (
            f"this copy runs asynchronously, and `{event.writer}` writes `{event.buffer}` again (line {event.written}) without "
            "waiting for it: the device may get the new values"
        )
        return Hit(
            message, Fix(f"Copy from a pinned snapshot of `{event.buffer}`, or record an event and wait for it first")
        )
