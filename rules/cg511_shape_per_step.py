"""CG511: a function that records graphs per shape gets a new shape in each step."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import GrowingArgument


class ShapePerStep(Rule):
    """A compiled function that records CUDA graphs is called in a loop with an argument that grows.

    Each new shape is recorded as a graph of its own, and with static shapes compiled anew. The graph of one step is never
    used again: the loop pays for a recording in each step, and keeps the memory of all of them.
    """

    code = "CG511"
    name = "shape-per-step"
    severity = Severity.WARNING
    instead = (
        "Give it a buffer of the largest size and fill that in place; mark what is valid by a mask or a length tensor."
    )
    error = "nothing is raised: each step records (and compiles) again"
    allowed = "In a loop of very few steps."

    def on_growing(self, event: GrowingArgument) -> Hit:
        how = f"`{event.grows}`, line {event.line}" if event.grows != event.name else "a slice by the loop's variable"
        message = f"`{event.name}` has another shape in each turn ({how}), so `{event.callee}` records a new graph in each turn"
        return Hit(message, Fix("Preallocate it at its largest size and fill it in place"))
