"""CG301: captured or compiled code calls a function that is compiled on its own."""

from __future__ import annotations

from cgsafe.events import CompiledCall
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class NestedCompile(Rule):
    """A function with its own torch.compile is called from captured code or from inside another torch.compile.

    Called where nothing traces (a plain capture, or behind a custom operator) it compiles at its first call with new
    shapes. If the warm-up did not take that very path, that first call is the capture, and compiling synchronises.
    Called from code that Dynamo traces it is inlined: then the decorator does nothing, until the outer compile is off.
    """

    code = "CG301"
    name = "nested-compile"
    severity = Severity.ERROR
    instead = "Remove the inner torch.compile where an outer one covers it; else warm it up with the very same arguments."
    error = ""
    measured = ""
    allowed = "Where the warm-up calls it with the same shapes, dtypes and optional arguments."

    def on_compiled_call(self, event: CompiledCall) -> Hit | None:
        assert event.decorator is not None
        what = "its `@torch.compile`" if event.as_decorator else "the `torch.compile` around it"
        place = event.decorator
        at = (place.path, place.line, place.column, place.end_line, place.end_column)
        region = event.region
        if region.traced and not region.behind_op:
            message = (
                f"`{event.compiled}` is called from code that is compiled already: there {what} is redundant, and "
                "compiles on its own as soon as the outer compile is off"
            )
            return Hit(message, self._remove(event), Severity.WARNING, None, at, place.function)
        if event.warmed:
            return None
        if region.behind_op:
            message = (
                f"`{event.compiled}` runs inside the custom operator `{region.behind_op}`, which no outer compile looks into: "
                f"{what} compiles it at its first call with new shapes, during the capture if the warm-up did not get there"
            )
        else:
            message = (
                f"`{event.compiled}` is called in captured code that nothing else compiles: {what} compiles it at its "
                "first call with new shapes, during the capture if the warm-up did not get there"
            )
        return Hit(message, self._remove(event), None, Confidence.HIGH, at, place.function)

    def _remove(self, event: CompiledCall) -> Fix:
        if event.as_decorator:
            return Fix(f"Remove the `@torch.compile` decorator of `{event.compiled}`")
        return Fix(f"Call `{event.compiled}` itself instead of its compiled form, or warm it up before the capture")
