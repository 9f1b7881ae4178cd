"""JUnit's XML, which most CI systems can show: a test case for each finding, and one that passes where there is none."""

from __future__ import annotations

from typing import TextIO
from xml.sax.saxutils import escape as for_xml
from xml.sax.saxutils import quoteattr

from cgsafe.findings import Finding, Problem, Report
from cgsafe.report import Options, ordered, ordered_errors, silenced
from cgsafe.report.style import escape


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write one document. It is ASCII, and holds none of the control characters that XML does not allow."""
    findings, problems = ordered(report, options), ordered_errors(report)
    failures = sum(not silenced(finding) for finding in findings)
    cases = [*map(_failure, findings), *map(_error, problems)]
    if not cases:
        cases.append('    <testcase classname="cgsafe" name="no findings"/>')
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{len(problems)}"'
    skipped = f'skipped="{len(findings) - failures}"'
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f'<testsuites name="cgsafe" {counts}>']
    lines += [f'  <testsuite name="cgsafe" {counts} {skipped}>', *cases, "  </testsuite>", "</testsuites>"]
    out.writelines(f"{line}\n".encode("ascii", "xmlcharrefreplace").decode() for line in lines)


def _failure(finding: Finding) -> str:
    name = f"{finding.code} {finding.path}:{finding.line}:{finding.column}"
    head = f"    <testcase classname={_attribute(finding.path)} name={_attribute(name)}"
    head += f' file={_attribute(finding.path)} line="{finding.line}">'
    if silenced(finding):
        return f"{head}<skipped message={_attribute(f'{finding.message} ({silenced(finding)})')}/></testcase>"
    steps = [f"{step.path}:{step.line} {step.function} {step.note}".rstrip() for step in finding.trace]
    root = f"{finding.root.path}:{finding.root.line} {finding.root.function}: {finding.root.reason}"
    lines = ["path:", f"  {root}", *(f"  {step}" for step in steps)] if steps else []
    if finding.fix is not None:
        lines.append(f"fix: {finding.fix.description}")
    text = "\n".join(for_xml(escape(line)) for line in lines)
    kind = f"type={_attribute(f'{finding.severity.value} {finding.confidence.label}')}"
    return f"{head}<failure {kind} message={_attribute(finding.message)}>{text}</failure></testcase>"


def _error(problem: Problem) -> str:
    place = f"{problem.path}:{problem.line}" if problem.line else problem.path or "cgsafe"
    head = f"    <testcase classname={_attribute(problem.path or 'cgsafe')} name={_attribute(place)}>"
    return f"{head}<error message={_attribute(problem.message)}/></testcase>"


def _attribute(text: str) -> str:
    return quoteattr(escape(text))
