"""The format for programs. Keys are only ever added to it; a change of meaning raises `version`."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, TextIO

from cgsafe import __version__
from cgsafe.findings import Finding, Fix, Report, Root, Severity, Step, Suppression
from cgsafe.report import Options, ordered, ordered_errors

VERSION = 1


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write one JSON document. All of it is ASCII, so that no locale and no odd file name can break it."""
    json.dump(document(report, options), out, indent=2, ensure_ascii=True)
    out.write("\n")


def document(report: Report, options: Options) -> dict[str, Any]:
    """The report as plain data."""
    findings = ordered(report)
    shown = ordered(report, options)
    summary: dict[str, Any] = {
        "findings": len(findings),
        "errors": sum(finding.severity is Severity.ERROR for finding in findings),
        "warnings": sum(finding.severity is Severity.WARNING for finding in findings),
        "by_code": dict(sorted(Counter(finding.code for finding in findings).items())),
        "hidden": report.hidden,
        "suppressed": sum(f.suppression is not None for f in report.suppressed),
        "in_baseline": sum(f.baseline == "unchanged" for f in report.suppressed),
        "stale_in_baseline": report.stale,
        "untouched": report.untouched,
        "files_checked": report.files_checked,
        "files_known": report.files_known,
        "roots": report.roots,
        "problems": len(report.errors),
    }
    if report.fixed:
        summary["fixed"] = report.fixed
    if options.statistics:
        summary["statistics"] = dict(report.statistics)
    return {
        "version": VERSION,
        "tool": {"name": "cgsafe", "version": __version__},
        "findings": [finding_document(finding) for finding in shown],
        "errors": [{"path": p.path, "line": p.line, "message": p.message} for p in ordered_errors(report)],
        "summary": summary,
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """A finding as plain data."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence.label,
        "message": finding.message,
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "end_line": finding.end_line,
        "end_column": finding.end_column,
        "function": finding.function,
        "root": _root(finding.root),
        "trace": _trace(finding.trace),
        "root_count": finding.root_count,
        "also": [{"root": _root(root), "trace": _trace(trace)} for root, trace in finding.also],
        "fix": None if finding.fix is None else _fix(finding.fix),
        "fingerprint": finding.fingerprint,
        "outside": finding.outside,
        "source": finding.source,
        "suppression": None if finding.suppression is None else _suppression(finding.suppression),
        "baseline": finding.baseline,
        "region": finding.region,
        "accepted": finding.accepted,
    }


def _suppression(suppression: Suppression) -> dict[str, Any]:
    return {"kind": suppression.kind, "line": suppression.line, "reason": suppression.reason}


def _root(root: Root) -> dict[str, Any]:
    return {
        "kind": root.kind,
        "reason": root.reason,
        "path": root.path,
        "line": root.line,
        "function": root.function,
    }


def _trace(trace: tuple[Step, ...]) -> list[dict[str, Any]]:
    return [{"path": step.path, "line": step.line, "function": step.function, "note": step.note} for step in trace]


def _fix(fix: Fix) -> dict[str, Any]:
    edits = [
        {
            "path": edit.path,
            "line": edit.line,
            "column": edit.column,
            "end_line": edit.end_line,
            "end_column": edit.end_column,
            "replacement": edit.replacement,
        }
        for edit in fix.edits
    ]
    return {"description": fix.description, "safety": fix.safety, "edits": edits}
