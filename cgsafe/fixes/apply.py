"""Applies the edits of a check's findings, over as many checks as it takes, and writes what came out.

Nothing is written before all is settled: in between, changed files are only held in memory (`Settings.contents`). A change
that does not parse, or does not make its finding go away, is undone.
"""

from __future__ import annotations

import ast
import difflib
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cgsafe.findings import Edit, Finding, Problem, Report
from cgsafe.fixes.patch import Change, Lines, applied, clash, moved
from cgsafe.settings import Settings
from cgsafe.source import STDIN, Source, decode, read
from cgsafe.terminal import unwritable

MAX_PASSES = 50  # each makes at least one change for good; more than this would be a transformer that undoes itself
LARGE = 200  # files; the graph of a smaller project takes little memory

Check = Callable[[Settings], Report]


class Failed(Exception):
    """A check ended with an internal error; nothing was written."""


class _Made(NamedTuple):
    """A change that was just made, for the next check to confirm."""

    finding: Finding
    before: int  # findings of the same code in its span before the change
    start: int  # the span after the change
    end: int


@dataclass
class _File:
    shown: str
    key: str  # absolute path, or "-"
    original: Source
    source: Source
    fixed: int = 0
    last: Source | None = None  # before the last pass


@dataclass
class Fixed:
    """The outcome: the report of what remains, and the files that changed."""

    report: Report
    files: list[_File] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(file.fixed for file in self.files)

    def stdin(self) -> bytes | None:
        """The text of standard input after the fixes, if it was changed."""
        return next((file.source.raw for file in self.files if file.key == STDIN), None)

    def diff(self) -> str:
        """All changes as one unified diff."""
        return "".join(_diff(file) for file in self.files)


class Fixer:
    """One run of fixes."""

    def __init__(self, settings: Settings, check: Check, unsafe: bool, write: bool) -> None:
        self.settings = settings
        self.check = check
        self.safeties = ("safe", "unsafe") if unsafe else ("safe",)
        self.write = write
        self.files: dict[str, _File] = {}
        self.refused: set[tuple[str, str, str]] = set()  # findings whose change was undone
        self.untouchable: dict[str, str] = {}  # paths that cannot be written, and why
        self.known = 0  # files of the last check
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def run(self) -> Fixed:
        report = self._check()
        for _ in range(MAX_PASSES):
            made = self._pass(report)
            if not made:
                break
            report = self._check()
            if self._undo_useless(made, report):
                report = self._check()
        if self.write and self._write_all():
            report = self._check()
        changed = [file for file in self.files.values() if file.source.raw != file.original.raw]
        report.notes.extend(self.notes)
        report.errors.extend(self.problems)
        result = Fixed(report, sorted(changed, key=lambda file: file.shown))
        report.fixed = result.count
        return result

    def _check(self) -> Report:
        contents = {file.key: file.source.raw for file in self.files.values() if file.key != STDIN}
        stdin = self.files[STDIN].source.raw if STDIN in self.files else self.settings.stdin
        if self.known > LARGE:  # make room: the graph of the check before is frozen, and in cycles
            gc.unfreeze()
            gc.collect()
        report = self.check(replace(self.settings, edits=True, contents=contents, stdin=stdin))
        self.known = report.files_known
        return report

    # -- one pass --------------------------------------------------------------------------------------------------

    def _pass(self, report: Report) -> list[_Made]:
        """Make the changes that do not get in each other's way."""
        by_path: dict[str, list[Finding]] = {}
        for finding in report.findings:
            if self._wanted(finding):
                by_path.setdefault(finding.path, []).append(finding)
        made: list[_Made] = []
        for path, findings in by_path.items():
            file = self._file(path)
            if file is not None:
                made += self._change(file, findings, [f for f in report.findings if f.path == path])
        return made

    def _wanted(self, finding: Finding) -> bool:
        fix = finding.fix
        return (
            fix is not None
            and bool(fix.edits)
            and fix.safety in self.safeties
            and not finding.outside
            and finding.path not in self.untouchable
            and _key(finding) not in self.refused
        )

    def _file(self, shown: str) -> _File | None:
        key = STDIN if shown == STDIN else os.path.abspath(shown)
        if key in self.files:
            return self.files[key]
        reason = unwritable(key) if self.write and key != STDIN else ""
        source = read(key, self.settings.stdin)
        if reason or not isinstance(source, Source):
            self.untouchable[shown] = reason
            self.problems.append(Problem(shown, 0, f"cannot fix it: {reason or 'it cannot be read any more'}"))
            return None
        return self.files.setdefault(key, _File(shown, key, source, source))

    def _change(self, file: _File, findings: list[Finding], all_findings: list[Finding]) -> list[_Made]:
        text = file.source.text
        lines = Lines(text)
        taken: list[tuple[Finding, list[Change]]] = []
        # What lies inside comes first: a change around it is worked out anew with the inner one made.
        for finding in sorted(findings, key=lambda f: (_size(f, lines), f.line, f.column, f.code)):
            assert finding.fix is not None
            changes = [_change_of(edit, lines) for edit in finding.fix.edits]
            others = [change for _, present in taken for change in present]
            if not any(clash(one, other) for one in changes for other in others):
                taken.append((finding, changes))
        taken = self._that_parse(file, taken)
        if not taken:
            return []
        changes = [change for _, some in taken for change in some]
        made = []
        for finding, _ in taken:
            span = _span(finding, lines)
            made.append(_Made(finding, _inside(all_findings, finding.code, lines, span), *moved(*span, changes)))
        file.last = file.source
        file.source = _encoded(file, applied(text, changes)) or file.source
        file.fixed += len(taken)
        return made

    def _that_parse(self, file: _File, taken: list[tuple[Finding, list[Change]]]) -> list[tuple[Finding, list[Change]]]:
        """Those changes that leave the file one that parses; the others are refused."""
        text = file.source.text
        if _sound(file, applied(text, [c for _, changes in taken for c in changes])):
            return taken
        kept: list[tuple[Finding, list[Change]]] = []
        for finding, changes in taken:
            if _sound(file, applied(text, [c for _, some in kept for c in some] + changes)):
                kept.append((finding, changes))
            else:
                self._refuse(finding, "the result would not be valid Python")
        return kept

    def _refuse(self, finding: Finding, reason: str) -> None:
        self.refused.add(_key(finding))
        self.notes.append(f"{finding.path}:{finding.line}: the fix of {finding.code} was undone: {reason}")

    def _undo_useless(self, made: list[_Made], report: Report) -> bool:
        """Take back the last pass in files where a finding is still there after its fix; True if there were any."""
        undone = False
        for path in dict.fromkeys(m.finding.path for m in made):
            file = self.files[STDIN if path == STDIN else os.path.abspath(path)]
            lines = Lines(file.source.text)
            here = [m for m in made if m.finding.path == path]
            left = [f for f in report.findings if f.path == path]
            useless = [m for m in here if _inside(left, m.finding.code, lines, (m.start, m.end)) >= m.before]
            if not useless:
                continue
            for one in useless:
                self._refuse(one.finding, "the finding was still there")
            undone = True
            assert file.last is not None
            file.source = file.last
            file.fixed -= len(here)
        return undone

    # -- writing ---------------------------------------------------------------------------------------------------

    def _write_all(self) -> bool:
        """Write the changed files; True where one could not be, which then counts as unchanged."""
        from cgsafe.terminal import write_bytes

        failed = False
        for file in self.files.values():
            if file.key == STDIN or file.source.raw == file.original.raw:
                continue
            reason = ""
            present = read(file.key)
            if not isinstance(present, Source) or present.raw != file.original.raw:
                reason = "it was changed by somebody else meanwhile"
            else:
                try:
                    write_bytes(file.key, file.source.raw)
                except OSError as error:
                    reason = str(error.strerror or error)
            if reason:
                self.problems.append(Problem(file.shown, 0, f"cannot write the fixed file: {reason}"))
                file.source, file.fixed, failed = file.original, 0, True
        if failed:
            self.files = {key: file for key, file in self.files.items() if file.source is not file.original}
        return failed


def fix(check: Check, settings: Settings, unsafe: bool, write: bool) -> Fixed:
    """Check, fix and check again until nothing is left to fix. Files are only changed with `write`."""
    return Fixer(settings, check, unsafe, write).run()


def _key(finding: Finding) -> tuple[str, str, str]:
    return (finding.path, finding.code, finding.fingerprint)


def _span(finding: Finding, lines: Lines) -> tuple[int, int]:
    return lines.offset(finding.line, finding.column), lines.offset(finding.end_line, finding.end_column)


def _size(finding: Finding, lines: Lines) -> int:
    start, end = _span(finding, lines)
    return end - start


def _change_of(edit: Edit, lines: Lines) -> Change:
    return lines.offset(edit.line, edit.column), lines.offset(edit.end_line, edit.end_column), edit.replacement


def _inside(findings: Sequence[Finding], code: str, lines: Lines, span: tuple[int, int]) -> int:
    """How many findings of a code start within a span."""
    return sum(f.code == code and span[0] <= lines.offset(f.line, f.column) < span[1] for f in findings)


def _encoded(file: _File, text: str) -> Source | None:
    """The file with another text, in its encoding."""
    try:
        raw = text.encode(file.original.encoding)  # "utf-8-sig" writes the byte order mark again
    except (UnicodeError, LookupError):
        return None
    source = decode(file.key, raw)
    return source if isinstance(source, Source) and source.text == text else None


def _sound(file: _File, text: str) -> bool:
    """Whether the text is Python, and can be written in the file's encoding."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return _encoded(file, text) is not None


def _diff(file: _File) -> str:
    old, new = (_split(source.text) for source in (file.original, file.source))
    name = "<stdin>" if file.key == STDIN else file.shown
    parts = []
    for line in difflib.unified_diff(old, new, name, name):
        parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def _split(text: str) -> list[str]:
    """The lines as `diff` and `patch` know them: only a line feed ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
