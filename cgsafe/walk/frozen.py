"""What a replay repeats as it was: outcomes of calls on the host, branches on Python state, numbers, addresses.

A replay runs no Python. Whatever captured code asked of the host while the graph was recorded is in the graph since.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cgsafe.events import FrozenBranch, FrozenCall, HostOperand, HostRing, UnbrokenRead
from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    HIGH,
    MEDIUM,
    Bound,
    Const,
    Ext,
    ExtMethod,
    Func,
    Host,
    Instance,
    Tensor,
    Value,
    kind_of,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.paths import dotted_path
from cgsafe.walk.stores import NUMBERS

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


class Frozen:
    """Mixin of Frame."""

    def note_frozen_call(self: Frame, name: str, args: Arguments, node: Any) -> None:
        """A call that is made once, when the graph is recorded."""
        how = self.tables.frozen_call(name)
        if not how and name.rpartition(".")[2] in self.tables.allocators:
            self._note_cached(node)
        if how == "cpu-random":
            return  # see note_host_draw
        if how == "text":
            given = node.args[0] if getattr(node, "args", None) else None
            if not isinstance(given, (ast.JoinedStr, ast.BinOp, ast.Call)):
                return  # the text lives as long as whoever holds it
        elif not how and name.startswith("torch."):
            pinned = args.keywords.get("pin_memory")
            if not (isinstance(pinned, Const) and pinned.value is True) or self._is_kept(node):
                return
            how = "pinned"
        if how:
            self.emit(FrozenCall, node, HIGH, how=how, called=name)

    def note_host_draw(self: Frame, value: Value, node: ast.AST) -> None:
        """The host reads a tensor on the CPU: was it drawn at random?"""
        if not any(isinstance(p, Tensor) and p.device == "cpu" for p in parts_of(value)):
            return
        for inner in ast.walk(node):
            drawn: Any = self.origins.get(inner.id) if isinstance(inner, ast.Name) else inner
            if not isinstance(drawn, ast.Call):
                continue
            called = self.eval(drawn.func)
            if not isinstance(called, Ext) or self.tables.frozen_call(called.name) != "cpu-random":
                continue
            made = self.eval(drawn)
            if isinstance(made, Tensor) and made.device == "cpu":
                self.emit(FrozenCall, drawn, made.confidence, how="cpu-random", called=called.name)

    def note_frozen_method(self: Frame, receiver: Tensor, name: str, node: Any) -> None:
        """A method of a tensor that is called once, when the graph is recorded."""
        how = self.tables.frozen_methods[name]
        if how == "address" and not self._keeps_address_alone(node):
            return
        if how == "pinned" and (receiver.device == "cuda" or self._is_kept(node)):
            return
        self.emit(FrozenCall, node, HIGH, how=how, called=name)

    def _keeps_address_alone(self: Frame, node: Any) -> bool:
        """True where a function keeps the address of a tensor that it made, and not the tensor."""
        if not isinstance(node, ast.Call) or self.shape is None or not isinstance(node.func, ast.Attribute):
            return False
        holder = node.func.value
        if not isinstance(holder, ast.Name) or holder.id in self.shape.named or holder.id not in self.shape.locals:
            return False
        address = kept = False
        for statement in self.shape.body:
            for inner in ast.walk(statement):
                stored = _stored(inner)
                if stored is None:
                    continue
                if any(child is node for child in ast.walk(stored)):
                    address = True
                elif any(_names(stored, holder.id)):
                    kept = True
        return address and not kept

    def _is_kept(self: Frame, node: Any) -> bool:
        """True where an object or a table keeps what a call makes."""
        if self.shape is None:
            return False
        for statement in self.shape.body:
            for inner in ast.walk(statement):
                targets = inner.targets if isinstance(inner, ast.Assign) else ()
                if any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in targets):
                    if any(child is node for child in ast.walk(inner.value)):  # type: ignore[attr-defined]
                        return True
        return False

    def note_ring(self: Frame, node: Any, source: Value | None) -> None:
        """`device.copy_(pinned)` and later `pinned.copy_(device)` in one graph."""
        if not self.region.captured or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return
        if source is not None:
            path = dotted_path(node.args[0]) if node.args else None
            if path is not None and any(isinstance(p, Tensor) and p.device == "pinned" for p in parts_of(source)):
                self.host_sources.add(path)
            return
        path = dotted_path(node.func.value)
        if path is not None and path in self.host_sources:
            self.emit(HostRing, node, HIGH, name=path)

    def note_unbroken(self: Frame) -> None:
        """A module-level function without the eager break that others around it have, reading what these read."""
        definition = self.node.definition
        if definition is None or definition.cls is not None or definition.outer is not None:
            return
        breaks = self.walker.eager_breaks(definition.file)
        if not breaks or definition.name in breaks:
            return
        own = self.walker.step_state(definition)
        for name, (decorator, state) in sorted(breaks.items()):
            shared = sorted(own & state)
            if shared:
                head = ast.copy_location(ast.Name(definition.name, ast.Load()), definition.node)
                head.end_lineno, head.end_col_offset = head.lineno, head.col_offset + len(f"def {definition.name}")
                self.emit(UnbrokenRead, head, MEDIUM, state=shared[0], sibling=name, decorator=decorator)
                return

    def note_operands(self: Frame, left: Value, right: Value, node: Any) -> None:
        """`device_tensor * number_on_the_cpu`, where an object holds the number."""
        if not self.region.captured:
            return
        if isinstance(node, ast.AugAssign):
            sides: tuple[ast.expr, ast.expr] = (node.target, node.value)
        elif isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
        elif isinstance(node, ast.Compare):
            sides = (node.left, node.comparators[-1])
        elif isinstance(node, ast.Call) and len(node.args) == 2:
            sides = (node.args[0], node.args[1])
        elif isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Attribute):
            sides = (node.func.value, node.args[0])
        else:
            return
        if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
            number, side = (right, sides[1]) if isinstance(left, Tensor) else (left, sides[0])
            if isinstance(side, ast.Attribute) and kind_of(number) in NUMBERS:
                changed = self._changed_by(side, [])
                if changed:
                    self.emit(FrozenBranch, node, MEDIUM, changed=changed, used=ast.unparse(side))
            return
        on_host = left if right.device == "cuda" else right
        if {left.device, right.device} not in ({"cpu", "cuda"}, {"", "cuda"}) or on_host.rank != 0:
            return
        chain: Any = sides[0] if on_host is left else sides[-1]
        while isinstance(chain, ast.Subscript) or (
            isinstance(chain, ast.Call) and isinstance(chain.func, ast.Attribute)
        ):
            chain = chain.value if isinstance(chain, ast.Subscript) else chain.func.value  # type: ignore[attr-defined]
        if not isinstance(chain, ast.Attribute):
            return
        for owner in parts_of(self.eval(chain.value)):
            if not isinstance(owner, Instance) or owner.state.transient:
                continue
            made = self.walker.classes.made_at(owner.definition, chain.attr)
            confidence = on_host.confidence
            if not on_host.device:
                # Made without `device=`, by an object that is not moved with the modules.
                if made is None or self.walker.classes.is_module(owner.definition) or self._says_device(made):
                    continue
                confidence = min(confidence, MEDIUM)
            self.emit(HostOperand, node, confidence, name=ast.unparse(chain), made=made)
            return

    def _says_device(self: Frame, place: Any) -> bool:
        file = self.walker.project.files[place.path]
        lines = self.walker.raw_text(file).lines[place.line - 1 : place.end_line]
        return any("device" in line or ".cuda(" in line or ".to(" in line for line in lines)

    def note_branch(self: Frame, node: ast.If | ast.IfExp) -> None:
        """A branch that is not certain: does it hang on Python state that other code changes?"""
        body: list[Any] = node.body if isinstance(node, ast.If) else [node.body]
        if all(isinstance(s, (ast.Raise, ast.Assert)) for s in body):
            return
        parts = list(ast.walk(node.test))
        if any(isinstance(part, ast.Attribute) and part.attr == "training" for part in parts):
            return  # a matter of training
        for part in parts:
            if isinstance(part, ast.Name):
                changed = self._rebound_constant(part)
            elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
                changed = self._changed_by(part, body)
            else:
                continue
            if changed:
                self.emit(FrozenBranch, node.test, MEDIUM, changed=changed)
                return

    def _rebound_constant(self: Frame, part: ast.Name) -> str:
        """A flag or number of the module that functions bind anew."""
        if not self._is_module_level(part.id) or self._is_global(part.id):
            return ""  # what this function itself sets counts, or is made at the first call
        value = self.walker.module_name(self.file, part.id)
        if not isinstance(value, (Const, Host)) or not self._rebinds(self.file, part.id):
            return ""
        return f"`{part.id}` is set anew outside of it"

    def _changed_by(self: Frame, part: ast.Attribute, body: list[Any]) -> str:
        """Who changes an attribute between replays, in words; "" where nobody is seen to."""
        if part.attr in self.tables.fixed:
            return ""
        owners = [p for p in parts_of(self.eval(part.value)) if isinstance(p, Instance)]
        if (
            not owners
            or any(p.state.transient for p in owners)
            or self.walker.classes.is_settings(owners[0].definition)
        ):
            return ""
        value = self.attribute(owners[0], part.attr, None)
        if any(isinstance(p, (Tensor, Func, Bound, ExtMethod)) for p in parts_of(value)):
            return ""
        if any(_sets(inner, part.attr) for statement in body for inner in ast.walk(statement)):
            return ""  # made at the first call: another matter
        source = self._from_rebound_global(part.value)
        if source:
            return f"`{source}` is set anew outside of it"
        called = {n.func.attr for s in body for n in ast.walk(s) if isinstance(n, ast.Call) and hasattr(n.func, "attr")}
        if not self.walker.classes.is_module(owners[0].definition):
            return ""
        for method in self.walker.classes.changers(owners[0].definition, part.attr):
            if method.name in called or self.tables.sets_up(method.name):
                continue  # made at the first call, or before anything is captured
            if method.qualname != self._qualname():
                return f"`{method.qualname}` changes `{ast.unparse(part)}`"
        return ""

    def _qualname(self: Frame) -> str:
        return self.node.definition.qualname if self.node.definition is not None else ""

    def _from_rebound_global(self: Frame, node: ast.expr) -> str:
        """The module-level variable that an object comes from, where functions bind it anew."""
        if isinstance(node, ast.Name):
            if self._is_module_level(node.id):
                return node.id if self._rebinds(self.file, node.id) else ""
            node = self.origins.get(node.id, node)
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            called = self.eval(node.func)
            if isinstance(called, Func) and called.definition.cls is None:
                return self._returned_global(called.definition)
        return ""

    def _rebinds(self: Frame, file: Any, name: str) -> bool:
        """True where a function of the file, other than one that sets things up, declares the name `global` and sets it."""
        rebinding = self.walker.ask(file, "rebinds", name)
        return any(not self.tables.sets_up(qualified.rpartition(".")[2]) for qualified in rebinding)

    def _returned_global(self: Frame, definition: Any) -> str:
        """The rebound module-level variable that a function returns; "" where it returns something else."""
        try:
            body = self.walker.shape(definition).body
        except (SyntaxError, ValueError, RecursionError):
            return ""
        last = body[-1] if body else None
        if isinstance(last, ast.Return) and isinstance(last.value, ast.Name):
            name = last.value.id
            TRAIL.deps.add(("r", definition.file.path, name))
            if name in definition.file.raw["names"] and self._rebinds(definition.file, name):
                return str(name)
        return ""


def _sets(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)


def _stored(node: ast.AST) -> ast.expr | None:
    """What a statement or call hands to something that outlives the function."""
    if isinstance(node, ast.Return):
        return node.value
    if isinstance(node, ast.Assign) and any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in node.targets):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
        if node.func.attr in ("append", "add", "appendleft") and isinstance(node.func.value, ast.Attribute):
            return node.args[0]
    return None


def _names(node: ast.AST, name: str) -> Iterator[ast.Name]:
    """The places where an expression mentions a variable."""
    return (child for child in ast.walk(node) if isinstance(child, ast.Name) and child.id == name)
