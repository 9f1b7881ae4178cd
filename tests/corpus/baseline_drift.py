"""How well a baseline follows code from one release to the next.

    python tests/corpus/baseline_drift.py OLD NEW

Both are folders that hold the same package. A baseline of the old one is applied to the new one. Which findings are
still there is told by a criterion that knows nothing of fingerprints: `difflib` maps the lines of the old file to equal
lines of the new one, and a finding is still there if the new check reports the same code on that very line. Where a file
is gone, the new file of the same name with the most equal lines stands for it.

Printed are the share of those that the baseline fails to recognise, and for the other error how many findings it takes
for known whose line is not that of any old finding.
"""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cgsafe import engine
from cgsafe.baseline import Baseline, apply, entry_of, load, text_of
from cgsafe.findings import Confidence, Finding, Report
from cgsafe.rule import load_rules
from cgsafe.settings import Settings

LIMIT = 0.02  # of the findings that are still there, so many may be called new


def checked(folder: Path, level: Confidence) -> Report:
    """The report on a folder, with paths relative to it."""
    os.chdir(folder)
    return engine.check(["."], Settings(min_confidence=level), load_rules()[0])


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


def same_lines(old: list[str], new: list[str]) -> dict[int, int]:
    """Old line -> new line, for lines that are equal in an alignment of the two."""
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return {a + n + 1: b + n + 1 for a, b, size in matcher.get_matching_blocks() for n in range(size)}


def successor(path: str, old: Path, new: Path) -> str | None:
    """The path under which a file lives on: its own, or that of the most similar new file of the same name."""
    if (new / path).is_file():
        return path
    lines = set(lines_of(old / path))
    best = (0.5, "")
    for other in sorted(new.rglob(Path(path).name)):
        relative = other.relative_to(new).as_posix()
        if not (old / relative).exists():
            theirs = set(lines_of(other))
            best = max(best, (len(lines & theirs) / max(len(lines | theirs), 1), relative))
    return best[1] or None


def still_there(found: list[Finding], now: list[Finding], old: Path, new: Path) -> list[tuple[Finding, Finding]]:
    """Pairs of findings that are one, as far as lines tell."""
    places: dict[tuple[str, int, str], list[Finding]] = {}
    for finding in now:
        places.setdefault((finding.path, finding.line, finding.code), []).append(finding)
    pairs = []
    maps: dict[str, tuple[str | None, dict[int, int]]] = {}
    for finding in found:
        if finding.path not in maps:
            path = successor(finding.path, old, new)
            lines = same_lines(lines_of(old / finding.path), lines_of(new / path)) if path else {}
            maps[finding.path] = (path, lines)
        path, lines = maps[finding.path]
        candidates = places.get((path or "", lines.get(finding.line, 0), finding.code))
        if candidates:
            pairs.append((finding, candidates.pop(0)))
    return pairs


def drift(old: Path, new: Path, level: Confidence) -> tuple[int, int, int, int, int]:
    """Old findings, new findings, those still there, of these called new, and others taken for known."""
    before = checked(old, level).findings
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "baseline.tsv")
        # As if both releases were the same folder, one after the other.
        Path(path).write_text(text_of(entry_of(finding, os.path.join(old, "b")) for finding in before))
        report = checked(new, level)
        now = list(report.findings)
        codes = {rule.code for rule in load_rules()[0]}
        apply(report, Baseline(os.path.join(new, "b"), load(path).entries), report.checked, codes, [new])
    pairs = still_there(before, now, old, new)
    called_new = Counter((f.path, f.line, f.column, f.code) for f in report.findings)
    missed = [f for _, f in pairs if called_new[(f.path, f.line, f.column, f.code)]]
    for finding in missed[:20]:
        print(f"  called new: {finding.path}:{finding.line}: {finding.code} {finding.function} {finding.source}")
    paired = {(f.path, f.line, f.column, f.code) for _, f in pairs}
    known = [f for f in report.suppressed if f.baseline]
    odd = [f for f in known if (f.path, f.line, f.column, f.code) not in paired]
    return len(before), len(now), len(pairs), len(missed), len(odd)


def main(arguments: list[str]) -> int:
    """Print the figures; 1 where the share is above the limit."""
    old, new = (Path(argument).resolve() for argument in arguments)
    print(f"{old.name} -> {new.name}")
    code = 0
    for level in (Confidence.MEDIUM, Confidence.LOW):
        before, now, there, missed, odd = drift(old, new, level)
        share = missed / max(there, 1)
        print(
            f"{level.label}: {before} findings before, {now} after; {there} still there, {missed} of them called new"
            f" ({share:.2%}); {odd} others taken for known"
        )
        code |= share > LIMIT
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
