"""The format for people: each finding with its code, the path that leads there, and what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TextIO

from cgsafe import source
from cgsafe.findings import Finding, Report, Root, Severity, Step
from cgsafe.report import Options, counted, ordered, silenced
from cgsafe.report.frame import code_frame
from cgsafe.report.style import Style, escape

WIDEST_PROSE = 120  # longer lines are hard to read, however wide the screen is
WIDEST_PLACE = 44  # places longer than this do not widen the column that the others stand in


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write the findings, and below them how many there are (unless quiet)."""
    writer = _Writer(options)
    for finding in ordered(report, options):
        out.writelines(line + "\n" for line in writer.finding(finding))
        out.write("\n")
    if not options.quiet:
        out.writelines(line + "\n" for line in writer.summary(report))


class _Writer:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._style = Style(options.color)
        self._width = max(options.width, 40)
        self._prose = min(self._width, WIDEST_PROSE)
        self._files: dict[str, list[str]] = {}
        self._told: set[str] = set()  # codes whose error text was shown

    def finding(self, finding: Finding) -> Iterator[str]:
        yield from self._header(finding)
        yield from code_frame(self._lines(finding.path), finding, self._width, self._style)
        where = f" ({counted(finding.root_count, 'root')} in all)" if finding.root_count > 1 else ""
        if finding.trace:
            yield f"  {self._style('path', 'bold')}{where}:"
            yield from self._path(finding.root, finding.trace)
        for root, trace in finding.also:
            yield f"  {self._style('also', 'bold')}:"
            yield from self._path(root, trace)
        if finding.fix is not None:
            yield from self._labelled("fix", f"{finding.fix.description} ({self._effort(finding)})")
        rule = self._options.rules.get(finding.code)
        if rule is not None and rule.error and finding.code not in self._told:
            self._told.add(finding.code)
            yield from self._labelled("the GPU says", rule.error)

    def summary(self, report: Report) -> Iterator[str]:
        found = len(report.findings)
        errors = sum(finding.severity is Severity.ERROR for finding in report.findings)
        text = (
            f"{counted(found, 'finding')} ({counted(errors, 'error')}, {counted(found - errors, 'warning')})"
            if found
            else "No findings"
        )
        text += f" in {counted(report.files_checked, 'file')}"
        if report.errors:
            text += f"; {counted(len(report.errors), 'problem')} kept the check from being complete"
        yield from self._wrapped(self._style(text, "bold") + ".", "", "")
        if report.hidden:
            asked = self._options.min_confidence
            yield from self._wrapped(f"{counted(report.hidden, 'finding')} below {asked} confidence not shown.", "", "")
        if report.untouched:
            yield from self._wrapped(f"{counted(report.untouched, 'finding')} elsewhere, not of this change.", "", "")
        if report.suppressed:
            by_comment = sum(f.suppression is not None for f in report.suppressed)
            known = len(report.suppressed) - by_comment
            parts = [f"{by_comment} suppressed" if by_comment else "", f"{known} in the baseline" if known else ""]
            shown = "" if self._options.show_suppressed else " (--show-suppressed shows them)"
            yield from self._wrapped(f"{', '.join(filter(None, parts))}{shown}.", "", "")
        if found:
            codes = sorted({finding.code for finding in report.findings})
            yield from self._wrapped(f"More about each: cgsafe explain {' '.join(map(escape, codes))}", "", "")
        if self._options.verbose:
            yield f"{counted(report.files_known, 'known file')}, {counted(report.roots, 'capture root')}."

    def _header(self, finding: Finding) -> Iterator[str]:
        style = self._style
        place = f"{escape(finding.path)}:{finding.line}:{finding.column}:"
        code = escape(finding.code)
        kind = f"{finding.severity.value}[{finding.confidence.label}]"
        message = escape(finding.message)
        if finding.outside:
            message += " (outside the given paths)"
        if silenced(finding):
            message += f" ({escape(silenced(finding))})"
        first, *rest = self._wrapped(f"{place} {code} {kind} {message}", "", "    ")
        # Colours go in after wrapping, since they take no room.
        plain = f"{place} {code} {kind}"
        if first.startswith(plain):
            colored = f"{style(place, 'bold')} {style.severity(f'{code} {kind}', finding.severity)}"
            first = colored + first[len(plain) :]
        yield first
        yield from rest

    def _path(self, root: Root, trace: Iterable[Step]) -> Iterator[str]:
        steps = [Step(root.path, root.line, root.function, f"root: {root.reason}"), *trace]
        places = [f"{escape(step.path)}:{step.line}" for step in steps]
        column = max((len(place) for place in places if len(place) <= WIDEST_PLACE), default=0)
        for step, place in zip(steps, places, strict=True):
            function, note = escape(step.function), escape(step.note)
            text = f"{place.ljust(column)}  {function}".rstrip()
            if 4 + len(text) > self._width:
                text, note = place, "  ".join(filter(None, (function, note)))
            shown = f"    {self._style(place, 'cyan')}{text[len(place) :]}"
            if not note:
                yield shown
            elif 4 + len(text) + 2 + len(note) <= self._width:
                yield f"{shown}  {self._style(note, 'dim')}"
            else:
                yield shown
                for line in self._wrapped(note, " " * 8, " " * 8):
                    yield self._style(line, "dim")

    def _labelled(self, label: str, text: str) -> Iterator[str]:
        indent = " " * 4
        lines = [escape(line) for line in text.splitlines() if line.strip()]
        first, *rest = self._wrapped(f"{label}: {lines[0] if lines else ''}", "  ", indent)
        yield "  " + self._style(f"{label}:", "bold") + first[len(label) + 3 :]
        yield from rest
        for line in lines[1:]:
            yield from self._wrapped(line.strip(), indent, indent)

    def _wrapped(self, text: str, first: str, following: str) -> list[str]:
        return textwrap.wrap(
            text,
            self._prose,
            initial_indent=first,
            subsequent_indent=following,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _lines(self, path: str) -> list[str]:
        if path not in self._files:
            found = source.read(path, self._options.stdin, self._options.contents)
            self._files[path] = found.lines if isinstance(found, source.Source) else []
        return self._files[path]

    @staticmethod
    def _effort(finding: Finding) -> str:
        assert finding.fix is not None
        if not finding.fix.edits and finding.fix.transform:
            # Only --fix looks whether it is written in a way that can be changed.
            return {"safe": "try --fix", "unsafe": "try --fix --unsafe-fixes"}.get(finding.fix.safety, "by hand")
        if not finding.fix.edits:
            return "by hand"
        return {"safe": "can be applied as it is", "unsafe": "an edit to review"}.get(finding.fix.safety, "by hand")
