"""Output formats. A format is one module here with a function `render(report, out, options)`, and a line in FORMATS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

from cgsafe.findings import Finding, Problem, Report

if TYPE_CHECKING:
    from cgsafe.rule import Rule

# Name on the command line -> module; imported only when asked for.
FORMATS: dict[str, str] = {
    "text": "cgsafe.report.text",
    "concise": "cgsafe.report.concise",
    "grouped": "cgsafe.report.grouped",
    "json": "cgsafe.report.json",
    "json-lines": "cgsafe.report.json_lines",
    "sarif": "cgsafe.report.sarif",
    "github": "cgsafe.report.github",
    "gitlab": "cgsafe.report.gitlab",
    "junit": "cgsafe.report.junit",
    "html": "cgsafe.report.html",
}


@dataclass(frozen=True)
class Options:
    """How to render; a format takes from it what it needs."""

    color: bool = False
    width: int = 100  # columns of the screen; formats for machines never wrap
    quiet: bool = False
    verbose: bool = False
    statistics: bool = False
    min_confidence: str = "medium"  # as asked, to explain what is hidden
    stdin: bytes | None = None  # the text behind the path "-", for code frames
    rules: Mapping[str, type[Rule]] = field(default_factory=dict)  # by code, for what the GPU says
    show_suppressed: bool = False  # also findings that are silenced
    contents: Mapping[str, bytes | None] | None = None  # what files hold, instead of what is on the disk


class Render(Protocol):
    """The interface of a format. It writes findings only; problems are the command's to tell (JSON holds both)."""

    def __call__(self, report: Report, out: TextIO, options: Options) -> None: ...


def renderer(name: str) -> Render:
    """The function that renders a format."""
    from importlib import import_module

    render: Render = import_module(FORMATS[name]).render
    return render


def ordered(report: Report, options: Options | None = None) -> list[Finding]:
    """The findings in the order of every format; with the silenced ones where the options ask for them."""
    findings = [
        *report.findings,
        *report.accepted,
        *(report.suppressed if options is not None and options.show_suppressed else ()),
    ]
    return sorted(findings, key=lambda f: (f.path, f.line, f.column, f.code, f.message))


def silenced(finding: Finding) -> str:
    """Why a finding is not reported; "" where it is."""
    if finding.baseline == "unchanged":
        return "in the baseline"
    if finding.accepted:
        return f"suppressed: `with {finding.accepted}` accepts it"
    if finding.suppression is None:
        return ""
    why = f": {finding.suppression.reason}" if finding.suppression.reason else ""
    where = f" on line {finding.suppression.line}" if finding.suppression.line else ""
    return f"suppressed by {finding.suppression.kind}{where}{why}"


def ordered_errors(report: Report) -> list[Problem]:
    """The problems in the order of every format."""
    return sorted(report.errors, key=lambda p: (p.path, p.line, p.message))


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
