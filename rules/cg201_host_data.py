"""CG201 to CG204: captured code copies host data to the device."""

from __future__ import annotations

from cgsafe.events import HostCopy
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule

_ERROR = (
    "RuntimeError: Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. "
    "Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
)


class HostData(Rule):
    """`torch.tensor(data, device=...)` builds the tensor on the host and copies it to the device.

    So do `torch.as_tensor` of Python data and `Tensor.new_tensor`, for a single number too. The copy is from pageable
    memory, which no capture permits. `torch.full`, `zeros`, `ones` and `arange` fill on the device instead.
    """

    code = "CG201"
    name = "host-data"
    severity = Severity.ERROR
    instead = "Fill on the device (`torch.full((), value, device=d)`, `arange`, `stack`), or make the tensor once, as a buffer."
    error = _ERROR
    allowed = "For tensors that stay on the CPU, and for an empty list."

    def on_host_copy(self, event: HostCopy) -> Hit | None:
        if event.how != "data":
            return None
        message = f"`{event.source}` makes a tensor of host data and copies it to the GPU"
        advice = "Fill on the device (`torch.full((), value, device=...)`, `torch.arange`), or make the tensor once, as a buffer"
        return Hit(message, Fix(advice, "safe", transform=("data-to-full", event.number)))


class PageableCopy(Rule):
    """A copy from ordinary host memory to the device, or a blocking one from pinned memory.

    Tensors that are made without `device=` lie in pageable memory. Copying them to the device during a capture is an
    error, `non_blocking=True` or not; from pinned memory only a non-blocking copy can be recorded.
    """

    code = "CG202"
    name = "pageable-copy"
    severity = Severity.ERROR
    instead = "Make the tensor on the device (`device=x.device`), or once before the capture, as a buffer."
    error = _ERROR
    allowed = (
        "From pinned memory with `non_blocking=True`, if the memory stays alive and is refilled before each replay."
    )

    def on_host_copy(self, event: HostCopy) -> Hit | None:
        if event.how == "pageable":
            message = f"`{event.source}` copies a tensor on the CPU to the GPU, from pageable memory"
            advice = "Make the tensor on the device (`device=`), or once before the capture, as a buffer"
            return Hit(message, Fix(advice, "safe", transform=("make-on-device",)))
        if event.how == "pinned":
            message = f"`{event.source}` copies from pinned memory to the GPU and waits for it"
            advice = "Pass `non_blocking=True`, and keep the pinned tensor alive as long as the graph"
            return Hit(message, Fix(advice, "unsafe", transform=("copy-without-waiting",)))
        return None


class HostIndex(Rule):
    """A device tensor is indexed by a list, an array or a CPU tensor: the indices are copied to the device first.

    `x[[0, 2]]` looks like `x[0:2]`, and copies from pageable memory. The same holds for assignment.
    """

    code = "CG203"
    name = "host-index"
    severity = Severity.ERROR
    instead = "Use slices, or an index tensor on the device that is made once, as a buffer (`index_select`)."
    error = _ERROR
    allowed = "For tensors on the CPU; integers, slices and a tuple of these are fine."

    def on_host_copy(self, event: HostCopy) -> Hit | None:
        if event.how != "index":
            return None
        message = (
            f"`{event.source}` indexes a tensor on the GPU by `{event.index}` on the host, which is copied there first"
        )
        advice = "Use a slice, or an index tensor on the device that is made once, as a buffer"
        return Hit(message, Fix(advice, "unsafe", transform=("list-to-slice",)))


class ScalarStore(Rule):
    """A Python number is assigned to a single element of a device tensor, or under an index tensor.

    Where integers index all dimensions the destination is 0-dim, and the number is copied from the host;
    `x[i:i + 1] = 0` and `x[i].fill_(0)` fill on the device. Under an index tensor the number is copied as well.
    """

    code = "CG204"
    name = "scalar-store"
    severity = Severity.ERROR
    instead = "Fill on the device: `x[i].fill_(value)`, `x[i:i + 1] = value`, `x.index_fill_(0, index, value)`."
    error = _ERROR
    allowed = "Where a dimension is left over (`x[i] = 0` on two dimensions fills), under a slice, and under one boolean mask."

    def on_host_copy(self, event: HostCopy) -> Hit | None:
        if event.how != "setitem":
            return None
        message = f"`{event.source} = ...` stores a Python number into the GPU by copying it from the host"
        if not event.number or not event.picks:
            # What an index tensor picks is a copy: `x[index].fill_()` would change nothing.
            advice = "Fill on the device: `fill_` on a view, `index_fill_` by an index, `masked_fill_` by a mask"
            return Hit(message, Fix(advice))
        if event.picks == "rows":
            advice = "Fill on the device: `x.index_fill_(0, index, value)`"
            return Hit(message, Fix(advice, "unsafe", transform=("store-to-fill", "rows")))
        advice = f"Fill on the device: `{event.source}.fill_(...)`, or assign to a slice"
        return Hit(message, Fix(advice, "safe", transform=("store-to-fill",)))
