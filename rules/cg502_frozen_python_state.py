"""CG502: captured code depends on Python values that change between replays."""

from __future__ import annotations

from cgsafe.events import AttributeSet, FrozenBranch
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class FrozenPythonState(Rule):
    """Captured code decides by, or counts in, Python values that other code changes later.

    Python runs once, while the graph is recorded. A branch on such a value records the kernels of one side, a counter is
    raised by one; replays go on with both as they were, and nothing is raised.
    """

    code = "CG502"
    name = "frozen-python-state"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = (
        "Keep the value in a tensor on the device, make it part of the graph's key, or decide outside of the graph."
    )
    error = "nothing is raised: replays take the branch, and use the number, of the moment of the capture"
    allowed = "Where the value stays the same for as long as the graph is in use."

    def on_frozen_branch(self, event: FrozenBranch) -> Hit | None:
        if event.used:
            message = (
                f"captured code uses the number `{event.used}`, and {event.changed}: replays keep that of the capture"
            )
            return Hit(message, Fix(f"Keep `{event.used}` in a tensor on the device, and fill it before each replay"))
        message = f"captured code branches on `{event.source}`, and {event.changed}: replays keep to the branch of the capture"
        advice = (
            "Give each case a graph of its own, compute both and pick with `torch.where`, or take the general branch while "
            "capturing"
        )
        return Hit(message, Fix(advice))

    def on_attribute_set(self, event: AttributeSet) -> Hit | None:
        if event.how != "counter":
            return None
        message = f"`{event.name}` is counted in captured code: the capture changes it, replays do not"
        return Hit(
            message,
            Fix(f"Count outside of the graph, or keep `{event.name}` in a tensor on the device and use `add_`"),
            confidence=Confidence.MEDIUM,
        )
