"""CG505: later code replaces what a graph reads."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import InputReplaced


class StaleInput(Rule):
    """What a graph reads is bound to another tensor after the capture, so replays go on reading the old one.

    A graph holds addresses. Assigning a new tensor to the name, the field or the parameter that the captured code read
    changes nothing for it: each replay computes with the values of the capture, or with whatever has been allocated in
    their place since. No error is raised.
    """

    code = "CG505"
    name = "stale-input"
    severity = Severity.WARNING
    instead = (
        "Copy into the captured tensor (`static.copy_(new)`), at its full size; capture again after replacing weights."
    )
    error = "nothing is raised: the replay computes with the old tensor"
    allowed = "Where the graph is captured again before the next replay."

    def on_replaced(self, event: InputReplaced) -> Hit:
        when = f"the capture on line {event.captured}"
        if event.how == "built":
            message = (
                f"`{event.fresh}` is a fresh tensor in each call, and `{event.builder}(...)` is called again before the "
                f"replay on line {event.replay}: {when} keeps reading the tensor of its own call"
            )
            advice = "Keep a buffer of the largest size, copy into it and return a view of it"
            return Hit(message, Fix(advice))
        if event.how in ("load", "data", "moved"):
            what = {
                "load": f"`{event.source}` replaces the parameters of `{event.name}`",
                "data": f"`{event.name}` gets other memory",
                "moved": f"`{event.source}` gives the parameters of `{event.name}` other memory",
            }[event.how]
            message = f"{what} after {when}: replays go on reading the old weights"
            return Hit(
                message,
                Fix("Copy the new values in place (`param.copy_(...)` under `torch.no_grad()`), or capture again"),
            )
        message = f"`{event.name}` is bound to another tensor after {when}: replays go on reading the old one"
        return Hit(message, Fix(f"Copy in place instead: `{event.name}.copy_(...)`"))
