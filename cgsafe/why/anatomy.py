"""Where a line stands: its statement, the blocks around it, and the function that they belong to."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Block:
    """A statement with the block of it that a line stands in: ("orelse", position of the next statement inside)."""

    statement: ast.stmt
    part: str
    body: list[ast.stmt]
    position: int


@dataclass
class Spot:
    """The statement at a line."""

    statement: ast.stmt
    function: str = ""  # qualified name; "" at module level
    functions: list[str] = field(default_factory=list)  # outermost first
    cls: str = ""  # the class that the outermost function is a method of, or that the line stands in
    first: int = 0  # the lines of the statement itself, without the blocks below it
    last: int = 0
    blocks: list[Block] = field(default_factory=list)  # inside the innermost function, outermost first
    header: bool = False  # the line is the `def` line of a function or class

    @property
    def outermost(self) -> str:
        return self.functions[0] if self.functions else ""


def locate(text: str, line: int) -> Spot | None:
    """The statement at a line, or the next one below it where the line holds none; None below the last one.

    Raises SyntaxError, ValueError or RecursionError as `ast.parse` does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    found = _search(tree.body, line, Spot(tree.body[0] if tree.body else ast.Pass()))
    if found is not None:
        if found.last >= line:
            return found
        content = text.split("\n")[line - 1].strip()
        if content and not content.startswith("#"):
            found.last = line  # what is left of a header: `):`
            return found
    later = sorted(s.lineno for s in ast.walk(tree) if isinstance(s, ast.stmt) and s.lineno > line)
    return _search(tree.body, later[0], Spot(tree.body[0])) if later else None


def _search(body: list[ast.stmt], line: int, so_far: Spot) -> Spot | None:
    for position, statement in enumerate(body):
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
        if not first <= line <= (statement.end_lineno or statement.lineno):
            continue
        for part, inner in parts(statement):
            if not inner:
                continue
            if line >= inner[0].lineno or line >= min(
                [inner[0].lineno, *(d.lineno for d in getattr(inner[0], "decorator_list", ()))]
            ):
                if line > max(s.end_lineno or s.lineno for s in inner):
                    continue
                found = _search(inner, line, _inside(so_far, statement, part, inner, body, position))
                if found is not None:
                    return found
        last = statement.end_lineno or statement.lineno
        inner_first = [min(s.lineno for s in inner) for _, inner in parts(statement) if inner]
        if inner_first:
            if line >= min(inner_first):
                return None  # a blank line or a comment between the statements of a block
            last = _header_end(statement)
        header = isinstance(statement, (*FUNCTIONS, ast.ClassDef))
        spot = _inside(so_far, statement, "", [], body, position) if header else so_far
        blocks = [*so_far.blocks, Block(statement, "", body, position)] if not header else []
        return Spot(statement, spot.function, spot.functions, spot.cls, first, last, blocks, header)
    return None


def _header_end(statement: ast.stmt) -> int:
    """The last line of what stands above the blocks of a statement."""
    blocks = {id(s) for _, inner in parts(statement) for s in inner}
    last = statement.lineno
    stack = [c for c in ast.iter_child_nodes(statement) if id(c) not in blocks]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.ExceptHandler, ast.match_case)):
            continue
        last = max(last, getattr(node, "end_lineno", None) or 0)
        stack.extend(ast.iter_child_nodes(node))
    return last


def _inside(
    so_far: Spot, statement: ast.stmt, part: str, inner: list[ast.stmt], body: list[ast.stmt], position: int
) -> Spot:
    """The surroundings of what stands inside of a statement."""
    if isinstance(statement, FUNCTIONS):
        holder = so_far.function or so_far.cls
        name = f"{holder}.{statement.name}" if holder else statement.name
        return Spot(statement, name, [*so_far.functions, name], so_far.cls)
    if isinstance(statement, ast.ClassDef):
        holder = so_far.function or so_far.cls
        name = f"{holder}.{statement.name}" if holder else statement.name
        return Spot(statement, "", so_far.functions, name)
    block = Block(statement, part, body, position)
    return Spot(statement, so_far.function, so_far.functions, so_far.cls, blocks=[*so_far.blocks, block])


def parts(statement: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    """The blocks of a statement with their names."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
            yield name, inner
    for handler in getattr(statement, "handlers", ()):
        yield "except", handler.body
    for case in getattr(statement, "cases", ()):
        yield "case", case.body
