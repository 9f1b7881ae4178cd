"""What captured code leaves behind: attributes, globals and items that outlive the call that sets them.

A replay runs no Python. What was stored while the graph was recorded stays as it was then: a tensor of the graph's own
memory pool, or a number of that moment.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from cgsafe.events import AttributeSet
from cgsafe.index.asked import reads_pattern
from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    HIGH,
    MEDIUM,
    Const,
    Dict,
    Host,
    Instance,
    Seq,
    Tensor,
    Value,
    kind_of,
    on_device,
    parts_of,
)

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

NUMBERS = ("int", "float", "number")
# Methods that give a tensor itself where it is as asked for.
_SETTLING = frozenset("bfloat16 contiguous cpu cuda detach double float half int long to type type_as".split())
_VIEWS = frozenset(["narrow", "squeeze", "t", "transpose", "unsqueeze", "view", "view_as"])


class Stores:
    """Mixin of Frame."""

    def note_attribute(
        self: Frame, node: Any, base: Value, name: str, value: Value, origin: ast.expr | None, how: str = "attribute"
    ) -> None:
        """`base.name = value` in captured code."""
        if not self._leaves_behind():
            return
        if isinstance(origin, ast.BinOp) and isinstance(origin.op, (ast.Add, ast.Sub)) and kind_of(value) in NUMBERS:
            # `self.steps = self.steps + 1`
            if ast.unparse(origin.left) == _spelled(node, name):
                how = "counter"
        for part in parts_of(base):
            if how == "counter":
                if isinstance(part, Instance) and not part.state.transient and not self.tests and not self.augmenting:
                    self._emit_store(node, _spelled(node, name), how, HIGH, owner=part.state)
            elif isinstance(part, Instance) and not part.state.transient:
                self._note_store(node, f"{_spelled(node, name)}", name, value, origin, how, part.state)
            elif isinstance(part, Tensor) and name == "data" and part.device == "cuda":
                self._note_store(node, _spelled(node, name), name, value, origin, "data", None)

    def note_counter(self: Frame, node: ast.AugAssign, value: Value) -> None:
        """`self.steps += 1` in captured code: a number on the host that a replay does not change."""
        target = node.target
        if not self._leaves_behind() or self.tests or not isinstance(node.op, (ast.Add, ast.Sub)):
            return
        if isinstance(target, ast.Attribute) and kind_of(value) in NUMBERS:
            for part in parts_of(self.eval(target.value)):
                if isinstance(part, Instance) and not part.state.transient:
                    self._emit_store(node, ast.unparse(target), "counter", HIGH, owner=part.state)
        elif isinstance(target, ast.Name) and self._is_global(target.id):
            # What starts with a constant, and functions bind anew.
            before = self.walker.module_name(self.file, target.id)
            if isinstance(before, (Const, Host)) and kind_of(self.eval(node.value)) in NUMBERS:
                self._emit_store(node, target.id, "counter", HIGH)

    def note_global(self: Frame, node: ast.expr, name: str, value: Value, origin: ast.expr | None) -> None:
        """A name that the function declares `global` is set."""
        if self._leaves_behind():
            self._note_store(node, name, name, value, origin, "global", None)

    def note_item(self: Frame, target: ast.Subscript, base: Value, value: Value) -> None:
        """`table[key] = tensor`, where the table belongs to an object or to the module."""
        if not self._leaves_behind():
            return
        holder = target.value
        if not any(isinstance(p, (Dict, Seq)) for p in parts_of(base)):
            return
        if isinstance(holder, ast.Attribute):
            owners = [p for p in parts_of(self.eval(holder.value)) if isinstance(p, Instance)]
            if any(not p.state.transient for p in owners):
                self._note_store(target, ast.unparse(holder), holder.attr, value, None, "item", owners[0].state)
        elif isinstance(holder, ast.Name) and self._is_module_level(holder.id):
            self._note_store(target, holder.id, holder.id, value, None, "item", None)

    def note_append(self: Frame, node: Any, value: Value) -> None:
        """`self.states.append(tensor)`, where no line of the function empties the list."""
        if not self._leaves_behind() or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        holder = node.func.value
        if not isinstance(holder, ast.Attribute) or not on_device(value)[0]:
            return
        owners = [p for p in parts_of(self.eval(holder.value)) if isinstance(p, Instance)]
        if not owners or any(p.state.transient for p in owners):
            return
        first, last = self._span()
        emptied = re.compile(
            rf"\.{re.escape(holder.attr)}(?:\s*(?::[^=\n]+)?=(?!=)|\.(?:clear|pop|popleft)\b|\[:\]\s*=)"
        )
        if any(emptied.search(text) for text in self.walker.raw_text(self.file).lines[first - 1 : last]):
            return
        confidence = min(on_device(value)[1], MEDIUM)
        read = self._read_elsewhere(node, holder.attr)
        self._emit_store(node, ast.unparse(holder), "append", confidence, owner=owners[0].state, read_elsewhere=read)

    def _leaves_behind(self: Frame) -> bool:
        """True in code that a capture calls. The block of the capture itself keeps its outputs on purpose."""
        return self.region.captured and not self.walker.shallow and self.sink is self.node

    def keeps_results(self: Frame, definition: Any) -> bool:
        """True for a function under `functools.lru_cache` and the like."""
        return any(d in self.tables.caches or f"functools.{d}" in self.tables.caches for d in definition.decorators)

    def _note_cached(self: Frame, node: Any) -> None:
        """A tensor is allocated by a function that runs once, and whose result a cache keeps."""
        definition = self.node.definition
        if definition is None or not definition.decorators or not self._leaves_behind():
            return
        if self.keeps_results(definition):
            signature = ("cached", definition.label)
            self._emit_store(node, definition.name, "cached", HIGH, fresh=True, signature=signature)

    def _note_store(
        self: Frame, node: Any, spelled: str, name: str, value: Value, origin: ast.expr | None, how: str, owner: Any
    ) -> None:
        waits, confidence = on_device(value)
        if not waits or self.augmenting or _in_place(origin) or _settles(origin, spelled) or _is_part(origin):
            return
        if how == "attribute" and self._put_back(node, name):
            return
        self._emit_store(
            node,
            spelled,
            how,
            confidence,
            guard=self._guard(spelled, name),
            fresh=self._allocates(origin),
            owner=owner,
            read_elsewhere=how not in ("attribute", "setattr")
            or _reads(origin, spelled)
            or self._read_elsewhere(node, name),
        )

    def _emit_store(self: Frame, node: Any, spelled: str, how: str, confidence: int, **details: Any) -> None:
        self.emit(AttributeSet, node, confidence, source=spelled, name=spelled, how=how, **details)

    def _guard(self: Frame, spelled: str, name: str) -> str:
        """The condition above that looks at what is set: it happens at the first call, or when something has grown."""
        for test in reversed(self.tests):
            text = ast.unparse(test)
            if spelled in text or re.search(rf"\b{re.escape(name)}\b", text):
                return text
        return ""

    def _allocates(self: Frame, origin: ast.expr | None) -> bool:
        """True where an expression makes a tensor of its own accord."""
        if isinstance(origin, ast.Name):
            origin = self.origins.get(origin.id)
        if not isinstance(origin, ast.Call):
            return False
        function = origin.func
        last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        return last in self.tables.allocators

    def _is_global(self: Frame, name: str) -> bool:
        return self.shape is not None and name in self.shape.globals

    def _is_module_level(self: Frame, name: str) -> bool:
        TRAIL.deps.add(("r", self.file.path, name))
        return name in self.file.raw["names"] and self.shape is not None and name not in self.shape.locals

    def _span(self: Frame) -> tuple[int, int]:
        definition = self.node.definition
        return (definition.first, definition.last) if definition is not None else (0, 0)

    def _put_back(self: Frame, node: Any, name: str) -> bool:
        """True where the same function later clears what it sets: a way to hand something down."""
        _, last = self._span()
        line = node.lineno + self.offset
        pattern = re.compile(rf"\.{re.escape(name)}\s*=\s*None\b|\bdel\b.*\.{re.escape(name)}\b")
        return any(pattern.search(text) for text in self.walker.raw_text(self.file).lines[line:last])

    def _read_elsewhere(self: Frame, node: Any, name: str) -> bool:
        """True where code other than what follows in this function reads an attribute of this name."""
        definition = self.node.definition
        line = node.lineno + self.offset
        pattern = reads_pattern(name)
        top = definition
        while top is not None and not top.known:
            top = top.outer
        if definition is None or top is None:
            lines = self.walker.text(self.file).lines
            around = (*lines[: line - 1], *lines[self._span()[1] :])
        else:
            lines = self.walker.raw_text(self.file).lines
            around = (*lines[top.first - 1 : line - 1], *lines[definition.last : top.last])
        if any(pattern.search(text) for text in around):
            return True
        if top is not None and self.walker.ask(self.file, "reads outside", name, top.qualname):
            return True
        return self.region.explicit and self.walker.reads_attribute(name, self.file.path)


def _spelled(node: Any, name: str) -> str:
    if isinstance(node, ast.Attribute):
        return ast.unparse(node)
    if isinstance(node, ast.Call) and node.args:
        holder = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
        return f"{ast.unparse(holder)}.{name}"
    return name


def _reads(origin: ast.expr | None, spelled: str) -> bool:
    """True where a value is made from what the target held before: the next call reads what this one leaves."""
    return origin is not None and any(
        isinstance(node, ast.Attribute) and ast.unparse(node) == spelled for node in ast.walk(origin)
    )


def _settles(origin: ast.expr | None, spelled: str) -> bool:
    """`self.x = self.x.to(device)`: from the second call on, this gives the tensor itself."""
    if not isinstance(origin, ast.Call):
        return False
    while isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute) and origin.func.attr in _SETTLING:
        origin = origin.func.value
    return isinstance(origin, ast.Attribute) and ast.unparse(origin) == spelled


def _is_part(origin: ast.expr | None) -> bool:
    """`self.buffer[:4]`: the memory is that of another attribute, which stays."""
    part = False
    while origin is not None:
        if isinstance(origin, ast.Subscript):
            indices = origin.slice.elts if isinstance(origin.slice, ast.Tuple) else [origin.slice]
            if not all(isinstance(i, (ast.Slice, ast.Constant)) for i in indices):
                return False
            origin, part = origin.value, True
        elif isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute) and origin.func.attr in _VIEWS:
            origin, part = origin.func.value, True
        else:
            break
    return part and isinstance(origin, ast.Attribute)


def _in_place(origin: ast.expr | None) -> bool:
    """`x.add_(1)` gives x itself."""
    if not isinstance(origin, ast.Call) or not isinstance(origin.func, ast.Attribute):
        return False
    name = origin.func.attr
    return name.endswith("_") and not name.endswith("__")
