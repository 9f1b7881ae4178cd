"""What an owner sets on the objects that it holds, while it is being made itself.

`self.experts = Experts(); self.experts.norm = norm`, and a method of `Experts` that its owner calls to set something.
Objects that were made alike are one object here, so that of the one at hand a changed copy is kept in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cgsafe.values import UNKNOWN, Instance, Value, join, join_all, parts_of
from cgsafe.walk.paths import dotted_path

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


def set_on_held(frame: Frame, holder: ast.expr, name: str, value: Value) -> None:
    """`holder.name = value` for a holder that was made before."""
    given = {name: value}
    maybe = {name} if frame.branches else ()
    _replace(frame, holder, {p: _changed(frame, p, given, maybe) for p in parts_of(frame.eval(holder))})


def set_by_method(frame: Frame, receiver: Value, call: Any, called: Any) -> None:
    """`holder.bind(...)`: what the method sets on the receiver, one of the objects that the holder may be."""
    function = call.func if isinstance(call, ast.Call) else None
    if isinstance(function, ast.Attribute) and not isinstance(function.value, ast.Call):
        maybe = called.stores if frame.branches else called.maybe
        _replace(frame, function.value, {receiver: _changed(frame, receiver, called.stores, maybe)})


def _changed(frame: Frame, part: Value, given: Mapping[str, Value], maybe: Any) -> Value:
    """An object with other attributes; the old ones stay possible where it is not certain that they are set."""
    classes = frame.walker.classes
    if not isinstance(part, Instance) or part.state.generic or part.state in classes.constructing:
        return part
    values = dict(given)
    for name in maybe:
        if name in values:
            known = classes.attribute(part, name, None, None)
            values[name] = join(UNKNOWN if known is None else known, values[name])
    return classes.changed(part, values)


def _replace(frame: Frame, holder: ast.expr, changed: dict[Value, Value]) -> None:
    """Put changed objects in the place of those that a variable or an attribute holds."""
    path = dotted_path(holder)
    if path is None or all(new is old for old, new in changed.items()):
        return
    value = join_all([changed.get(p, p) for p in parts_of(frame.eval(holder))])
    if isinstance(holder, ast.Name):
        frame.env[path] = value
        return
    assert isinstance(holder, ast.Attribute)
    owners = parts_of(frame.eval(holder.value))
    frame.env[path] = value
    frame.note_path(path)
    constructing = frame.walker.classes.constructing
    for owner in owners:
        if isinstance(owner, Instance) and owner.state in constructing:
            frame.walker.classes.store(owner, holder.attr, value, True)
    outer = {o: _changed(frame, o, {holder.attr: value}, ()) for o in owners}
    _replace(frame, holder.value, outer)
