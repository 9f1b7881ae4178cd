"""Decorators: what a function becomes when they are applied."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST
from cgsafe.index.build import dotted
from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    UNKNOWN,
    Bound,
    Class,
    Compiled,
    Ext,
    ExtInstance,
    Func,
    Instance,
    Partial,
    Value,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.defs import FunctionDef

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Node, Walker

CACHED = Ext("cgsafe.cached")  # puts a cache around the function that follows
_CALLABLES = (Func, Bound, Partial, Compiled, Class, Instance)


def decorate(walker: Walker, definition: FunctionDef, scope: Node | None, value: Value) -> Value:
    """A function of a module or class with its decorators applied, innermost first."""
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Node

    try:
        walker.shape(definition)
    except (SyntaxError, ValueError, RecursionError):
        return value
    nodes = getattr(definition.node, "decorator_list", ())
    frame = Frame(walker, Node(None, HOST, (), scope), None, definition.file, definition.offset)
    frame.class_scope = definition.cls
    for node in reversed(nodes):
        value = apply(frame, node, value)
    return value


# What a class decorator must contain to change what the class does.
_CHANGES_CLASS = re.compile(
    r"\.(?:forward|__call__)\s*=(?!=)|\bsetattr\(|\bcompile\(|^\s*\w+\.\w+\s*=(?!=)", re.MULTILINE
)


def _changes_class(walker: Walker, decorator: Value) -> bool:
    while isinstance(decorator, Partial):
        decorator = decorator.func
    if not isinstance(decorator, Func):
        return False
    definition = decorator.definition
    while definition.outer is not None:
        definition = definition.outer
    if definition.known:
        TRAIL.deps.add(definition.unit)
    lines = walker.raw_text(definition.file).lines[definition.first - 1 : definition.last]
    return _CHANGES_CLASS.search("\n".join(lines)) is not None


def apply(frame: Frame, node: ast.expr, value: Value) -> Value:
    """One decorator on a value. A decorator that makes something unknown is taken to keep the function."""
    if dotted(node).rpartition(".")[2] in frame.tables.transparent:
        return value
    decorator = frame.eval(node)
    if isinstance(decorator, Ext) and decorator.name.startswith("builtins."):
        return value  # property, staticmethod, classmethod: the class table looks at these by name
    if decorator is UNKNOWN:
        return value
    if isinstance(decorator, ExtInstance):
        return value  # a context manager as a decorator
    frame.walker.applying = node
    result = frame.call_value(decorator, Arguments([value]), node)
    # Of what a decorator makes in several cases, the cache counts that it puts around the function in one of them.
    kept = next((p for p in parts_of(result) if isinstance(p, Partial) and p.func is CACHED), result)
    return kept if isinstance(kept, _CALLABLES) else value


def decorate_class(walker: Walker, definition: Any) -> None:
    """Let class decorators of the checked code do what they do to `forward` and its like."""
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Node

    known = {"dataclass", *walker.tables.compiled_classes, *walker.tables.transparent}
    names = [d for d in definition.decorators if d and d.rpartition(".")[2] not in known]
    if not names or definition.scope is not None:
        return
    first = definition.file.raw["classes"][definition.qualname]["lines"][0]
    try:
        body, offset = walker.raw_text(definition.file).parse(first, definition.line)
    except (SyntaxError, ValueError):
        body, offset = _decorator_lines(walker, definition, first)
    nodes = [d for s in body if isinstance(s, ast.ClassDef) for d in s.decorator_list]
    frame = Frame(walker, Node(None, HOST, (), None), None, definition.file, offset)
    # Whoever asks first, and from however deep: the answer is kept.
    before = walker.decorating, walker.shallow, walker.host_depth
    walker.shallow, walker.host_depth = False, 0
    try:
        for node in reversed(nodes):
            decorator = frame.eval(node)
            if _changes_class(walker, decorator):
                walker.decorating = definition
                frame.call_value(decorator, Arguments([Class(definition)]), node)
                walker.decorating = before[0]
    finally:
        walker.decorating, walker.shallow, walker.host_depth = before


def _decorator_lines(walker: Walker, definition: Any, first: int) -> tuple[list[ast.stmt], int]:
    """The decorators alone, above an empty class of the same indentation."""
    lines = walker.raw_text(definition.file).lines[first - 1 : definition.line - 1]
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())] if lines else ""
    source = "\n".join([*lines, f"{indent}class {definition.name}: pass"])
    try:
        if indent:
            return ast.parse("if 1:\n" + source).body[0].body, first - 2  # type: ignore[attr-defined]
        return ast.parse(source).body, first - 1
    except SyntaxError:
        return [], 0
