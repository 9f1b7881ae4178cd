"""Blocks that a capture most likely does not run, by how they are written.

What is made at a first call and kept: where a framework is known to run what it captures before, with the arguments of
the capture, the capture finds it made. What only runs where a switch for debugging is on, by the names of a profile.
"""

from __future__ import annotations

import ast
from typing import Any

from cgsafe.events import Region, varied
from cgsafe.walk.facts import matches

REMEMBERED = "made at a first call, before the capture"
DEBUGGED = "only where a switch for debugging is on"


def doubted(where: Region, why: str) -> Region:
    """The region of code that a capture which counts as one by convention most likely does not run."""
    if not where.captured or where.explicit or where.hot or where.doubt:
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


def fills(node: ast.If) -> bool:
    """`if self.table is None: ... self.table = ...` and its like: the body makes what the test found missing."""
    tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
    missing = next((m for m in map(_missing, tests) if m is not None), None)
    return missing is not None and any(_keeps(statement, missing) for statement in node.body)


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


def _keeps(statement: ast.stmt, what: str) -> bool:
    """True where `what` is kept beyond the call: an attribute or a table is set, or a local name put into one."""
    for inner in ast.walk(statement):
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
    from cgsafe.walk.frame import dotted_path

    return dotted_path(node)
