"""Exceptions: what runs after one was swallowed. A capture that went well raised none.

`try: out = fast(x)`, an `except RuntimeError` that goes on, and `if out is None: out = slow(x)` after it: the slow way runs
where the fast one fails, in the warm-up too. The same with a flag that only such a handler takes back.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.values import NONE, TRUE, UNKNOWN, Instance
from cgsafe.walk.conditions import DOUBT
from cgsafe.walk.defs import FunctionDef

if TYPE_CHECKING:
    from cgsafe.values import Value
    from cgsafe.walk.frame import Env, Frame
    from cgsafe.walk.walker import Walker

# Failures; a KeyError or an AttributeError is an everyday way to ask.
_FAILURES = {
    "BaseException",
    "Exception",
    "NotImplementedError",
    "OutOfMemoryError",
    "RuntimeError",
    "TorchRuntimeError",
}


class Fallbacks:
    """Mixin of Frame."""

    def do_try(self: Frame, node: Any) -> bool:
        before = dict(self.env)
        falls = self.block(node.body)
        after_body = self.env
        if falls and node.orelse:
            falls = self.block(node.orelse)
        result: Env | None = self.env if falls else None
        after_try = result
        handler_start = self.merge(before, after_body)
        self.branches += 1
        missing: set[str] = set()
        for handler in node.handlers:
            assert handler_start is not None
            self.env = dict(handler_start)
            if handler.name:
                self.env[handler.name] = UNKNOWN
            if self.block(handler.body):
                if after_try is not None and catches_failure(handler):
                    missing |= {n for n, value in before.items() if value is NONE and after_try.get(n) is not NONE}
                result = self.merge(result, self.env)
        self.branches -= 1
        self.env = result if result is not None else after_body
        if missing and self.is_assumed():
            where = f"only where what is tried on line {node.lineno + self.offset} raises"
            self.fallbacks.update({name: (where, self.env[name]) for name in missing if name in self.env})
        if node.finalbody:
            return self.block(node.finalbody) and result is not None
        return result is not None

    def after_failure(self: Frame, path: str) -> str:
        """What must have failed for a variable to be None still; "" where it may be for other reasons."""
        where, value = self.fallbacks.get(path, ("", None))
        return where if value is self.env.get(path) else ""

    def keep_fallbacks(self: Frame, before: dict[str, Any], other: Env | None) -> None:
        """Behind a condition: where the other way leaves a variable empty too, no exception need have done so."""
        for name in [n for n in self.fallbacks if n not in before]:
            where, _ = self.fallbacks[name]
            if other is not None and DOUBT not in other and other.get(name) is NONE:
                del self.fallbacks[name]
            elif name in self.env:
                self.fallbacks[name] = (where, self.env[name])


def catches_failure(handler: ast.ExceptHandler) -> bool:
    """`except RuntimeError` and its like, and a bare `except`."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(kind).rpartition(".")[2] for kind in kinds if kind is not None}
    return not names or not names.isdisjoint(_FAILURES)


def taken_back(walker: Walker, value: Value, name: str) -> bool:
    """True for an attribute that the constructor sets to True, and nothing else changes but handlers of failures."""
    if not isinstance(value, Instance):
        return False
    key = (value.definition, name)
    known = walker.taken_back.get(key)
    if known is None:
        known = walker.taken_back[key] = _taken_back(walker, value, name)
    return known


def _taken_back(walker: Walker, value: Instance, name: str) -> bool:
    classes = walker.classes
    setters = classes.setters(value.definition, name)
    made = value.state.attributes.get(name)
    return bool(setters) and made is TRUE and all(_only_in_handlers(walker, m, name) for m in setters)


def _only_in_handlers(walker: Walker, method: FunctionDef, name: str) -> bool:
    try:
        body = method.shape(walker.text(method.file)).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    inside: set[ast.AST] = set()
    stores: set[ast.AST] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.ExceptHandler) and catches_failure(node):
                inside.update(ast.walk(node))
            elif isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
                stores.add(node)
    return stores <= inside
