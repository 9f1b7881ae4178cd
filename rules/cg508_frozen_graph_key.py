"""CG508: a graph stands for calls that differ in more than its key says."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import KeyLacks, OutputOmitted


class FrozenGraphKey(Rule):
    """The captured call depends on a host value that the graph's key lacks, or leaves out an argument of the eager path.

    Python runs once, at the capture: a length, a flag or a missing argument is fixed there. A graph that is looked up by a
    key without it is replayed for other values too, and computes with those of its first call. No error is raised.
    """

    code = "CG508"
    name = "frozen-graph-key"
    severity = Severity.WARNING
    instead = (
        "Make the value a part of the key (rounded up to a few sizes), or a tensor that is filled before each replay."
    )
    error = "nothing is raised: the replay computes with the values of the capture"
    allowed = "Where the value is the same in all calls."

    def on_key(self, event: KeyLacks) -> Hit:
        value = event.parameter.removesuffix(".shape")
        what = f"the shape of `{value}`" if event.parameter != value else f"`{value}`"
        through = "" if event.argument == event.parameter else f" (through `{event.argument}`)"
        key = f"the graph's key `{event.key}` does not hold it" if event.key else "one graph serves all calls"
        message = (
            f"the captured call depends on {what}{through}, and {key}: replays for other values run with the first one"
        )
        return Hit(message, Fix(f"Add {what} to the key, or check it before the replay"))

    def on_omitted(self, event: OutputOmitted) -> Hit:
        message = (
            f"the capture leaves out `{event.parameter}`, which the eager path fills (`{event.value}`, line {event.line}): "
            f"the graph holds no store to it, and replays leave it as it was"
        )
        return Hit(message, Fix(f"Capture `{event.callee}` with a static `{event.parameter}`"))
