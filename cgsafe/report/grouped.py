"""The findings by rule, most frequent first: for an overview of a large tree."""

from __future__ import annotations

from typing import TextIO

from cgsafe.catalogue import summary
from cgsafe.findings import Finding, Report
from cgsafe.report import Options, counted, ordered, silenced
from cgsafe.report.style import Style, escape


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write a heading for each rule, and a line for each finding below it."""
    style = Style(options.color)
    groups: dict[str, list[Finding]] = {}
    for finding in ordered(report, options):
        groups.setdefault(finding.code, []).append(finding)
    for code, findings in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        first = findings[0]
        title = style.severity(f"{escape(code)} {escape(first.name)}", first.severity)
        out.write(f"{title}  {counted(len(findings), 'finding')}\n")
        if code in options.rules:
            out.write(style(f"  {escape(summary(options.rules[code]))}", "dim") + "\n")
        places = [f"{escape(f.path)}:{f.line}:{f.column}" for f in findings]
        wide = max(len(place) for place in places if len(place) <= 60 or place is places[0])
        for finding, place in zip(findings, places, strict=True):
            why = f" ({escape(silenced(finding))})" if silenced(finding) else ""
            level = f"[{finding.confidence.label}]"
            out.write(f"  {style(place.ljust(wide), 'bold')}  {level.ljust(8)} {escape(finding.message)}{why}\n")
        out.write("\n")
    if not options.quiet:
        total = sum(map(len, groups.values()))
        out.write(f"{counted(total, 'finding')} of {counted(len(groups), 'rule')}.\n")
