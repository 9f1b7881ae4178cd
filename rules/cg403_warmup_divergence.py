"""CG403: the warm-up takes another path than the capture."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import WarmupDiffers, WarmupFills


class WarmupDivergence(Rule):
    """The warm-up calls the captured code otherwise than the capture does, or leaves work done that was to be recorded.

    A warm-up is to run everything once that must not happen first while a graph records: kernels are compiled, tuned and
    loaded, handles and workspaces made. With an optional argument left out, or a flag set otherwise, it takes another
    path, and the capture meets the rest for the first time. The other way round, an object that computes a part of itself
    at its first use does so in the warm-up: the graph records no kernel for it, and each replay uses the old result.
    """

    code = "CG403"
    name = "warmup-divergence"
    severity = Severity.WARNING
    instead = (
        "Call the warm-up with the very arguments of the capture, and give the capture a fresh object where the old one "
        "has filled itself."
    )
    error = (
        "not measured by itself: a kernel that the capture meets first may fail to compile or load there; what the warm-up "
        "has filled raises nothing, and is not computed again on replay"
    )
    allowed = "Where the argument does not change what the called code does, and what is filled never changes."

    def on_other_arguments(self, event: WarmupDiffers) -> Hit:
        name = f"argument {event.parameter}" if event.parameter.isdigit() else f"`{event.parameter}`"
        passed = event.captured or event.warmed
        value = "" if passed == event.parameter else f" (`{passed}`)"
        if not event.warmed:
            what = f"the capture passes {name}{value}, the warm-up on line {event.line} leaves it out"
        elif not event.captured:
            what = f"the warm-up on line {event.line} passes {name}{value}, the capture leaves it out"
        else:
            what = (
                f"{name} is `{event.captured}` in the capture and `{event.warmed}` in the warm-up on line {event.line}"
            )
        message = f"{what}: `{event.callee}` takes another path than the one that was warmed up"
        return Hit(message, Fix(f"Call `{event.callee}` with the same arguments in the warm-up"))

    def on_filled_object(self, event: WarmupFills) -> Hit:
        message = (
            f"`{event.name}` is shared with the warm-up on line {event.warmed}: `{event.cls}.{event.attribute}` is computed "
            f"at its first use (line {event.line}), so the graph records nothing of that and replays with the warm-up's result"
        )
        return Hit(
            message, Fix(f"Make a fresh `{event.cls}` for the capture, or compute `{event.attribute}` in every call")
        )
