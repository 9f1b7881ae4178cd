"""Baselines: files of findings that are known, so that only others are reported.

One line for each finding, sorted, fit for a review: path, code, function, expression and fingerprint, with tabs between
them. Line numbers are not in it, nor anything else that changes while the finding stays. Paths are relative to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from cgsafe.findings import Finding, Report
from cgsafe.ignores import slashed
from cgsafe.report.style import escape
from cgsafe.source import STDIN

DEFAULT = "cgsafe-baseline.tsv"
VERSION = 1
_HEAD = f"""\
# cgsafe baseline, version {VERSION}
# Known findings, which `cgsafe check --baseline` leaves out. `cgsafe baseline --prune` takes away what is fixed.
"""
_VERSION = re.compile(r"# cgsafe baseline, version (\d{1,9})")
_CONFLICT = re.compile(r"(<{7}|\|{7}|={7}|>{7})( |$)")


class BaselineError(Exception):
    """A baseline that cannot be used; the text says where and why."""


class Entry(NamedTuple):
    """A known finding. All text is escaped, as it stands in the file; the order is that of the lines."""

    path: str
    function: str
    code: str
    source: str
    fingerprint: str

    @property
    def line(self) -> str:
        return "\t".join((self.path, self.code, self.function, self.source, self.fingerprint))


@dataclass
class Baseline:
    """What a file holds."""

    path: str
    entries: list[Entry] = field(default_factory=list)
    conflicts: list[int] = field(default_factory=list)  # lines with the marks of an unresolved merge


def load(path: str) -> Baseline:
    """Read a baseline. Where a merge left a conflict, the entries of all sides count."""
    shown = escape(path)
    try:
        with open(path, encoding="utf-8-sig", newline=None) as file:
            text = file.read()
    except FileNotFoundError:
        raise BaselineError(f"{shown}: no such baseline; `cgsafe baseline -o {shown}` writes it") from None
    except OSError as error:
        raise BaselineError(f"{shown}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BaselineError(f"{shown}: not valid UTF-8, so no baseline") from None
    except ValueError:  # a NUL in it
        raise BaselineError(f"{shown}: no name that a file can have") from None
    result = Baseline(path)
    entries: dict[Entry, None] = {}  # a line that both sides of a conflict hold is one finding
    for number, line in enumerate(text.split("\n"), 1):
        if (version := _VERSION.match(line)) is not None and int(version[1]) > VERSION:
            raise BaselineError(f"{shown}:{number}: written by a later cgsafe: version {version[1]} is not known")
        if _CONFLICT.match(line):
            result.conflicts.append(number)
        elif line.strip() and ("\t" in line or not line.startswith("#")):
            parts = line.split("\t")
            if len(parts) != 5 or not all((parts[0], parts[1], parts[4])):
                raise BaselineError(
                    f"{shown}:{number}: not a line of a baseline: expected path, code, function, expression and "
                    "fingerprint, with tabs between them"
                )
            entries[Entry(parts[0], parts[2], parts[1], parts[3], parts[4].strip())] = None
    result.entries = list(entries)
    return result


def text_of(entries: Iterable[Entry]) -> str:
    """The content of a file."""
    return _HEAD + "".join(f"{entry.line}\n" for entry in sorted(set(entries)))


def entry_of(finding: Finding, path: str) -> Entry:
    """The entry for a finding in the baseline at `path`."""
    place = finding.path
    if place != STDIN:
        place = slashed(os.path.relpath(place, os.path.dirname(os.path.abspath(path))))
    return Entry(escape(place), escape(finding.function), finding.code, escape(finding.source), finding.fingerprint)


# What makes an entry and a finding one, from the surest to the least sure. What one stage has matched, the later ones do
# not see, so that a finding is never taken for a moved one while the old one is still there.
def _last(function: str) -> str:
    return function.rpartition(".")[2]


_STAGES: tuple[Callable[[Entry], Any], ...] = (
    lambda e: e,
    lambda e: (e.code, e.fingerprint),  # module, function, expression, and the how-manieth
    lambda e: (e.code, e.path, e.function, e.source),  # the same again, before or behind it
    lambda e: (e.code, e.function, e.source),  # a file that was renamed, a function that moved
    lambda e: (e.code, e.path, e.source),  # a function that was renamed or split
)


def _where_gone(entry: Entry) -> Any:
    return (entry.code, _last(entry.function), entry.source)  # a class that was renamed along with its file


def match(
    baseline: Baseline, findings: Sequence[Finding], is_gone: Callable[[str], bool]
) -> tuple[dict[int, Entry], list[Entry]]:
    """Which findings are known: position -> entry; and the entries that match none.

    `is_gone` tells whether the file of an entry is not there any more.
    """
    known: dict[int, Entry] = {}
    wanted = [entry_of(finding, baseline.path) for finding in findings]
    left = sorted(baseline.entries)
    for key in _STAGES:
        left = _stage(key, left, left, wanted, known)
    gone = [entry for entry in left if is_gone(entry.path)] if left else []
    left = _stage(_where_gone, gone, left, wanted, known)
    return known, left


def _stage(
    key: Callable[[Entry], Any], usable: list[Entry], left: list[Entry], wanted: list[Entry], known: dict[int, Entry]
) -> list[Entry]:
    """Match by one key, each entry once; the entries that are left."""
    if not usable:
        return left
    table: dict[Any, list[Entry]] = {}
    for entry in reversed(usable):
        table.setdefault(key(entry), []).append(entry)
    used: set[Entry] = set()
    for position, entry in enumerate(wanted):
        if position not in known and (same := table.get(key(entry))):
            known[position] = same.pop()
            used.add(known[position])
    return [entry for entry in left if entry not in used]


@dataclass
class Outcome:
    """How a report and a baseline go together."""

    stale: list[Entry] = field(default_factory=list)  # what was found once, and is not any more
    unchecked: list[Entry] = field(default_factory=list)  # of files or rules that this run did not look at
    known: list[Entry] = field(default_factory=list)  # as they are now


def apply(
    report: Report, baseline: Baseline, checked: Collection[str], codes: Collection[str], given: Collection[str]
) -> Outcome:
    """Move the findings of a report that are known to its suppressed ones, and mark the others as new.

    `checked` are the files that were checked (as shown), `codes` the rules that ran, `given` the paths asked for.
    """
    folder = os.path.dirname(os.path.abspath(baseline.path))

    def is_gone(path: str) -> bool:
        return not os.path.exists(os.path.join(folder, path))

    silenced = [finding for finding in report.suppressed if not finding.baseline]
    every = [*report.findings, *silenced, *report.unsure]
    known, left = match(baseline, every, is_gone)
    outcome = Outcome(known=[entry_of(every[position], baseline.path) for position in sorted(known)])
    count = len(report.findings)
    report.suppressed.extend(
        replace(finding, baseline="unchanged") for n, finding in enumerate(report.findings) if n in known
    )
    report.findings[:] = [replace(finding, baseline="new") for n, finding in enumerate(every[:count]) if n not in known]
    report.suppressed.sort(key=lambda f: (f.path, f.line, f.column, f.code))
    looked_at = {slashed(os.path.relpath(path, folder)) for path in checked if path != STDIN} | {STDIN}
    looked_at = {escape(path) for path in looked_at}
    complete = any(is_gone(entry.path) for entry in left) and _within(baseline, folder, given)
    for entry in left:
        # A file that is gone may have been renamed: only who looks at all that the baseline is about knows that it was not.
        seen = entry.code in codes and (entry.path in looked_at or (complete and is_gone(entry.path)))
        (outcome.stale if seen else outcome.unchecked).append(entry)
    return outcome


def _within(baseline: Baseline, folder: str, given: Collection[str]) -> bool:
    """True where all entries of a baseline lie in the given folders."""
    folders = [os.path.join(os.path.abspath(path), "") for path in given if os.path.isdir(path)]
    places = {os.path.dirname(os.path.join(folder, entry.path)) for entry in baseline.entries}
    return all(any(os.path.join(place, "").startswith(known) for known in folders) for place in places)
