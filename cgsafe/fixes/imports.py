"""What the names of a file are imported from, how to write another name, and where an import goes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cgsafe.fixes.patch import Change
    from cgsafe.fixes.target import SourceFile

_Import = ast.Import | ast.ImportFrom


class Imports:
    """The imports of one file.

    Names that the file also binds otherwise (a parameter `torch`) are never used: which one is meant would take an analysis
    of scopes.
    """

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.everywhere: dict[str, set[str]] = {}  # bound name -> what imports anywhere in the file bind it to
        self.at_top: dict[str, str] = {}  # those that hold in all of the file
        self.bound: set[str] = set()  # names that something else than an import binds
        for node in ast.walk(file.tree):
            if isinstance(node, _Import):
                for name, origin in _bindings(node):
                    self.everywhere.setdefault(name, set()).add(origin)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                self.bound.add(node.id)
            elif isinstance(node, ast.arg):
                self.bound.add(node.arg)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if not isinstance(file.parents.get(node), ast.ClassDef):  # a method hides nothing
                    self.bound.add(node.name)
            elif isinstance(node, ast.ExceptHandler) and node.name:
                self.bound.add(node.name)
        for statement in file.tree.body:
            if isinstance(statement, _Import):
                self.at_top.update(_bindings(statement))

    def origin(self, name: str) -> str:
        """What a name is imported from; "" where it is not, or is bound to several things."""
        origins = self.everywhere.get(name, set())
        return next(iter(origins)) if len(origins) == 1 and name not in self.bound else ""

    def qualified(self, node: ast.expr) -> str:
        """The full name behind `a.b.c` where `a` is imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        origin = self.origin(node.id) if isinstance(node, ast.Name) else ""
        return ".".join([origin, *reversed(parts)]) if origin else ""

    def named(self, name: str) -> tuple[str, list[Change]] | None:
        """How to write a full name, and the import that this takes."""
        best = ("", "")
        for bound, origin in self.at_top.items():
            fits = name == origin or name.startswith(origin + ".")
            if fits and self.origin(bound) == origin and (len(origin), bound) > (len(best[0]), best[1]):
                best = (origin, bound)
        if best[0]:
            return best[1] + name[len(best[0]) :], []
        package = name.partition(".")[0]
        change = self.importing(f"import {package}")
        return None if change is None else (name, change)

    def importing(self, statement: str) -> list[Change] | None:
        """The change that makes an import hold in the file; none where it does, None where its name means other things."""
        parsed = ast.parse(statement).body[0]
        assert isinstance(parsed, _Import)
        ((name, origin),) = _bindings(parsed)
        if self.at_top.get(name) == origin and self.origin(name) == origin:
            return []
        if name in self.bound or self.everywhere.get(name, {origin}) != {origin}:
            return None
        if isinstance(parsed, ast.ImportFrom):
            for present in self.file.tree.body:
                if (
                    isinstance(present, ast.ImportFrom)
                    and present.level == 0
                    and present.module == parsed.module
                    and present.names[0].name != "*"
                ):
                    change = _extended(self.file, present, statement.partition(" import ")[2])
                    if change is not None:
                        return [change]
        return [self._inserted(statement)]

    def _inserted(self, statement: str) -> Change:
        """A line of its own: after the imports at the top, else after docstring and `__future__`, else at the top."""
        file, body = self.file, self.file.tree.body
        after: ast.stmt | None = None
        only_text = False
        for number, present in enumerate(body):
            if isinstance(present, _Import):
                after, only_text = present, False
            elif number == 0 and _is_text(present):
                after, only_text = present, True
            elif isinstance(present, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                break
        if after is None:
            first = body[0]
            decorators = getattr(first, "decorator_list", [])
            start = file.line_start(file.span(decorators[0] if decorators else first)[0])
            return (
                start,
                start,
                statement + file.newline * (1 if isinstance(first, ast.stmt) and _short(first) else 3),
            )
        end = file.span(after)[1]
        # Statements may share a line, and one that begins on it may end further down.
        while later := [s for s in body if file.span(s)[0] <= file.line_end(end) and file.span(s)[1] > end]:
            end = max(file.span(s)[1] for s in later)
        place = file.next_line(end)
        blank = file.newline if only_text else ""
        if file.line_end(end) == len(file.text):  # no line end there
            return (place, place, file.newline + blank + statement)
        return (place, place, blank + statement + file.newline)


def _short(statement: ast.stmt) -> bool:
    return not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _bindings(node: _Import) -> list[tuple[str, str]]:
    """(bound name, full name) for each name that an import binds; relative ones are no full names."""
    if isinstance(node, ast.Import):
        return [(a.asname, a.name) if a.asname else (a.name.partition(".")[0],) * 2 for a in node.names]
    prefix = "." * node.level + (node.module or "")
    return [(a.asname or a.name, f"{prefix}.{a.name}") for a in node.names if a.name != "*"]


def _extended(file: SourceFile, node: ast.ImportFrom, name: str) -> Change | None:
    """One more name in a `from ... import ...` statement."""
    import libcst as cst

    from cgsafe.fixes.patch import trimmed
    from cgsafe.fixes.target import code_of

    start, end = file.span(node)
    text = file.text[start:end]
    try:
        line = cst.parse_statement(text)
    except cst.ParserSyntaxError:
        return None
    if not isinstance(line, cst.SimpleStatementLine) or not isinstance(line.body[0], cst.ImportFrom):
        return None
    statement = line.body[0]
    if isinstance(statement.names, cst.ImportStar) or code_of(statement, text) != text:
        return None
    names = list(statement.names)
    last, comma = names[-1], cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    between = names[-2].comma if len(names) > 1 else comma
    one_line = "\n" not in text and "\r" not in text
    if isinstance(last.comma, cst.Comma):
        # One name to a line, with a comma after the last: the new one gets a line like the others.
        if not one_line and isinstance(statement.lpar, cst.LeftParen):
            indent = statement.lpar.whitespace_after
            if not isinstance(indent, cst.ParenthesizedWhitespace):
                return None
            closing = last.comma.whitespace_after
            if not isinstance(closing, cst.ParenthesizedWhitespace):
                return None
            names[-1] = last.with_changes(
                comma=last.comma.with_changes(
                    whitespace_after=closing.with_changes(indent=indent.indent, last_line=indent.last_line)
                )
            )
            bare = closing.with_changes(
                first_line=cst.TrailingWhitespace(newline=closing.first_line.newline), empty_lines=[]
            )
            names.append(cst.ImportAlias(cst.Name(name), comma=cst.Comma(whitespace_after=bare)))
        else:
            names[-1] = last.with_changes(comma=comma)
            names.append(cst.ImportAlias(cst.Name(name), comma=last.comma))
    else:
        simple = one_line and isinstance(between, cst.Comma)
        names[-1] = last.with_changes(comma=between if simple else comma)
        names.append(cst.ImportAlias(cst.Name(name)))
    return trimmed(file.text, start, end, code_of(statement.with_changes(names=names), text))
