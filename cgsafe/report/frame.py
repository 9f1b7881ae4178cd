"""The lines of code around a finding, with the place underlined."""

from __future__ import annotations

import unicodedata

from cgsafe.findings import Finding, Severity
from cgsafe.report.style import Style, escaped

TAB = 4
BEFORE = 1  # lines of context above the place
LONGEST = 4  # a place of more lines is shown by its first ones
GAP = "..."

_Cell = tuple[str, int]  # what is shown for one character, and how many columns that takes


def code_frame(lines: list[str], finding: Finding, width: int, style: Style) -> list[str]:
    """The frame, ready to print; empty where the lines do not hold the place."""
    first, last = finding.line, max(finding.line, finding.end_line)
    if not 1 <= first <= len(lines):
        return []
    last = min(last, len(lines))
    shown_last = last if last - first < LONGEST else first + LONGEST - 2
    digits = len(str(shown_last))
    room = max(width - digits - 5, 20)
    result = []
    for number in range(max(1, first - BEFORE), shown_last + 1):
        line = lines[number - 1]
        if number < first:
            if line.strip():
                result.append(_code(number, digits, _window(_cells(line), 0, 0, room)[0], style))
            continue
        start = finding.column - 1 if number == first else len(line) - len(line.lstrip())
        end = finding.end_column - 1 if number == last and finding.end_line == last else len(line.rstrip())
        text, offset, length = _window(_cells(line), start, end, room)
        result.append(_code(number, digits, text, style))
        result.append(_marks(digits, offset, length, finding.severity, style))
    if shown_last < last:
        result.append(_margin(" " * digits, style) + style(f"{GAP} to line {last}", "dim"))
    return result


def _code(number: int, digits: int, text: str, style: Style) -> str:
    return (_margin(str(number).rjust(digits), style) + text).rstrip()


def _marks(digits: int, offset: int, length: int, severity: Severity, style: Style) -> str:
    return _margin(" " * digits, style) + " " * offset + style.severity("^" * length, severity)


def _margin(number: str, style: Style) -> str:
    return "  " + style(f"{number} |", "blue") + " "


def _cells(line: str) -> list[_Cell]:
    cells: list[_Cell] = []
    column = 0
    for character in line:
        if character == "\t":
            cell = (" " * (TAB - column % TAB), TAB - column % TAB)
        elif not character.isprintable():
            cell = (escaped(character), len(escaped(character)))
        elif character.isascii():
            cell = (character, 1)
        else:
            cell = (character, _columns(character))
        cells.append(cell)
        column += cell[1]
    return cells


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _window(cells: list[_Cell], start: int, end: int, room: int) -> tuple[str, int, int]:
    """The part of a line that fits into `room` columns and shows the place, and the place's offset and length in it."""
    start = min(max(start, 0), len(cells))
    end = min(max(end, start), len(cells))
    left, before = 0, ""
    if _width(cells) > room and _width(cells[:start]) > room // 2:
        # Keep some of what stands to the left, for orientation.
        left, kept = start, 0
        while left > 0 and kept + cells[left - 1][1] <= room // 4:
            left -= 1
            kept += cells[left][1]
        before = GAP
    text, used, right = before, len(before), left
    while right < len(cells) and used + cells[right][1] <= room:
        text += cells[right][0]
        used += cells[right][1]
        right += 1
    if right < len(cells):
        while right > left and used + len(GAP) > room:
            right -= 1
            text = text[: len(text) - len(cells[right][0])]
            used -= cells[right][1]
        text += GAP
    offset = len(before) + _width(cells[left:start])
    return text, offset, max(_width(cells[start : min(end, right)]), 1)


def _width(cells: list[_Cell]) -> int:
    return sum(cell[1] for cell in cells)
