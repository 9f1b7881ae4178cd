"""CG301: captured or compiled code calls a function that is compiled on its own."""

from __future__ import annotations

from cgsafe.events import CompiledCall
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule

# Backends that only trace: measured to work in a capture, warmed up or not.
_NO_CODE_GENERATION = ("'eager'", "'aot_eager'", "'aot_eager_decomp_partition'")
_OWN_GRAPHS = ("'reduce-overhead'", "'max-autotune'")


class NestedCompile(Rule):
    """A function with its own torch.compile is called from captured code or from inside another torch.compile.

    Measured, by arrangement. Straight from code that Dynamo traces, the inner function is inlined: its own mode is
    ignored, and once the outer compile is off it compiles alone. Behind a custom operator, or in a capture that nothing
    else compiles, it compiles at its first call with new shapes, dtypes or other optional arguments; if the warm-up did
    not make that very call, the capture does, and the compiler's set-up or its kernel timing fails the capture. With
    `mode="max-autotune"` or `"reduce-overhead"` it records CUDA graphs of its own, which no capture allows, warm or not.
    """

    code = "CG301"
    name = "nested-compile"
    severity = Severity.ERROR
    instead = (
        "Remove the inner torch.compile where an outer one covers it; else warm it up with the very same arguments."
    )
    error = (
        "RuntimeError: Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned; "
        "or torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    )
    allowed = "Where the warm-up calls it with the same shapes, dtypes and optional arguments, in the same grad mode."

    def on_compiled_call(self, event: CompiledCall) -> Hit | None:
        assert event.decorator is not None
        options = dict(event.options)
        backend, mode = options.get("backend", ""), options.get("mode", "")
        if backend in _NO_CODE_GENERATION:
            return None
        what = "its `@torch.compile`" if event.as_decorator else "the `torch.compile` around it"
        place = event.decorator
        at = (place.path, place.line, place.column, place.end_line, place.end_column)
        region = event.region
        if region.traced and not region.behind_op:
            message = (
                f"`{event.compiled}` is called from code that is compiled already and is inlined there: {what} is redundant, "
                "and compiles on its own as soon as the outer compile is off"
            )
            return Hit(message, self._remove(event), Severity.WARNING, None, at, place.function)
        where = (
            f"inside the custom operator `{region.behind_op}`, which no outer compile looks into"
            if region.behind_op
            else "in captured code that nothing else compiles"
        )
        if mode in _OWN_GRAPHS or backend == "'cudagraphs'":
            setting = f"mode={mode}" if mode in _OWN_GRAPHS else f"backend={backend}"
            message = (
                f"`{event.compiled}` is called {where}: {what} ({setting}) records CUDA graphs of its own, which fails "
                "while another graph is captured, whether it was warmed up or not"
            )
            return Hit(message, self._remove(event), None, Confidence.HIGH, at, place.function)
        changes = (
            "dtypes or other optional arguments"
            if options.get("dynamic") == "True"
            else "shapes, dtypes or other optional arguments"
        )
        message = (
            f"`{event.compiled}` is called {where}: {what} compiles it at its first call with new {changes}; unless "
            "the warm-up made that very call, this happens during the capture, and compiling or tuning kernels fails it"
        )
        if event.unless:
            message += "; whether it is compiled is decided by " + ", ".join(f"`{test}`" for test in event.unless)
        return Hit(
            message,
            self._remove(event),
            None,
            Confidence.HIGH if region.explicit else Confidence.MEDIUM,
            at,
            place.function,
            unless_warmed=True,
        )

    def _remove(self, event: CompiledCall) -> Fix:
        if event.as_decorator:
            advice = f"Remove the `@torch.compile` decorator of `{event.compiled}`"
            return Fix(advice, "unsafe", transform=("remove-decorator",))
        advice = f"Call `{event.compiled}` itself instead of its compiled form, or warm it up before the capture"
        return Fix(advice, "unsafe", transform=("unwrap-call", "torch.compile"))
