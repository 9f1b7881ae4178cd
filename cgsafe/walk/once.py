"""Code that runs once: what a test for a value that is not there yet leads to, and what stores it.

`if self.table is None: self.table = make()` runs at the first call. Where a forward only counts as captured, a warm-up is
taken for granted, and the first call is its.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from cgsafe.events import DeviceWait, HostCopy, HostRead, SizeRead, TruthTest
from cgsafe.values import Instance, parts_of

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

ONCE = "?.once"  # in an environment: which stored value says that the code at hand ran before; a path: joins drop it
WAITS = (TruthTest, HostRead, SizeRead, HostCopy, DeviceWait)


def fills_once(frame: Frame, node: ast.If) -> tuple[str, str]:
    """("body" or "rest", what is stored) where that part runs only until something is stored; ("", "") elsewhere.

    "message" is a body that empties what it takes: what other code left there for one call.
    """
    if not isinstance(node.test, (ast.Compare, ast.BoolOp)):
        return "", ""
    if any(isinstance(part, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for part in ast.walk(node.test)):
        return "", ""  # what is made anew as soon as it is too small
    first, end = node.body[0].lineno + frame.offset, (node.body[-1].end_lineno or 0) + frame.offset
    for test in node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]:
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        op, right = test.ops[0], test.comparators[0]
        if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, ast.Constant) and right.value is None:
            place, stores = test.left, r"\s*(?::[^=\n]+)?=(?!=)"
        elif isinstance(op, (ast.In, ast.NotIn)):
            place, stores = right, r"(?:\.add\(|\[[^\n]*\]\s*=(?!=))"
        else:
            continue
        missing = isinstance(op, (ast.Is, ast.NotIn))
        leaves = isinstance(node.body[-1], ast.Return) and not isinstance(node.test, ast.BoolOp)
        if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) and not missing:
            continue
        if not missing and isinstance(node.test, ast.Compare) and isinstance(test.left, ast.Attribute):
            if any(_empties(statement, ast.unparse(test.left)) for statement in node.body):
                return "message", ast.unparse(test.left)
        if not missing and not (leaves and not node.orelse):
            continue
        if not _stays(frame, place):
            continue
        spelled = ast.unparse(place)
        lines = (first, end) if missing else (end + 1, frame._span()[1])
        pattern = re.compile(rf"(?<![\w.]){re.escape(spelled)}{stores}")
        if any(pattern.search(text) for text in frame.walker.text(frame.file).lines[lines[0] - 1 : lines[1]]):
            return ("body" if missing else "rest"), spelled
    return "", ""


def _stays(frame: Frame, place: ast.expr) -> bool:
    """True for an attribute of an object that outlives the call, set nowhere else, and for what is declared global."""
    if isinstance(place, ast.Name):
        return frame._is_global(place.id) or frame._is_module_level(place.id)
    if not isinstance(place, ast.Attribute):
        return False
    owners = [p for p in parts_of(frame.eval(place.value)) if isinstance(p, Instance)]
    if not owners or any(p.state.transient for p in owners):
        return False
    return not any(frame.walker.classes.setters(p.definition, place.attr) - {frame.node.definition} for p in owners)


def _empties(statement: ast.stmt, spelled: str) -> bool:
    """`self.mask = None`."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
        return False
    return statement.value.value is None and any(ast.unparse(target) == spelled for target in statement.targets)
