"""CG303: captured code makes, or makes anew, a buffer that stays."""

from __future__ import annotations

from cgsafe.events import AttributeSet
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class LazyWorkspace(Rule):
    """Captured code makes a buffer on first use, or a larger one, and keeps it for later calls.

    Made while a graph records, the buffer lies in that graph's memory pool: other graphs and eager code that use it read
    what the pool holds by then. Made anew once a graph has recorded the old one's address, it leaves the graph with freed
    memory. Under `torch.compile(mode="reduce-overhead")` the next run overwrites it, which is an error.
    """

    code = "CG303"
    name = "lazy-workspace"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = "Allocate the largest size in the constructor, or before the first capture."
    error = (
        "RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run "
        "(torch.compile); nothing where a capture by hand reads freed or foreign memory at replay"
    )
    allowed = "Where every use of the buffer, its making included, lies in the same graph."

    def on_attribute_set(self, event: AttributeSet) -> Hit | None:
        if not is_workspace(event):
            return None
        if event.how == "cached":
            message = (
                f"`{event.name}` allocates this at its first call, and a cache keeps it: called first in captured code, the "
                "result lies in this graph's memory pool, for others, too"
            )
            advice = f"Call `{event.name}` with the same arguments before the capture"
            return Hit(message, Fix(advice), unless_warmed=True)
        when = f" when `{event.guard}`" if event.guard else ""
        message = (
            f"`{event.name}` gets a new buffer in captured code{when}: it lies in this graph's memory pool, and graphs that "
            "recorded an older one keep its address"
        )
        return Hit(message, Fix(f"Make `{event.name}` once, at its largest size, before the capture"))


def is_workspace(event: AttributeSet) -> bool:
    """True for a buffer that is made at need; everything else that is set is CG501's."""
    return event.how in ("item", "global", "cached") or (event.how != "counter" and bool(event.guard or event.fresh))
