"""The answer about a line, for people and for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from cgsafe import __version__
from cgsafe.findings import Step
from cgsafe.report.json import finding_document
from cgsafe.report.style import Style, escape
from cgsafe.why import Answer, Way

MAX_WAYS = 3  # that are shown unless all are asked for
_HEADS = {
    "yes": ("captured", "yellow"),
    "in doubt": ("captured in some set-ups only", "yellow"),
    "hot-path": ("not captured, but run at every step", "yellow"),
    "no": ("not captured", "green"),
}


def as_text(answer: Answer, lines: list[str], width: int, color: bool, all_paths: bool) -> Iterator[str]:
    """The answer for a terminal."""
    style = Style(color)
    width = min(max(width, 40), 120)

    def prose(text: str, first: str = "  ", following: str = "    ") -> list[str]:
        return textwrap.wrap(
            escape(text),
            width,
            initial_indent=first,
            subsequent_indent=following,
            break_long_words=False,
            break_on_hyphens=False,
        )

    head, hue = _HEADS[answer.captured]
    function = f" in {escape(answer.function)}" if answer.function else ""
    yield f"{style(f'{escape(answer.path)}:{answer.first}', 'bold')}{function}: {style(head, 'bold', hue)}"
    if not answer.first <= answer.line <= answer.last:
        yield f"  (line {answer.line} holds no statement; this is the next one)"
    for number in range(answer.first, min(answer.last, answer.first + 11) + 1):
        if number <= len(lines):
            yield f"  {number} | {escape(lines[number - 1].expandtabs())}".rstrip()
    if answer.doubt:
        yield from prose(f"in doubt: {answer.doubt}")
    for reason in answer.reasons:
        place = f"{reason.path}:{reason.line}: " if reason.line else f"{reason.path}: " if reason.path else ""
        yield from prose(f"{place}{reason.message}", "  - ")
    if answer.nearest is not None:
        root = answer.nearest
        yield from prose(f"nearest root: {root.path}:{root.line} {root.function} ({root.reason})")
    yield from _ways(answer.ways if all_paths else answer.ways[:MAX_WAYS], len(answer.ways), style)
    if answer.values:
        title = "values" if answer.captured != "no" else "values, as host code"
        yield f"  {style(title, 'bold')}:"
        told: set[tuple[str, tuple[str, ...], str]] = set()
        for known in answer.values:
            if (known.source, known.values, known.origin) in told:
                continue  # the same name, further right
            told.add((known.source, known.values, known.origin))
            more = f" or {known.more} more kinds" if known.more else ""
            origin = f" (from {known.origin})" if known.origin else ""
            source = known.source if len(known.source) <= 60 else f"{known.source[:57]}..."
            yield from prose(f"{source}: {' or '.join(known.values)}{more}{origin}", "    ", "      ")
    for finding in answer.findings:
        text = f"{finding.code} {finding.severity.value}[{finding.confidence.label}] {finding.message}"
        yield from prose(f"finding: {text}")
    for hidden in answer.hidden:
        yield from prose(f"hidden finding: {hidden.code} [{hidden.confidence}] {hidden.message}")
        yield from prose(f"hidden because {hidden.reason}", "    ", "    ")
    for text in answer.seen:
        yield from prose(f"also seen: {text}")
    if not (answer.findings or answer.hidden):
        yield "  no findings here"


def _ways(ways: Iterable[Way], count: int, style: Style) -> Iterator[str]:
    shown = list(ways)
    for number, way in enumerate(shown):
        title = "path" if not number else "also"
        more = f" ({count} roots in all)" if not number and count > 1 else ""
        yield f"  {style(title, 'bold')}{more}:"
        root = way.root
        steps = [Step(root.path, root.line, root.function, f"root: {root.reason}"), *way.steps]
        for step in steps:
            yield f"    {escape(step.path)}:{step.line}  {escape(step.function)}  {style(escape(step.note), 'dim')}".rstrip()
    if count > len(shown):
        yield f"    {count - len(shown)} more (--all-paths shows them)"


def as_json(answer: Answer) -> str:
    """The answer for programs; keys are only ever added."""
    data: dict[str, Any] = {
        "version": 1,
        "tool": {"name": "cgsafe", "version": __version__},
        "path": answer.path,
        "line": answer.line,
        "statement": {"first": answer.first, "last": answer.last},
        "function": answer.function,
        "captured": answer.captured,
        "doubt": answer.doubt,
        "paths": [{"root": asdict(w.root), "trace": [asdict(s) for s in w.steps]} for w in answer.ways],
        "values": [asdict(v) for v in answer.values],
        "findings": [finding_document(f) for f in answer.findings],
        "hidden": [asdict(h) for h in answer.hidden],
        "seen": answer.seen,
        "reasons": [asdict(r) for r in answer.reasons],
        "nearest_root": asdict(answer.nearest) if answer.nearest is not None else None,
        "errors": [asdict(e) for e in answer.errors],
    }
    return json.dumps(data, indent=2, ensure_ascii=True) + "\n"
