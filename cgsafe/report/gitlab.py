"""GitLab's code-quality report: what a merge request shows beside its changes."""

from __future__ import annotations

import json
from typing import TextIO

from cgsafe.findings import Report, Severity
from cgsafe.report import Options, ordered
from cgsafe.report.style import escape


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write a JSON list. GitLab tells findings apart by their fingerprints, so these are made unique."""
    seen: dict[str, int] = {}
    issues = []
    for finding in ordered(report, options):
        count = seen[finding.fingerprint] = seen.get(finding.fingerprint, 0) + 1
        issues.append(
            {
                "type": "issue",
                "check_name": finding.code,
                "description": f"{escape(finding.code)}: {escape(finding.message)}",
                "categories": ["Bug Risk"],
                "severity": "major" if finding.severity is Severity.ERROR else "minor",
                "fingerprint": finding.fingerprint + (f"-{count}" if count > 1 else ""),
                "location": {
                    "path": escape(finding.path.removeprefix("./")),
                    "positions": {
                        "begin": {"line": finding.line, "column": finding.column},
                        "end": {"line": finding.end_line, "column": finding.end_column},
                    },
                    "lines": {"begin": finding.line, "end": finding.end_line},
                },
            }
        )
    json.dump(issues, out, indent=2, ensure_ascii=True)
    out.write("\n")
