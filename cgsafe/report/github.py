"""Workflow commands, from which GitHub makes annotations in a pull request."""

from __future__ import annotations

from typing import TextIO

from cgsafe.findings import Finding, Report, Severity
from cgsafe.report import Options, ordered, silenced
from cgsafe.report.style import escape


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write an `error`, `warning` or (for what is silenced) `notice` command for each finding."""
    for finding in ordered(report, options):
        out.write(_command(finding) + "\n")


def _command(finding: Finding) -> str:
    name = "error" if finding.severity is Severity.ERROR else "warning"
    if silenced(finding):
        name = "notice"
    properties = {"file": finding.path, "line": str(finding.line)}
    if finding.end_line == finding.line:
        properties |= {"col": str(finding.column), "endColumn": str(max(finding.end_column - 1, finding.column))}
    else:
        properties["endLine"] = str(finding.end_line)
    properties["title"] = f"{finding.code} {finding.name}"
    lines = [finding.message, *_path(finding)]
    if finding.fix is not None:
        lines.append(f"fix: {finding.fix.description}")
    if silenced(finding):
        lines.append(silenced(finding))
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{name} {listed}::{_data(lines)}"


def _path(finding: Finding) -> list[str]:
    if not finding.trace:
        return []
    root = finding.root
    steps = [f"{step.path}:{step.line} {step.function} {step.note}".rstrip() for step in finding.trace]
    return [f"path: {root.path}:{root.line} {root.function} ({root.reason})", *(f"  {step}" for step in steps)]


def _data(lines: list[str]) -> str:
    """A message. What comes from checked code is on one line, and no part of it is a command or ends the message."""
    return "%0A".join(escape(line).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return escape(text).replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
