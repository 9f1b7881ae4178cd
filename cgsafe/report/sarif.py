"""SARIF 2.1.0, the exchange format of static analysis: code scanning on GitHub, editors, dashboards."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, TextIO
from urllib.parse import quote

from cgsafe import __version__
from cgsafe.catalogue import documentation, summary
from cgsafe.findings import Confidence, Edit, Finding, Fix, Report, Root, Severity, Step
from cgsafe.ignores import slashed
from cgsafe.report import Options, ordered, ordered_errors
from cgsafe.report.style import escape

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_RANKS = {Confidence.LOW: 25.0, Confidence.MEDIUM: 60.0, Confidence.HIGH: 95.0}


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write one log with one run."""
    findings = ordered(report, options)
    codes = sorted({finding.code for finding in findings} | set(options.rules))
    names = {finding.code: finding.name for finding in findings}
    driver = {
        "name": "cgsafe",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(code, names.get(code, ""), options) for code in codes],
    }
    notifications = [
        {
            "level": "error",
            "message": {"text": escape(problem.message)},
            **({"locations": [_location(problem.path, problem.line or 1)]} if problem.path else {}),
        }
        for problem in ordered_errors(report)
    ]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder that the check was started in."}}},
        "invocations": [
            {"executionSuccessful": not notifications, "toolExecutionNotifications": notifications},
        ],
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    json.dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, out, indent=2, ensure_ascii=True)
    out.write("\n")


def _rule(code: str, name: str, options: Options) -> dict[str, Any]:
    rule = options.rules.get(code)
    if rule is None:
        return {"id": code, "name": name}
    parts = [documentation(rule), rule.instead and f"Instead: {rule.instead}"]
    parts.append(rule.error and f"What the GPU says: {rule.error}")
    parts.append(rule.allowed and f"When it is all right: {rule.allowed}")
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": summary(rule)},
        "fullDescription": {"text": " ".join(documentation(rule).split())},
        "help": {"text": "\n\n".join(filter(None, parts)), "markdown": "\n\n".join(filter(None, parts))},
        "defaultConfiguration": {"level": _level(rule.severity)},
        "properties": {"tags": ["cuda-graphs", "pytorch"], "precision": "high"},
    }


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _level(finding.severity),
        "rank": _RANKS[finding.confidence],
        "message": {"text": escape(finding.message)},
        "locations": [
            _location(
                finding.path, finding.line, finding.column, finding.end_line, finding.end_column, finding.function
            )
        ],
        "partialFingerprints": {"cgsafe/v1": finding.fingerprint},
        "properties": {"confidence": finding.confidence.label, "outside": finding.outside},
    }
    ways = [(finding.root, finding.trace), *finding.also] if finding.trace else []
    if ways:
        result["codeFlows"] = [{"threadFlows": [{"locations": _flow(root, trace)}]} for root, trace in ways]
    if finding.fix is not None:
        result["properties"]["fix"] = escape(finding.fix.description)
        if finding.fix.edits:
            result["fixes"] = [_fix(finding.fix)]
    if finding.baseline:
        result["baselineState"] = finding.baseline
    if finding.suppression is not None:
        kind = "external" if finding.suppression.kind == "per-file-ignores" else "inSource"
        suppression = {"kind": kind, "status": "accepted"}
        if finding.suppression.reason:
            suppression["justification"] = escape(finding.suppression.reason)
        result["suppressions"] = [suppression]
    return result


def _level(severity: Severity) -> str:
    return "error" if severity is Severity.ERROR else "warning"


def _location(
    path: str, line: int, column: int = 0, end_line: int = 0, end_column: int = 0, function: str = "", text: str = ""
) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": line}
    if column:
        region |= {"startColumn": column, "endLine": max(end_line, line), "endColumn": max(end_column, 1)}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": _artifact(path), "region": region}}
    if function:
        location["logicalLocations"] = [{"fullyQualifiedName": escape(function), "kind": "function"}]
    if text:
        location["message"] = {"text": text}
    return location


def _artifact(path: str) -> dict[str, Any]:
    if os.path.isabs(path):
        return {"uri": "file://" + quote(os.fsencode(slashed(path)))}
    return {"uri": quote(os.fsencode(slashed(path).removeprefix("./"))), "uriBaseId": "SRCROOT"}


def _flow(root: Root, trace: Sequence[Step]) -> list[dict[str, Any]]:
    start = Step(root.path, root.line, root.function, f"root: {root.reason}")
    last = len(trace)
    return [
        {
            "location": _location(
                step.path,
                step.line,
                function=step.function,
                text=escape(step.note or ("the hazard" if number == last else step.function or "here")),
            ),
            "nestingLevel": number,
            "importance": "essential" if number in (0, last) else "important",
        }
        for number, step in enumerate((start, *trace))
    ]


def _fix(fix: Fix) -> dict[str, Any]:
    changes: dict[str, list[Edit]] = {}
    for edit in fix.edits:
        changes.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": escape(fix.description)},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(path),
                "replacements": [
                    {
                        "deletedRegion": {
                            "startLine": edit.line,
                            "startColumn": edit.column,
                            "endLine": edit.end_line,
                            "endColumn": edit.end_column,
                        },
                        "insertedContent": {"text": edit.replacement},
                    }
                    for edit in edits
                ],
            }
            for path, edits in sorted(changes.items())
        ],
    }
