"""Arithmetic on texts and the spans in them that are replaced. Offsets count characters."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

Change = tuple[int, int, str]  # start, end, replacement

LINE_END = re.compile(r"\r\n|\r|\n")  # what ends a line for `ast`


class Lines:
    """Offsets of lines and columns, both counted from 1."""

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in LINE_END.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column - 1

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1


def clash(one: Change, other: Change) -> bool:
    """Whether two changes cannot both be made. Those that touch count too: which comes first would be a guess."""
    return one != other and one[0] <= other[1] and other[0] <= one[1]


def applied(text: str, changes: Iterable[Change]) -> str:
    """The text with all changes made; no two of them clash."""
    parts = []
    position = 0
    for start, end, replacement in sorted(set(changes)):
        parts += [text[position:start], replacement]
        position = end
    return "".join([*parts, text[position:]])


def moved(start: int, end: int, changes: Iterable[Change]) -> tuple[int, int]:
    """Where a span lies after the changes; what is inserted at its ends belongs to it."""
    grown = 0
    begin, finish = -1, -1
    for first, last, replacement in sorted(set(changes)):
        if begin < 0 and start <= last:
            begin = min(start, first) + grown
        if finish < 0 and end < first:
            finish = end + grown
        grown += len(replacement) - (last - first)
        if finish < 0 and first <= end <= last:
            finish = last + grown
    begin = begin if begin >= 0 else start + grown
    return begin, max(begin, finish if finish >= 0 else end + grown)


def trimmed(text: str, start: int, end: int, replacement: str) -> Change | None:
    """The change without what is the same at both ends; None where nothing is left."""
    old = text[start:end]
    if old == replacement:
        return None
    limit = min(len(old), len(replacement))
    head = 0
    while head < limit and old[head] == replacement[head]:
        head += 1
    tail = 0
    while tail < limit - head and old[-1 - tail] == replacement[-1 - tail]:
        tail += 1
    return start + head, end - tail, replacement[head : len(replacement) - tail]
