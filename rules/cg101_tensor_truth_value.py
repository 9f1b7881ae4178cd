"""CG101: Python asks a device tensor whether it is true."""

from __future__ import annotations

from cgsafe.events import TruthTest
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule

# What to do, by where the truth value is asked for.
_ADVICE = {
    "assert": "drop the check from captured code, make it a check of shapes, or use `torch._assert_async({source})`, "
    "which stays on the device",
    "ternary": "choose on the device with `torch.where({source}, ..., ...)`",
    "or": "test for None (`x if x is not None else y`) where a missing value is meant, or choose with `torch.where`",
    "and": "decide from a value on the host, or combine on the device with `torch.logical_and`",
    "in": "compare on the device and keep the result there (`(tensor == value).any()` without asking for its truth), or "
    "look the value up in a host copy made before the capture",
    "max": "use `torch.maximum` (or `torch.stack(...).amax()`), which stays on the device",
    "min": "use `torch.minimum` (or `torch.stack(...).amin()`), which stays on the device",
    "sorted": "use `torch.sort`, which stays on the device",
    "any": "use `torch.any` and keep the result on the device",
    "all": "use `torch.all` and keep the result on the device",
    "while": "bound the loop by a number known on the host, and mask the steps that are not needed with `torch.where`",
}
_DEFAULT = (
    "keep the decision on the device (`torch.where({source}, ..., ...)`, `torch.maximum`, a mask), take it from a value "
    "that the host already has, or take it before the capture"
)
_WHERE = {
    "if": "the `if` on it",
    "elif": "the `elif` on it",
    "while": "the `while` on it",
    "assert": "the `assert` of it",
    "ternary": "the conditional expression on it",
    "comprehension": "the condition of the comprehension",
    "in": "`in`, which compares and asks for the result's truth,",
    "compare": "the comparison, which asks for the truth of its parts,",
    "guard": "the `case` guard on it",
    "match": "the `case` pattern",
    "index": "the search, which compares,",
}


class TensorTruthValue(Rule):
    """The truth value of a device tensor makes the host wait for the GPU.

    `if tensor:`, `while`, `assert`, `and`, `or`, `not`, `in`, chained comparisons and the builtins `any`, `all`, `max`,
    `min` and `sorted` call `Tensor.__bool__`, which copies the value to the host. While a CUDA graph is being captured
    the copy is an error, and the branch that was taken would be frozen into the graph. A comparison of a tensor with a
    number looks like one of two numbers; what counts is where its operands come from.
    """

    code = "CG101"
    name = "tensor-truth-value"
    severity = Severity.ERROR
    instead = "Keep the decision on the device (`torch.where`, `torch.maximum`, a mask), or decide on the host before."
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "For tensors on the CPU, and where the code asks `torch.cuda.is_current_stream_capturing()` first."

    def on_truth_test(self, event: TruthTest) -> Hit | None:
        where = _WHERE.get(event.form, f"`{event.form}` on it")
        message = f"`{event.source}` is a tensor on the GPU; {where} makes the host wait for its value"
        if event.partly:
            message = (
                f"`{event.source}` may be a tensor on the GPU (or {event.partly}); {where} then waits for its value"
            )
        if event.why:
            message += f"; {event.why}"
        # Measured: the compiler turns these into device-side code where it traces them.
        traced = event.region.traced and not event.region.behind_op and event.form in ("assert", "max", "min")
        advice = self._advice(event)
        return Hit(
            message,
            Fix(advice[0].upper() + advice[1:]),
            confidence=Confidence.LOW if traced else None,
            group=event.group,
        )

    def _advice(self, event: TruthTest) -> str:
        plain = event.source.replace(".", "").replace("_", "").isalnum()
        if event.raises:
            return _ADVICE["assert"].format(source=event.source)
        if event.form in ("max", "min") and event.source.count(",") == 0:
            return f"use the tensor's own `.{event.form}()`, which stays on the device"
        if plain and event.form in ("if", "elif", "ternary", "and", "or", "not"):
            return (
                f"if a missing value is meant, test `{event.source} is not None`; else choose on the device with "
                f"`torch.where({event.source}, ..., ...)`, or decide on the host before the capture"
            )
        return _ADVICE.get(event.form, _DEFAULT).format(source=event.source)
