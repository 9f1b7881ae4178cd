"""One line for each finding, never wrapped, for editors and for grep."""

from __future__ import annotations

from typing import TextIO

from cgsafe.findings import Finding, Report
from cgsafe.report import Options, ordered, silenced
from cgsafe.report.style import Style, escape


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write `path:line:column: CODE severity[confidence] message` for each finding, and nothing else."""
    style = Style(options.color)
    for finding in ordered(report, options):
        out.write(_line(finding, style) + "\n")


def _line(finding: Finding, style: Style) -> str:
    place = f"{escape(finding.path)}:{finding.line}:{finding.column}:"
    kind = f"{escape(finding.code)} {finding.severity.value}[{finding.confidence.label}]"
    outside = " (outside the given paths)" if finding.outside else ""
    why = f" ({escape(silenced(finding))})" if silenced(finding) else ""
    message = f"{escape(finding.message)}{outside}{why}"
    return f"{style(place, 'bold')} {style.severity(kind, finding.severity)} {message}"
