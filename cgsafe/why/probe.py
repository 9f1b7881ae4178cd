"""Watches the walk: which statements ran, which way conditions went, and what the expressions of one line held.

Nothing of this is in the way of a normal check: the hooks are put on Frame only while `watching` lasts.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cgsafe.events import Region
from cgsafe.values import UNKNOWN, ExtMethod, Value
from cgsafe.walk import frame as frames
from cgsafe.walk.frame import Frame, source_of

NAMED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
HOST, DOUBTED, CAPTURED = 1, 2, 4


def standing(region: Region) -> int:
    """How a region counts: host code, captured in doubt, or captured."""
    if not region.captured and not region.traced:
        return HOST
    return DOUBTED if region.doubt else CAPTURED


@dataclass(frozen=True, order=True)
class Expression:
    """An expression on the line that is asked for; ordered as it is read."""

    line: int
    column: int
    end: int
    source: str


@dataclass
class Probe:
    """What the walk did, as far as the question wants to know."""

    path: str
    first: int  # the lines of the statement that is asked for
    last: int
    name: str = ""  # of the function around it
    ran: dict[str, dict[int, int]] = field(default_factory=dict)  # path -> line of a statement -> HOST | CAPTURED
    nodes: dict[tuple[int, Any], int] = field(default_factory=dict)  # (line, node of the graph) -> the same, in `path`
    outcomes: dict[tuple[str, int, int], set[bool | None]] = field(default_factory=dict)  # of conditions under capture
    known: dict[tuple[str, int, int], dict[str, str]] = field(default_factory=dict)  # what calls in conditions gave
    values: dict[Expression, dict[Value, set[Any]]] = field(default_factory=dict)
    origins: dict[Expression, str] = field(default_factory=dict)
    unresolved: dict[tuple[str, int], str] = field(default_factory=dict)  # calls by that name: what was called
    not_followed: dict[str, str] = field(default_factory=dict)  # function label -> why a call of it was not followed

    # -- what the hooks call ---------------------------------------------------------------------------------------

    def statement(self, frame: Frame, node: Any) -> None:
        path, line = frame.file.path, node.lineno + frame.offset
        how = standing(frame.region)
        lines = self.ran.get(path)
        if lines is None:
            lines = self.ran[path] = {}
        lines[line] = lines.get(line, 0) | how
        if path == self.path:
            key = (line, frame.sink)
            self.nodes[key] = self.nodes.get(key, 0) | how

    def expression(self, frame: Frame, node: Any, value: Value) -> None:
        first = node.lineno + frame.offset
        if not self.first <= first <= self.last or frame.file.path != self.path:
            return
        place = frame.place(node)
        end = place.end_column if place.end_line == place.line else 10_000
        expression = Expression(first, place.column, end, source_of(node))
        self.values.setdefault(expression, {}).setdefault(value, set()).add((frame.sink, standing(frame.region)))
        if isinstance(node, ast.Name) and (origin := frame.origins.get(node.id)) is not None:
            where = origin.lineno + frame.offset
            self.origins[expression] = f"`{source_of(origin)}`, line {where}"

    def decided(self, frame: Frame, owner: Any, test: ast.expr, outcome: bool | None) -> None:
        if standing(frame.region) == HOST:
            return
        key = (frame.file.path, owner.lineno + frame.offset, owner.col_offset)
        self.outcomes.setdefault(key, set()).add(outcome)

    def called(self, frame: Frame, callee: Value, node: Any) -> None:
        unknown = callee is UNKNOWN or (isinstance(callee, ExtMethod) and callee.receiver is UNKNOWN)
        if unknown and isinstance(node, ast.Call):
            function = node.func
            last = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if last == self.name and standing(frame.region) != HOST:
                self.unresolved[(frame.file.path, node.lineno + frame.offset)] = source_of(function)


@contextlib.contextmanager
def watching(probe: Probe) -> Iterator[None]:
    """Let a probe see everything that frames do meanwhile."""
    eval_, condition, call_value = Frame.eval, Frame.condition, Frame.call_value
    statements = dict(frames._STATEMENTS)

    def watched_eval(self: Frame, node: ast.expr) -> Value:
        value = eval_(self, node)
        if node.__class__ in NAMED and hasattr(node, "lineno"):
            probe.expression(self, node, value)
        return value

    def watched_condition(self: Frame, node: ast.expr, form: str, owner: ast.AST) -> Any:
        result = condition(self, node, form, owner)
        if getattr(owner, "test", None) is node:
            probe.decided(self, owner, node, result[0])
        elif node.__class__ in (ast.Call, ast.Name, ast.Attribute) and result[0] is not None:
            key = (self.file.path, owner.lineno + self.offset, owner.col_offset)  # type: ignore[attr-defined]
            probe.known.setdefault(key, {})[source_of(node)] = str(result[0])
        return result

    def watched_call(self: Frame, callee: Value, args: Any, node: Any) -> Value:
        probe.called(self, callee, node)
        return call_value(self, callee, args, node)

    def watched(handler: Any) -> Any:
        def run(self: Frame, node: Any) -> bool:
            probe.statement(self, node)
            return bool(handler(self, node))

        return run

    for name, hook in (("eval", watched_eval), ("condition", watched_condition), ("call_value", watched_call)):
        setattr(Frame, name, hook)
    frames._STATEMENTS.update({kind: watched(handler) for kind, handler in statements.items()})
    try:
        yield
    finally:
        del Frame.eval, Frame.condition, Frame.call_value
        frames._STATEMENTS.update(statements)
