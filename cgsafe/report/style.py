"""Colours, and making text harmless: what comes from checked code must not steer the terminal that shows it."""

from __future__ import annotations

from cgsafe.findings import Severity

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


def escape(text: str) -> str:
    """The text with everything that a terminal might act on written as an escape.

    That is more than control characters: marks that reverse the direction of text can make code look like other code.
    The result is one line.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else escaped(c) for c in text)


def escaped(character: str) -> str:
    """One character that is not printable, as Python would write it in a literal."""
    return character.encode("unicode_escape").decode("ascii")


class Style:
    """Colours text, or leaves it alone."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, text: str, *names: str) -> str:
        if not self._color or not text:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"

    def severity(self, text: str, severity: Severity) -> str:
        return self(text, "bold", "red" if severity is Severity.ERROR else "yellow")
