"""One HTML file that needs nothing else: the captured call tree with the hazards in it, to open, close and search."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from string import Template
from typing import TextIO

from cgsafe import source
from cgsafe.findings import Finding, Report, Root, Severity, Step
from cgsafe.report import Options, counted, ordered, ordered_errors, silenced
from cgsafe.report.style import escape

AROUND = 2  # lines of code shown above and below a finding
LONGEST = 12  # lines of a finding that are shown


@dataclass
class _Call:
    """A place in the tree: what is called from there, and what is found."""

    label: str
    children: dict[Root | Step, _Call] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def below(self, key: Root | Step, label: str) -> _Call:
        return self.children.setdefault(key, _Call(label))

    @property
    def count(self) -> int:
        return len(self.findings) + sum(child.count for child in self.children.values())


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write the page. All that comes from checked code is text in it, never markup."""
    page = _Page(options)
    top = _Call("")
    found = ordered(report, options)
    for finding in found:
        page.place(finding, top)
    errors = sum(finding.severity is Severity.ERROR for finding in found)
    title = f"{counted(len(found), 'finding')} ({counted(errors, 'error')}) in {counted(report.files_checked, 'file')}"
    body = [line for call in top.children.values() for line in page.call(call)]
    body += [line for finding in top.findings for line in page.finding(finding)]
    body += [
        f"<p>not checked: {_text(p.path)}{f':{p.line}' if p.line else ''}: {_text(p.message)}</p>"
        for p in ordered_errors(report)
    ]
    template = Template(files("cgsafe.report").joinpath("page.html").read_text(encoding="utf-8"))
    out.write(template.substitute(title=title, body="\n".join(body) or "<p>No findings.</p>"))


class _Page:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._files: dict[str, list[str]] = {}

    def place(self, finding: Finding, top: _Call) -> None:
        """Put a finding into the tree, below the calls that lead to it."""
        here = top
        if finding.trace:
            root = finding.root
            here = top.below(root, f"{_place(root.path, root.line, root.function)} {_note(root.reason)}")
            for step in finding.trace[:-1]:
                here = here.below(step, f"{_place(step.path, step.line, step.function)} {_note(step.note)}")
        here.findings.append(finding)

    def call(self, call: _Call) -> Iterator[str]:
        yield f"<details open><summary>{call.label} <b>{call.count}</b></summary>"
        for finding in call.findings:
            yield from self.finding(finding)
        for child in call.children.values():
            yield from self.call(child)
        yield "</details>"

    def finding(self, finding: Finding) -> Iterator[str]:
        steps = [f"{finding.root.path} {finding.root.function}"]
        steps += [f"{step.path} {step.function}" for step in finding.trace]
        words = " ".join([finding.code, finding.name, finding.path, finding.source, finding.severity.value, *steps])
        kind = finding.severity.value + (" silenced" if silenced(finding) else "")
        yield f'<article class="{kind}" data-search="{_text(words.lower())}">'
        yield f"<p><b>{_text(finding.code)}</b> {_text(finding.name)} [{finding.confidence.label}]"
        yield f"{_place(finding.path, finding.line, finding.function)}</p>"
        why = f" <i>({_text(silenced(finding))})</i>" if silenced(finding) else ""
        yield f"<p>{_text(finding.message)}{why}</p>"
        yield from self._code(finding)
        if finding.fix is not None:
            yield f"<p>fix: {_text(finding.fix.description)}</p>"
        rule = self._options.rules.get(finding.code)
        if rule is not None and rule.error:
            yield f"<p>the GPU says: <code>{_text(rule.error)}</code></p>"
        yield "</article>"

    def _code(self, finding: Finding) -> Iterator[str]:
        lines = self._lines(finding.path)
        if not 1 <= finding.line <= len(lines):
            return
        last = min(max(finding.end_line, finding.line), finding.line + LONGEST, len(lines))
        rows = []
        for number in range(max(1, finding.line - AROUND), min(len(lines), last + AROUND) + 1):
            line = lines[number - 1].expandtabs(1)
            start, end = 0, 0
            if finding.line <= number <= last:
                start = finding.column - 1 if number == finding.line else len(line) - len(line.lstrip())
                end = finding.end_column - 1 if number == finding.end_line else len(line)
            marked = f"<mark>{_text(line[start:end])}</mark>" if start < end else ""
            code = f"{_text(line[:start])}{marked}{_text(line[max(start, end) :])}"
            rows.append(f'<span class="number">{number}</span>{code}')
        yield "<pre>" + "\n".join(rows) + "</pre>"

    def _lines(self, path: str) -> list[str]:
        if path not in self._files:
            found = source.read(path, self._options.stdin, self._options.contents)
            self._files[path] = found.lines if isinstance(found, source.Source) else []
        return self._files[path]


def _place(path: str, line: int, function: str) -> str:
    return f'<code>{_text(function)}</code> <span class="place">{_text(path)}:{line}</span>'


def _note(text: str) -> str:
    return f'<span class="note">{_text(text)}</span>'


def _text(text: str) -> str:
    """Text that came from anywhere, fit to stand in the page or in an attribute."""
    return html.escape(escape(text), quote=True)
