"""What `--statistics` tells on standard error: findings for each code, and what the engine counted."""

from __future__ import annotations

from collections import Counter

from cgsafe.findings import Report
from cgsafe.report.style import escape


def lines(report: Report) -> list[str]:
    """A small table."""
    rows = [(f"{code} {name}", str(number)) for (code, name), number in _by_rule(report)]
    rows += [
        ("files checked", str(report.files_checked)),
        ("files known", str(report.files_known)),
        ("capture roots", str(report.roots)),
        ("findings below the asked confidence", str(report.hidden)),
    ]
    rows += [(name.replace("_", " "), _shown(value)) for name, value in report.statistics.items()]
    wide = max(len(name) for name, _ in rows)
    return [escape(f"{name.ljust(wide)}  {value}") for name, value in rows]


def _by_rule(report: Report) -> list[tuple[tuple[str, str], int]]:
    return sorted(Counter((finding.code, finding.name) for finding in report.findings).items())


def _shown(value: int | float | str) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
