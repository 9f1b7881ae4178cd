"""What a transformer works on: an expression in its file, found by its span."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from cgsafe.fixes.imports import Imports
from cgsafe.fixes.patch import LINE_END, Change, Lines, trimmed

if TYPE_CHECKING:
    import libcst as cst


class Rewrite:
    """The changes that make a fix. `safe` tells whether the program computes the same, and fails where it failed."""

    def __init__(self, changes: Iterable[Change | None], safe: bool = True) -> None:
        self.changes = sorted({change for change in changes if change is not None})
        self.safe = safe


class SourceFile:
    """The text of a file, its syntax tree, and where everything in it lies."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = Lines(text)
        first_end = LINE_END.search(text)
        self.newline = first_end[0] if first_end else "\n"
        self.offset = self._lines.offset
        self.position = self._lines.position

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def expressions(self) -> dict[tuple[int, int], ast.expr]:
        """The expressions by their spans; of several with the same span the outermost."""
        found: dict[tuple[int, int], ast.expr] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr):
                found.setdefault(self.span(node), node)
        return found

    @cached_property
    def imports(self) -> Imports:
        return Imports(self)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        """The offset of a place whose column counts bytes of UTF-8, as `ast` has it."""
        start = self._lines.starts[line - 1]
        piece = self.text[start : start + column]
        return start + (column if piece.isascii() else len(piece.encode()[:column].decode(errors="ignore")))

    def line_start(self, offset: int) -> int:
        return self.offset(self.position(offset)[0], 1)

    def line_end(self, offset: int) -> int:
        """Where the line ends, before its line end."""
        match = LINE_END.search(self.text, offset)
        return match.start() if match else len(self.text)

    def next_line(self, offset: int) -> int:
        match = LINE_END.search(self.text, offset)
        return match.end() if match else len(self.text)

    def qualified(self, node: ast.expr) -> str:
        """The full name behind `a.b.c` where `a` is imported; "" for anything else."""
        return self.imports.qualified(node)

    def named(self, name: str) -> tuple[str, list[Change]] | None:
        """How to write an importable name ("torch.full") in this file, with the import that this takes."""
        return self.imports.named(name)


class Target:
    """An expression to transform."""

    def __init__(self, file: SourceFile, node: ast.expr) -> None:
        self.file = file
        self.node = node

    @classmethod
    def at(cls, file: SourceFile, start: int, end: int) -> Target | None:
        node = file.expressions.get((start, end))
        above: ast.AST | None = node
        while above is not None:
            if isinstance(above, ast.JoinedStr):  # where things are in an f-string, Python only knows since 3.12
                return None
            above = file.parents.get(above)
        return cls(file, node) if node is not None else None

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.file.parents.get(node)

    def statement(self) -> ast.stmt | None:
        """The statement that the expression is part of."""
        node: ast.AST | None = self.node
        while node is not None and not isinstance(node, ast.stmt):
            node = self.parent(node)
        return node

    def is_open_parameter(self, node: ast.expr) -> bool:
        """Whether it is a parameter without an annotation: callers that no capture reaches may pass anything."""
        if not isinstance(node, ast.Name):
            return False
        above: ast.AST | None = node
        while above is not None:
            above = self.parent(above)
            if isinstance(above, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                for argument in ast.walk(above.args):
                    if isinstance(argument, ast.arg) and argument.arg == node.id:
                        return argument.annotation is None
        return False

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.file.span(node)
        return self.file.text[start:end]

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Change | None:
        """The change that puts a text in place of a node."""
        return trimmed(self.file.text, *self.file.span(node), text)

    def parse(self, node: ast.expr) -> cst.BaseExpression | None:
        """The libcst tree of an expression; None where it would not come out again as it went in."""
        import libcst as cst

        text = f"({self.text(node)})"  # line breaks are only allowed inside parentheses
        try:
            tree = cst.parse_expression(text)
        except (cst.ParserSyntaxError, RecursionError):
            return None
        if code_of(tree, text) != text:
            return None
        # The outermost parentheses are ours.
        return tree.with_changes(lpar=tree.lpar[1:], rpar=tree.rpar[:-1])

    def rendered(self, node: ast.expr, tree: cst.CSTNode) -> Change | None:
        """The change that puts a libcst tree in place of a node."""
        return self.replace(node, code_of(tree, self.text(node)))


def code_of(tree: cst.CSTNode, text: str) -> str:
    """The code of a libcst tree that was made of a text.

    A tree does not hold those line ends that are like the first one in its text.
    """
    import libcst as cst

    end = LINE_END.search(text)
    return cst.Module([], default_newline=end[0] if end else "\n").code_for_node(tree)
