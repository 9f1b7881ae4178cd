"""One JSON object for each finding, on a line of its own, with the keys of the JSON format."""

from __future__ import annotations

import json
from typing import TextIO

from cgsafe.findings import Report
from cgsafe.report import Options, ordered
from cgsafe.report.json import finding_document


def render(report: Report, out: TextIO, options: Options) -> None:
    """Write the findings, and nothing else."""
    for finding in ordered(report, options):
        out.write(json.dumps(finding_document(finding), ensure_ascii=True) + "\n")
