"""Findings that the checked code itself silences, and comments that silence nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from cgsafe.comments import MARKERS, SUPPRESSIONS, WORD, Comments, Directive, closes, removal
from cgsafe.events import HOST, Comment, InvalidComment, Place, UnusedComment
from cgsafe.findings import Confidence, Edit, Suppression
from cgsafe.marks import resolve
from cgsafe.rule import Rule
from cgsafe.selection import unknown_codes


class FileSuppressions:
    """The comments of one file, and which of them were needed."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.comments = Comments(text)
        self._ranges = self.comments.ranges()
        self._out_of_place: list[tuple[Directive, str]] | None = None
        self._used: dict[Directive, set[str]] = {}  # -> codes that it silenced

    def find(self, code: str, line: int, explicitly: bool = False) -> Suppression | None:
        """The comment that silences a code on a line; all that do count as used."""
        covering = [d for d in self.comments.directives if d.kind in ("ignore", "ignore-file") and d.covers(line)]
        covering += [off for off, first, last in self._ranges if first <= line <= last]
        found = [d for d in covering if not d.fault and d.lists(code) and not (explicitly and d.names is None)]
        for directive in found:
            self._used.setdefault(directive, set()).add(code)
        if not found:
            return None
        found.sort(key=lambda d: (d.kind != "ignore", d.line))
        return Suppression(found[0].kind, found[0].line, found[0].reason)

    def events(self, ran: Collection[str], rules: Sequence[type[Rule]], reasons: bool) -> list[Any]:
        """What is wrong with the comments. `ran`: the codes that this run looked for; `rules`: all that there are."""
        events: list[Any] = []
        for directive in self.comments.directives:
            problems = list(self._problems(directive, rules, reasons))
            events.extend(InvalidComment(**self._common(directive), problem=problem) for problem in problems)
            if not directive.fault and directive.kind in SUPPRESSIONS and directive.kind != "on":
                unused = self._unused(directive, ran, rules)
                if unused is not None:
                    edit = self._edit(directive, unused)
                    events.append(UnusedComment(**self._common(directive), codes=unused, removal=edit))
        return events

    def _problems(self, directive: Directive, rules: Sequence[type[Rule]], reasons: bool) -> Iterable[str]:
        if directive.fault:
            yield directive.fault
            return
        if directive.kind in SUPPRESSIONS:
            yield from unknown_codes(directive.names or (), rules)
            if reasons and directive.kind != "on" and not directive.reason:
                yield "a reason is required: write it behind the comment's codes"
        offs = [off for off, _, last in self._ranges if last == directive.line]
        if directive.kind == "on" and not any(closes(directive, off) for off in offs):
            yield "`on` ends nothing: there is no `off` above for the same codes"
        if directive.kind in MARKERS:
            yield from (problem for useless, problem in self._useless() if useless == directive)

    def _useless(self) -> list[tuple[Directive, str]]:
        """The markers that mean nothing where they stand."""
        if self._out_of_place is None:
            try:
                tree = ast.parse("\n".join(self.comments.lines))
            except (SyntaxError, ValueError, RecursionError):
                tree = None
            self._out_of_place = resolve(self.comments, tree)[1] if tree is not None else []
        return self._out_of_place

    def _unused(
        self, directive: Directive, ran: Collection[str], rules: Sequence[type[Rule]]
    ) -> tuple[str, ...] | None:
        """The codes of a comment that silence nothing, () where it names none; None where all are needed."""
        used = self._used.get(directive, ())
        rules = [rule for rule in rules if not about_comments(rule)]  # these are judged later
        if directive.names is None:
            # Whether all could be silenced is only known where all were looked for.
            return None if used or not {rule.code for rule in rules} <= set(ran) else ()
        unused = []
        for name in directive.names:
            about = [rule.code for rule in rules if rule.code.startswith(name)]
            if about and set(about) <= set(ran) and not any(code.startswith(name) for code in used):
                unused.append(name)
        return tuple(unused) or None

    def _common(self, directive: Directive) -> dict[str, Any]:
        line = directive.line
        place = Place(self.path, line, directive.column, line, directive.end_column, "")
        source = self.comments.lines[line - 1][directive.column - 1 : directive.end_column - 1]
        return {"place": place, "region": HOST, "source": source, "confidence": Confidence.HIGH}

    def _edit(self, directive: Directive, unused: tuple[str, ...]) -> Edit:
        """Take the comment away, or only the codes that are not needed."""
        line = self.comments.lines[directive.line - 1]
        kept = [name for name in directive.names or () if name not in unused]
        if not kept:
            row, column, end_row, end_column, text = removal(directive, line)
            return Edit(self.path, row, column, end_row, end_column, text)
        opened = line.index("[", directive.column - 1)
        closed = line.index("]", opened)
        return Edit(self.path, directive.line, opened + 2, directive.line, closed + 1, ", ".join(kept))


class Suppressions:
    """The comments of all files, read when they are first asked for."""

    def __init__(self, text_of: Callable[[str], str]) -> None:
        self._text_of = text_of  # the text of a file, by its path
        self._files: dict[str, FileSuppressions | None] = {}

    def of(self, path: str) -> FileSuppressions | None:
        """The comments of a file; None where it has none of ours."""
        if path not in self._files:
            text = self._text_of(path)
            self._files[path] = FileSuppressions(path, text) if WORD in text else None
        return self._files[path]

    def find(self, path: str, code: str, line: int) -> Suppression | None:
        file = self.of(path)
        return file.find(code, line) if file is not None else None


def about_comments(rule: type[Rule]) -> bool:
    """Whether a rule is about comments, not about code."""
    return any(issubclass(event, Comment) for event, _ in rule.handlers())
