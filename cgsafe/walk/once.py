"""Code that runs once: what a test for a value that is not there yet leads to, and what stores it.

`if self.table is None: self.table = make()` runs at the first call. Where a forward only counts as captured, a warm-up is
taken for granted, and the first call is its.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from cgsafe.events import DeviceWait, HostCopy, HostRead, SizeRead, TruthTest
from cgsafe.values import LOW, Instance, Tensor, Value, join_all, parts_of, truth

if TYPE_CHECKING:
    from cgsafe.walk.defs import FunctionDef
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Walker

ONCE = "?.once"  # in an environment: which stored value says that the code at hand ran before; a path: joins drop it
WAITS = (TruthTest, HostRead, SizeRead, HostCopy, DeviceWait)
_BOUND = r"\s*(?::[^=\n]+)?=(?!=)"
_ENTERED = r"(?:\.add\(|\[[^\n]*\]\s*=(?!=))"


class Once(NamedTuple):
    """Which part of an `if` runs only until something is stored; `part` is empty where none does.

    "body" or "rest": that part. "message": a body that empties what it takes, what other code left there for one call.
    """

    part: str = ""
    stored: str = ""
    moved: str = ""  # a variable that the body sets, and that is moved before it is stored


def fills_once(frame: Frame, node: ast.If) -> Once:
    """What an `if` that looks for a stored value makes of its parts."""
    questions = _questions(node)
    if not questions:
        return Once()
    first, end = node.body[0].lineno + frame.offset, (node.body[-1].end_lineno or 0) + frame.offset
    lines = frame.walker.raw_text(frame.file).lines
    last = frame._span()[1]
    for test, (place, stores, missing) in questions:
        leaves = isinstance(node.body[-1], ast.Return)
        if not missing and isinstance(node.test, ast.Compare) and isinstance(place, ast.Attribute):
            if any(_empties(statement, ast.unparse(place)) for statement in node.body):
                return Once("message", ast.unparse(place))
        if isinstance(node.test, ast.BoolOp) and not missing:
            if isinstance(node.test.op, ast.Or) or not leaves:
                continue
            if not all(part is test or _tells_key(frame, part, ast.unparse(place)) for part in node.test.values):
                continue
        if not missing and not (leaves and not node.orelse):
            continue
        name = ""
        if isinstance(place, ast.Name) and not _stays(frame, place):
            looked_up = _looked_up(frame, place)
            if looked_up is None:
                continue
            name = place.id
            place, stores = looked_up
        spelled = ast.unparse(place)
        inside, later = _stored(node, spelled, stores, lines, (first, end, last))
        if (later is None and not (missing and inside)) or not _stays(frame, place):
            continue
        if missing and inside:
            return Once("body", spelled)
        if later is not None and not missing:
            return Once("rest", spelled)
        if later is not None and name and re.search(rf"=\s*{re.escape(name)}\b", lines[later]):
            moves = re.compile(rf"^\s*{re.escape(name)} = {re.escape(name)}\.(?:to|cuda)\(")
            moved = any(moves.search(text) for text in lines[end:later])
            return Once("body", spelled, name if moved else "")
    return Once()


def _stored(
    node: ast.If, spelled: str, stores: str, lines: list[str], span: tuple[int, int, int]
) -> tuple[bool, int | None]:
    """Whether a place is filled in the body of an `if`, and where below it, as the number of a line counted from 0."""
    try:
        known = node.stored  # type: ignore[attr-defined]
    except AttributeError:
        known = node.stored = {}  # type: ignore[attr-defined]
    found: tuple[bool, int | None] | None = known.get((spelled, stores))
    if found is None:
        first, end, last = span
        pattern = re.compile(rf"(?<![\w.]){re.escape(spelled)}{stores}")
        inside = any(pattern.search(text) for text in lines[first - 1 : end])
        later = next((n for n in range(end, last) if pattern.search(lines[n])), None)
        found = known[(spelled, stores)] = inside, later
    return found


def _questions(node: ast.If) -> tuple[tuple[ast.expr, tuple[ast.expr, str, bool]], ...]:
    """The parts of a test that look for a stored value, as `_asked` reads them; the same at each run of the `if`."""
    try:
        return node.questions  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        pass
    found: list[tuple[ast.expr, tuple[ast.expr, str, bool]]] = []
    if isinstance(node.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        for test in node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]:
            asked = _asked(test)
            if asked is not None:
                found.append((test, asked))
    if found and any(isinstance(part, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for part in ast.walk(node.test)):
        found = []  # what is made anew as soon as it is too small
    node.questions = tuple(found)  # type: ignore[attr-defined]
    return node.questions  # type: ignore[attr-defined,no-any-return]


def _asked(test: ast.expr) -> tuple[ast.expr, str, bool] | None:
    """Where a test looks for a stored value, how such a store is written, and whether the test is for its absence."""
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    call = test.operand if isinstance(test, ast.UnaryOp) else test
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "hasattr"
        and len(call.args) == 2
    ):
        name = call.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return ast.Attribute(call.args[0], name.value, ast.Load()), _BOUND, negated
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    op, right = test.ops[0], test.comparators[0]
    if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, ast.Constant) and right.value is None:
        return test.left, _BOUND, isinstance(op, ast.Is)
    if isinstance(op, (ast.In, ast.NotIn)):
        return right, _ENTERED, isinstance(op, ast.NotIn)
    return None


def _looked_up(frame: Frame, name: ast.Name) -> tuple[ast.expr, str] | None:
    """What `found = self.table.get(key)` and `found = self.table` look at, and how a store there is written."""
    origin = frame.origins.get(name.id)
    if isinstance(origin, ast.Call) and isinstance(origin.func, ast.Attribute) and origin.func.attr == "get":
        return origin.func.value, _ENTERED
    return (origin, _BOUND) if isinstance(origin, ast.Attribute) else None


def _tells_key(frame: Frame, test: ast.expr, spelled: str) -> bool:
    """True for what is asked beside whether a value is stored: for which key it was made, and what is always so here."""
    if isinstance(test, ast.Compare):
        sides = (ast.unparse(test.left), ast.unparse(test.comparators[0]))
        return all(isinstance(op, (ast.Eq, ast.Is)) for op in test.ops) and any(
            re.match(rf"{re.escape(spelled)}[.\[]", side) for side in sides
        )
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return truth(frame.eval(test.operand)) is False
    return isinstance(test, (ast.Name, ast.Call)) and truth(frame.eval(test)) is True


def _stays(frame: Frame, place: ast.expr) -> bool:
    """True for an attribute of an object that outlives the call, set nowhere else, and for what is declared global."""
    if isinstance(place, ast.Name):
        return frame._is_global(place.id) or frame._is_module_level(place.id)
    if not isinstance(place, ast.Attribute):
        return False
    owners = [p for p in parts_of(frame.eval(place.value)) if isinstance(p, Instance)]
    if not owners or any(p.state.transient for p in owners):
        return False
    others = {m for p in owners for m in frame.walker.classes.setters(p.definition, place.attr)}
    return not any(sets(frame.walker, method, place.attr) for method in others - {frame.node.definition})


def sets(walker: Walker, method: FunctionDef, name: str) -> bool:
    """True where a method, which the text of its lines makes a candidate, does set an attribute of that name."""
    return walker.setting.of((method, name), lambda: _sets(walker, method, name))  # type: ignore[no-any-return]


def _sets(walker: Walker, method: FunctionDef, name: str) -> bool:
    try:
        body = walker.shape(method).body
    except (SyntaxError, ValueError, RecursionError):
        return True
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr == name and not isinstance(node.ctx, ast.Load):
                return True
            if isinstance(node, ast.Call) and any(isinstance(a, ast.Constant) and a.value == name for a in node.args):
                return True  # `setattr`, `register_buffer` and their like
    return False


def _empties(statement: ast.stmt, spelled: str) -> bool:
    """`self.mask = None`."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
        return False
    return statement.value.value is None and any(ast.unparse(target) == spelled for target in statement.targets)


def moved_already(value: Value) -> Value:
    """What was made on the CPU at the first call and moved before it was stored: later calls find it moved."""
    return join_all(
        [
            p.with_(confidence=LOW) if isinstance(p, Tensor) and p.device in ("cpu", "pinned") else p
            for p in parts_of(value)
        ]
    )
