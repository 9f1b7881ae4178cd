"""What is filled when weights are loaded: attributes that are None only until then.

A framework loads a model before it captures it. Where a method of a module that loading runs sets an attribute to
something, and none sets it to None, code that asks whether the attribute is None asks for a state that a capture
hardly meets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cgsafe.index.trail import Memo
from cgsafe.values import Instance, Value, parts_of
from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.facts import matches

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Walker

MAX_DEPTH = 3  # of methods that a loading method calls on the same object


def filled(frame: Frame, node: ast.expr) -> bool:
    """True for `self.table`, where loading fills `table` in all classes that `self` may be of."""
    if not frame.tables.loading or not isinstance(node, ast.Attribute):
        return False
    owners: tuple[Value, ...] = parts_of(frame.eval(node.value))
    return bool(owners) and all(
        isinstance(o, Instance) and node.attr in filled_attributes(frame.walker, o.definition) for o in owners
    )


def filled_attributes(walker: Walker, definition: ClassDef) -> frozenset[str]:
    """The attributes of a class that its loading methods set, and never to None."""
    cache: Memo = walker.__dict__.setdefault("_filled_attributes", Memo())
    return cache.of(definition, lambda: _filled_attributes(walker, definition))  # type: ignore[no-any-return]


def _filled_attributes(walker: Walker, definition: ClassDef) -> frozenset[str]:
    patterns = walker.by_package.of(definition.file.module).loading
    methods: dict[str, FunctionDef] = {}
    for entry in walker.classes.mro(definition):
        if isinstance(entry, ClassDef):
            for name, method in entry.methods.items():
                methods.setdefault(name, method)
    given: set[str] = set()
    cleared: set[str] = set()
    for name in sorted(n for n in methods if matches(n, patterns)):
        for attribute, value in _assigned(walker, methods, name, set(), MAX_DEPTH):
            none = isinstance(value, ast.Constant) and value.value is None
            (cleared if none else given).add(attribute)
    return frozenset(given - cleared)


def _assigned(
    walker: Walker, methods: dict[str, FunctionDef], name: str, seen: set[str], depth: int
) -> Iterator[tuple[str, ast.expr | None]]:
    """(attribute, what it is set to) in a method, and in those that it calls on the same object."""
    method = methods.get(name)
    if method is None or name in seen or depth < 0:
        return
    seen.add(name)
    try:
        shape = walker.shape(method)
    except (SyntaxError, ValueError, RecursionError):
        return
    owner = shape.params[0] if shape.params else ""
    for node in (n for statement in shape.body for n in ast.walk(statement)):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if _is_of(target, owner):
                    yield target.attr, node.value  # type: ignore[attr-defined]
        elif isinstance(node, ast.Call) and _is_of(node.func, owner):
            yield from _assigned(walker, methods, node.func.attr, seen, depth - 1)  # type: ignore[attr-defined]


def _is_of(node: ast.AST, owner: str) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
