"""Blocks that a capture most likely does not run, by how they are written.

What is made at a first call and kept: where a framework is known to run what it captures before, with the arguments of
the capture, the capture finds it made. What only runs where a switch for debugging is on, by the names of a profile.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

from cgsafe.events import Region, varied
from cgsafe.walk.facts import matches
from cgsafe.walk.paths import dotted_path

REMEMBERED = "made at a first call, before the capture"
DEBUGGED = "only where a switch for debugging is on"


def doubted(where: Region, why: str) -> Region:
    """The region of code that a capture most likely does not run.

    What switches for debugging do is settled where the code itself opens the capture; not what ran before it.
    """
    if not where.captured or (where.explicit and why != REMEMBERED) or where.hot or where.doubt:
        return where
    return varied(where, doubt=why)


def switched(test: ast.expr, switches: tuple[str, ...]) -> bool:
    """True where a condition hangs on a switch for debugging, by its name."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return False
    for part in ast.walk(test):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if name and matches(name.lower(), switches):
            return True
    return False


def fills(node: ast.If, origins: dict[str, ast.expr], local: Collection[str]) -> bool:
    """`if self.table is None: ... self.table = ...` and its like: the body makes what the test found missing, or too small.

    `local` are the names of the function itself, `origins` the expressions that they come from.
    """
    tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
    missing = next((m for m in map(_missing, tests) if m is not None), None)
    if missing is not None and any(_keeps(statement, missing) for statement in node.body):
        return True
    measured = {path for test in tests if _is_order(test) for path in _looked_at(test, origins, local, 3)}
    return any(_sets(statement, measured) for statement in node.body) if measured else False


def _is_order(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))


def _looked_at(node: ast.AST, origins: dict[str, ast.expr], local: Collection[str], depth: int) -> set[str]:
    """The attributes, and the tables that lie in a module or an object, which an expression looks at."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            path = _path(inner)
            found |= {path} if path is not None else set()
        elif isinstance(inner, ast.Name):
            origin = origins.get(inner.id)
            if origin is not None and depth:
                found |= _looked_at(origin, origins, local, depth - 1)
            elif inner.id not in local:
                found.add(inner.id)
    return found


def _sets(statement: ast.stmt, paths: set[str]) -> bool:
    """True where a statement sets one of these attributes, or an item of one of these tables."""
    for inner in ast.walk(statement):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _path(inner) in paths:
            return True
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store) and _path(inner.value) in paths:
            return True
    return False


def finds(node: ast.If, body: list[Any]) -> bool:
    """`if found is not None: return found`, in a function that keeps what it makes where it looked."""
    if node.orelse or len(node.body) != 1 or not isinstance(node.body[0], ast.Return) or node not in body:
        return False
    test = node.test
    if isinstance(test, ast.Call):
        marked = _attribute_of(test)
        return marked is not None and any(_keeps(statement, marked) for statement in body[body.index(node) + 1 :])
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    if isinstance(test.ops[0], ast.In):
        table = _path(test.comparators[0])
    elif isinstance(test.ops[0], ast.IsNot) and _is_none(test.comparators[0]):
        table = _looked_up(_path(test.left), body)
    else:
        return False
    return table is not None and any(_keeps(statement, table) for statement in body[body.index(node) + 1 :])


def _looked_up(name: str | None, body: list[Any]) -> str | None:
    """The table in which `name = table.get(key)` looks, or the attribute that `name` is."""
    if name is None or "." in name:
        return name
    for statement in body:
        if not isinstance(statement, ast.Assign) or _path(statement.targets[0]) != name:
            continue
        value = statement.value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get":
            return _path(value.func.value)
        return _path(value)
    return None


def _missing(test: ast.expr) -> str | None:
    """What a test says is not there yet: a name, an attribute, or the table that lacks a key."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.ops[0], ast.Is) and _is_none(test.comparators[0]):
            left = test.left
            asks = isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute) and left.func.attr == "get"
            return _path(left.func.value) if asks else _path(left)  # type: ignore[attr-defined]
        if isinstance(test.ops[0], ast.NotIn):
            return _path(test.comparators[0])
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Call):
        return _attribute_of(test.operand)
    return None


def _attribute_of(call: ast.Call) -> str | None:
    """The attribute that `hasattr(owner, "name")` asks for."""
    if isinstance(call.func, ast.Name) and call.func.id == "hasattr" and len(call.args) == 2:
        owner, name = _path(call.args[0]), call.args[1]
        if owner is not None and isinstance(name, ast.Constant) and isinstance(name.value, str):
            return f"{owner}.{name.value}"
    return None


def _set_by_name(call: ast.Call) -> str | None:
    """The attribute that `setattr(owner, "name", value)` or `object.__setattr__(owner, "name", value)` sets."""
    if _path(call.func) not in ("setattr", "object.__setattr__") or len(call.args) != 3:
        return None
    owner, name = _path(call.args[0]), call.args[1]
    given = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return f"{owner}.{name.value}" if owner is not None and given else None  # type: ignore[attr-defined]


def _keeps(statement: ast.stmt, what: str) -> bool:
    """True where `what` is kept beyond the call: an attribute or a table is set, or a local name put into one."""
    for inner in ast.walk(statement):
        if isinstance(inner, ast.Call) and _set_by_name(inner) == what:
            return True
        if not isinstance(inner, (ast.Assign, ast.AnnAssign)):
            continue
        for target in inner.targets if isinstance(inner, ast.Assign) else [inner.target]:
            if isinstance(target, ast.Attribute) and _path(target) == what:
                return True
            if isinstance(target, ast.Subscript) and _path(target.value) == what:
                return True
            if isinstance(target, (ast.Attribute, ast.Subscript)) and isinstance(inner.value, ast.Name):
                if inner.value.id == what:
                    return True
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _path(node: ast.expr) -> str | None:
    return dotted_path(node)
