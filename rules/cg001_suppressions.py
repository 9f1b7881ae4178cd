"""CG001 and CG002: comments of this tool that do nothing, or not what they seem to."""

from __future__ import annotations

from cgsafe.events import InvalidComment, UnusedComment
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class UnusedSuppression(Rule):
    """A comment that silences findings has none to silence.

    The hazard that it was written for is gone, or lies on another line. Left in place the comment hides the next hazard
    on its line, and tells readers of a danger that is not there. A comment counts as needed also where the finding that
    it silences is below the asked confidence, and it is judged only where all the rules that it names were run.
    """

    code = "CG001"
    name = "unused-suppression"
    severity = Severity.WARNING
    instead = "Remove the comment, or the codes in it that silence nothing; `cgsafe check --fix` does."
    allowed = "Where the finding comes and goes with the surroundings: add CG001 to the comment's own codes."

    def on_unused(self, event: UnusedComment) -> Hit:
        if event.codes:
            listed = ", ".join(event.codes)
            message = f"`{event.source}` silences nothing of {listed}"
            advice = f"Remove {listed} from the comment, and the comment if nothing is left"
        else:
            message = f"`{event.source}` silences nothing"
            advice = "Remove the comment"
        return Hit(message, Fix(advice, "safe", (event.removal,)) if event.removal is not None else Fix(advice))


class InvalidSuppression(Rule):
    """A comment of this tool cannot be understood, or means nothing where it stands.

    It then silences nothing, or tells the walk nothing: the author believes a line to be taken care of that is not. A
    code that no rule has, a missing bracket, an `on` without an `off`, a marker that is not on a `def`, a parameter or
    an assignment are such; so is a comment without a reason where the configuration asks for one.
    """

    code = "CG002"
    name = "invalid-suppression"
    severity = Severity.WARNING
    instead = "Write `# cgsafe: ignore[CODE, ...] reason` on the line of the finding or on a line of its own above it."

    def on_invalid(self, event: InvalidComment) -> Hit:
        return Hit(f"`{event.source}`: {event.problem}", Fix("Correct the comment"))
