"""CG410: a function that reads the state of a step is captured, though its siblings run between graphs."""

from __future__ import annotations

from cgsafe.events import UnbrokenRead
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class MissingEagerBreak(Rule):
    """A function reads metadata of the step like its siblings do, but lacks the decorator that runs these between graphs.

    Frameworks that capture piece by piece run attention and its like eagerly, for these need the step's own metadata. One
    that was registered without the decorator is captured with the metadata of the capture: replays go on with that.
    """

    code = "CG410"
    name = "missing-eager-break"
    severity = Severity.WARNING
    instead = "Give the function the decorator that its siblings have."
    error = "nothing is raised: replays use the metadata of the capture"
    allowed = "Where the metadata that it reads is the same for all steps."

    def on_unbroken_read(self, event: UnbrokenRead) -> Hit | None:
        message = (
            f"`{event.source}` reads `{event.state}` in captured code; `{event.sibling}`, which reads it too, runs between "
            f"graphs (`@{event.decorator}`)"
        )
        return Hit(message, Fix(f"Decorate `{event.source}` with `@{event.decorator}`"))
