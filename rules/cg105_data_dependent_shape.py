"""CG105: a result whose size the host must read."""

from __future__ import annotations

from cgsafe.events import SizeRead
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule

_INSTEAD = {
    "mask": "keep the shape and choose with `torch.where(mask, ..., ...)`, or index with positions made before the capture",
    "nonzero": "use `torch.nonzero_static(..., size=n)`, or a mask and `torch.where`",
    "where": "use the form with three arguments, or a mask",
    "one_hot": "pass `num_classes=`",
    "repeat_interleave": "pass `output_size=`",
    "masked_select": "keep the shape and choose with `torch.where`",
}


class DataDependentShape(Rule):
    """The size of a result depends on values on the device, so the host reads how many there are.

    `x[mask]`, `nonzero`, `torch.where(mask)`, `unique`, `masked_select`, `repeat_interleave` without `output_size=` and
    `one_hot` without `num_classes=` copy a count from the device. A captured graph could not use another count anyway:
    its shapes are fixed.
    """

    code = "CG105"
    name = "data-dependent-shape"
    severity = Severity.ERROR
    instead = "Keep the shape fixed: `torch.where`, a mask, `nonzero_static`, or give the size (`output_size=`, `num_classes=`)."
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "For tensors on the CPU. `x[mask] = number` is fine: it fills in place."

    def on_size_read(self, event: SizeRead) -> Hit | None:
        what = (
            "a boolean mask picks the elements" if event.how == "mask" else f"`{event.how}` gives as many as there are"
        )
        message = f"`{event.source}`: {what}, so the host waits for the GPU to learn the size"
        if event.why:
            message += f"; {event.why}"
        advice = _INSTEAD.get(event.how, "keep the shape fixed, or do it before the capture")
        return Hit(message, Fix(advice[0].upper() + advice[1:]))
