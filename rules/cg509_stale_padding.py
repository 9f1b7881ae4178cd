"""CG509: rows beyond the live batch keep old values."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import PaddingKept


class StalePadding(Rule):
    """Before a replay only the live rows of a static buffer are written; the other rows keep what a larger batch left.

    A graph runs on the full size of its buffers. Stale lengths, slots and indices in the padding make its kernels read and
    write for requests that are gone: out of range, or into memory that belongs to somebody else by now.
    """

    code = "CG509"
    name = "stale-padding"
    severity = Severity.WARNING
    instead = "Reset the rest: `buf[n:].zero_()`, or fill it with the value that the kernels skip."
    error = "nothing is raised, as long as the stale rows point to valid memory"
    allowed = "Where the padded rows feed nothing but padded outputs."

    def on_padding(self, event: PaddingKept) -> Hit:
        if event.how == "arithmetic":
            message = (
                f"`{event.buffer}` changes in place on all rows, but only its live rows are filled anew before the replay: "
                "the padding grows from step to step"
            )
            return Hit(message, Fix("Compute out of place, or reset the padding before each replay"))
        beside = f", as `{event.sibling}` is," if event.sibling else ""
        message = (
            f"only `{event.buffer}[:{event.bound}]` is written before the replay on line {event.replay}; the rest is not reset"
            f"{beside} and keeps the rows of an earlier, larger batch"
        )
        return Hit(
            message, Fix(f"Reset the rest: `{event.buffer}[{event.bound}:].zero_()` (or the value that kernels skip)")
        )
