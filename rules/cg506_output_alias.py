"""CG506: outputs of a graph are kept beyond its next run."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import OutputKept


class OutputAlias(Rule):
    """The output of a graph is kept, or read, after the graph has run again.

    A graph writes its results to the same memory at each run. Whoever keeps the tensor of one run sees the values of the
    latest: a list of ten results holds the last one ten times. Functions under torch.compile that record graphs check for
    this and raise an error; graphs made by hand and graphed callables do not.
    """

    code = "CG506"
    name = "output-alias"
    severity = Severity.WARNING
    instead = "`clone()` the output before the next run."
    error = (
        'with torch.compile(mode="reduce-overhead"): RuntimeError: Error: accessing tensor output of CUDAGraphs that has '
        "been overwritten by a subsequent run; otherwise nothing: the values are those of the latest run"
    )
    allowed = "Where the output is used up before the next run."

    def on_kept(self, event: OutputKept) -> Hit:
        raises = event.of == "compiled"
        after = (
            'which raises "accessing tensor output of CUDAGraphs that has been overwritten"'
            if raises
            else "so its values are those of the latest run"
        )
        if event.how == "used":
            message = (
                f"`{event.name}` is the output of an earlier run of `{event.producer}`, and the run on line {event.line} has "
                f"overwritten it, {after}"
            )
        elif event.how == "accumulated":
            message = (
                f"gradients of `{event.producer}` are static buffers; this backward pass of each turn overwrites them before "
                "they are added up, so the sums are wrong"
            )
            return Hit(message, Fix("Clear the gradients in each turn, or add up clones of them"))
        elif event.how == "collected":
            what = "holds the static gradients" if event.of == "gradients" else "is the static output"
            message = (
                f"`{event.name}` {what} of `{event.producer}`, and is kept while the next turn runs it again, {after}"
            )
        else:
            message = f"`{event.name}` is returned as it is: the next `{event.producer}()` overwrites it under whoever still holds it"
        severity = Severity.ERROR if raises else None
        return Hit(message, Fix("Clone it: `.clone()`, before the next run"), severity)
