"""The other direction: host data that captured code copies to the device, by a call, an index or an assignment.

What does and what does not was measured (PyTorch 2.11, H200): any data given to `torch.tensor(..., device=)`, copies from
pageable memory, blocking copies from pinned memory, lists and CPU tensors as indices, Python numbers stored under a full
integer index.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import HostCopy
from cgsafe.values import (
    HIGH,
    LOW,
    MEDIUM,
    NUMPY,
    UNKNOWN,
    Const,
    ExtInstance,
    Host,
    Seq,
    Tensor,
    Value,
    kind_of,
    on_device,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.facts import matches

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

_NUMBERS = ("int", "float", "bool", "number")


class HostCopies:
    """Mixin of Frame."""

    def note_data(self: Frame, data: Value | None, device: str, confidence: int, node: Any) -> None:
        """`torch.tensor(data, device="cuda")` and its like."""
        if device != "cuda" or data is None:
            return
        number = _number_of(data)
        for part in parts_of(data):
            if isinstance(part, Tensor):
                self.note_move(part, "cuda", Arguments([part]), node, confidence)
            elif isinstance(part, Seq):
                inner = part.element
                if _is_empty(part) or (inner is not None and any(isinstance(p, Tensor) for p in parts_of(inner))):
                    continue  # nothing to copy, or read item by item
                self.emit(HostCopy, node, confidence, how="data")
            elif isinstance(part, (Const, Host)) or part is NUMPY:
                self.emit(HostCopy, node, confidence, how="data", number=number)

    def note_move(self: Frame, value: Value, device: str, args: Arguments, node: Any, confidence: int = HIGH) -> None:
        """A tensor goes to the device: from pageable memory that fails, from pinned memory unless it is non-blocking."""
        if device != "cuda":
            return
        given = [*args.positional[1:], args.keywords.get("non_blocking")]
        unblocked = any(isinstance(a, Const) and a.value is True for a in given)
        for part in parts_of(value):
            if not isinstance(part, Tensor):
                continue
            if part.device == "cpu":
                # Of what is on the host by its name alone, whoever does not block most likely has pinned it.
                sure = LOW if unblocked and self._host_by_name(node) else HIGH
                self.emit(HostCopy, node, min(part.confidence, confidence, sure), how="pageable")
            elif part.device == "pinned" and not unblocked:
                self.emit(HostCopy, node, min(part.confidence, confidence), how="pinned")

    def note_index(self: Frame, base: Tensor, node: ast.Subscript, store: bool = False) -> bool:
        """Indices of a device tensor: those on the host are copied, 0-dim ones on the device are read.

        Returns True where a boolean mask on the device picks the elements.
        """
        masked = False
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if isinstance(part, (ast.Slice, ast.Constant)):
                continue
            for key in parts_of(self.eval(part)):
                if (isinstance(key, Seq) and key.kind != "tuple" and not _stays(key)) or key is NUMPY:
                    self.emit(HostCopy, node, base.confidence, how="index", index=ast.unparse(part))
                elif isinstance(key, Tensor) and key.device in ("cpu", "pinned") and key.rank not in (0, None):
                    if key.dtype != "b" or store:
                        confidence = min(base.confidence, key.confidence)
                        self.emit(HostCopy, node, confidence, how="index", index=ast.unparse(part))
                elif isinstance(key, Tensor) and key.device == "cuda":
                    if key.dtype == "" and _is_mask(part, self.tables.mask_suffixes):
                        key = key.with_(dtype="b", confidence=min(key.confidence, MEDIUM))
                    if key.dtype == "b" and key.rank != 0:
                        masked = True
                        if not store:
                            self.read_size(key, node, "mask")
                    elif key.dtype == "i" and key.rank == 0:
                        self.read_host(key, part, "index")
        return masked

    def note_store(self: Frame, base: Tensor, key: Value, value: Value, target: ast.Subscript) -> None:
        """`tensor[key] = value` on a device tensor."""
        masked = self.note_index(base, target, True)
        for part in parts_of(value):
            if isinstance(part, Tensor):
                if part.device in ("cpu", "pinned"):
                    # The number in a 0-dim one fills what a mask or slices leave, and is copied to a single element.
                    if part.rank != 0 or not (masked or self._leaves_some(base, target)):
                        how = "pageable" if part.device == "cpu" else "pinned"
                        self.emit(HostCopy, target, min(base.confidence, part.confidence), how=how)
                elif masked and part.device == "cuda":
                    self.read_size(part, target, "mask")
            elif isinstance(part, Host | Const) and kind_of(part) in _NUMBERS and not masked:
                indices = [p for k in (key.items or ()) for p in parts_of(k)] if isinstance(key, Seq) else parts_of(key)
                rows = any(
                    isinstance(k, Tensor) and k.device == "cuda" and k.rank != 0 and k.dtype == "i" for k in indices
                )
                if rows or self._picks_one(base, target):
                    picks = "rows" if rows and all(isinstance(k, Tensor) and k.rank == -1 for k in indices) else ""
                    picks = picks if rows else "element"
                    if not all(isinstance(p, Tensor) for p in parts_of(self.eval(target.value))):
                        picks = ""
                    number = _number_of(value)
                    self.emit(HostCopy, target, base.confidence, how="setitem", number=number, picks=picks)

    def _picks_one(self: Frame, base: Tensor, target: ast.Subscript) -> bool:
        """True where integers index every dimension, so that the destination is 0-dim."""
        elements = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        if base.rank == 0:
            return True
        if any(isinstance(e, ast.Slice) for e in elements):
            return False
        values = [self.eval(e) for e in elements]
        if not all(kind_of(v) == "int" and isinstance(v, (Const, Host)) for v in values):
            return False
        # Of a tensor of unknown rank two integers pick one element more often than not.
        return base.rank == -len(elements) or (len(elements) == 2 and base.rank is None)

    def _leaves_some(self: Frame, base: Tensor, target: ast.Subscript) -> bool:
        """True where slices, or integers in fewer places than there are dimensions, choose what is stored to."""
        elements = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        if any(isinstance(e, ast.Slice) for e in elements):
            return True
        numbers = all(kind_of(self.eval(e)) == "int" for e in elements)
        return numbers and base.rank is not None and -base.rank > len(elements)

    def read_size(self: Frame, value: Value, node: Any, how: str) -> None:
        """The size of a result depends on values on the device: the host reads how many there are."""
        from cgsafe.events import SizeRead

        waits, confidence = on_device(value)
        if waits:
            self.emit(SizeRead, node, confidence, how=how, why=self.origin_of(node))

    def guess_mask(self: Frame, base: Value, key: Value, node: ast.Subscript) -> None:
        """In a hot path, where much comes from the host, an index that is called a mask most likely is one: a guess."""
        from cgsafe.events import SizeRead

        index = node.slice
        while isinstance(index, (ast.UnaryOp, ast.Subscript)):
            index = index.operand if isinstance(index, ast.UnaryOp) else index.slice
        name = getattr(index, "id", None) or getattr(index, "attr", None) or getattr(index, "value", None)
        if not isinstance(name, str) or not name.endswith(self.tables.mask_suffixes):
            return
        unclear = [p for p in parts_of(key) if p is UNKNOWN or (isinstance(p, Tensor) and p.dtype == "")]
        if unclear and any(p is UNKNOWN or isinstance(p, Tensor) for p in parts_of(base)):
            self.emit(SizeRead, node, LOW, how="mask")

    def note_wait(self: Frame, name: str, node: Any, why: str = "", confidence: int = HIGH) -> None:
        """The host waits for the device, or asks it something, by name; or does something else that `why` tells."""
        from cgsafe.events import DeviceWait

        self.emit(DeviceWait, node, confidence, how=name, why=why)

    def note_waiting_method(self: Frame, receiver: ExtInstance, name: str, args: Arguments, node: Any) -> None:
        last = receiver.name.rpartition(".")[2]
        waits = receiver.name.startswith("torch.") and name in self.tables.waiting_methods.get(last, ())
        if waits:
            self.note_wait(f"{last}.{name}", node)
        elif matches(f"{receiver.name}.{name}", self.tables.library_waits):
            # It waits for what it reads: whoever keeps tensors on the host for it most likely spares it that.
            given = [p for value in args.values() for p in parts_of(value) if isinstance(p, Tensor)]
            spared = any(p.device in ("cpu", "pinned") for p in given)
            self.note_wait(f"{last}.{name}", node, "", LOW if spared else HIGH)


def _number_of(value: Value) -> str:
    """The type of a value that surely is a Python number, else ""."""
    parts = parts_of(value)
    kinds = {kind_of(p) for p in parts if isinstance(p, (Const, Host))}
    if not parts or not all(isinstance(p, (Const, Host)) for p in parts) or not kinds <= {*_NUMBERS}:
        return ""
    return next(iter(kinds)) if len(kinds) == 1 else "number"


def _stays(value: Seq) -> bool:
    """A list as an index that nothing is copied for: empty, of slices, or of tensors on the device."""
    if value.items == () or (value.element is not None and kind_of(value.element) == "slice"):
        return True
    parts = parts_of(value.element) if value.element is not None else []
    return bool(parts) and all(isinstance(p, Tensor) and p.device == "cuda" for p in parts)


def _is_empty(data: Seq) -> bool:
    return data.items is not None and all(isinstance(i, Seq) and _is_empty(i) for i in data.items)


def _is_mask(node: ast.expr, suffixes: tuple[str, ...]) -> bool:
    """True for a variable that is called a mask."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.endswith(suffixes)
