"""Branches of host code that are never taken: under checks of the platform, and what hangs on them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST
from cgsafe.index.asked import innermost
from cgsafe.walk.arguments import bind
from cgsafe.walk.entry import root_arguments
from cgsafe.walk.frame import Frame
from cgsafe.walk.walker import Node

if TYPE_CHECKING:
    from cgsafe.walk.conditions import Outcome
    from cgsafe.walk.walker import Walker


def never_runs(walker: Walker, path: str, cls: str, line: int) -> bool:
    """True where a line of a method of a class stands in a branch that is never taken."""
    file = walker.project.files[path]
    name = innermost(file.index["functions"], line)
    if name is None or name.rpartition(".")[0] != cls:
        return False
    definition = walker.definitions.function(file, name)
    maker = walker.definitions.class_(file, cls)
    try:
        shape = walker.shape(definition)
        if not any(isinstance(n, ast.If) for statement in shape.body for n in ast.walk(statement)):
            return False
        args = bind(
            walker, definition, shape, root_arguments(walker, definition, walker.classes.generic(maker), HOST), HOST
        )
        frame = _Deciding(walker, Node(definition, HOST, args, maker.scope), shape, file, definition.offset)
        frame.run(args)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return _is_left_out(shape.body, line - definition.offset, frame.outcomes)


class _Deciding(Frame):
    """A run that notes which way each `if` goes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.outcomes: dict[ast.AST, set[bool | None]] = {}

    def condition(self, node: ast.expr, form: str, owner: ast.AST) -> Outcome:
        result = super().condition(node, form, owner)
        if isinstance(owner, ast.If) and owner.test is node:
            self.outcomes.setdefault(owner, set()).add(result[0])
        return result


def _is_left_out(body: list[Any], line: int, outcomes: dict[ast.AST, set[bool | None]]) -> bool:
    for node in body:
        if not node.lineno <= line <= (node.end_lineno or 0):
            continue
        for field in ("body", "orelse", "finalbody", "handlers"):
            part = getattr(node, field, [])
            if not any(n.lineno <= line <= (n.end_lineno or 0) for n in part):
                continue
            if isinstance(node, ast.If) and outcomes.get(node) == {field != "body"}:
                return True
            return _is_left_out(part, line, outcomes)
    return False
