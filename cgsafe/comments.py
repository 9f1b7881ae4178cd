"""The tool's own comments in checked code: `# cgsafe: ignore[CG101] reason` and its relatives, and what they apply to.

Comments are found by Python's tokenizer, so that a string which holds such a text is none. Only files that contain the
word are looked at.
"""

from __future__ import annotations

import bisect
import difflib
import io
import re
import tokenize
from dataclasses import dataclass

WORD = "cgsafe:"  # a file without it holds no such comment

SUPPRESSIONS = ("ignore", "ignore-file", "off", "on")
MARKERS = ("not-captured", "host", "device")  # these tell the walk something; the others only hide findings

_SEGMENT = re.compile(r"#\s*cgsafe:\s*([^#]*)")
_KIND = re.compile(r"[A-Za-z][\w-]*")
_CODE = re.compile(r"[A-Z]{1,5}\d{1,4}")
# From Python 3.12 on; until then an f-string is one token.
_FSTRING_START = getattr(tokenize, "FSTRING_START", -1)
_FSTRING_END = getattr(tokenize, "FSTRING_END", -1)
_SKIPPED = frozenset((tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER))


@dataclass(frozen=True)
class Directive:
    """One comment of ours. Columns count from 1, the end is exclusive."""

    kind: str  # one of SUPPRESSIONS or MARKERS; "" where it cannot be told
    names: tuple[str, ...] | None  # what stands in brackets: codes, or names of variables for the markers
    reason: str
    line: int
    column: int
    end_column: int
    first: int  # the lines that it applies to; (0, -1) for none
    last: int
    alone: bool  # nothing but comments on its line
    fault: str = ""  # why it cannot be understood

    def covers(self, line: int) -> bool:
        return self.first <= line <= self.last

    def lists(self, code: str) -> bool:
        """Whether it is about a code: all are meant where none is named."""
        return self.names is None or any(code.startswith(name) for name in self.names)


class Comments:
    """The directives of one text, and its units: statements by their lines, with decorators and what they decorate."""

    def __init__(self, text: str) -> None:
        self.directives: list[Directive] = []
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._starts: list[int] = []
        self._units: list[tuple[int, int]] = []
        self.closed: set[int] = set()  # lines at whose end a comment would be none: in a string, before a backslash
        comments = self._tokenize()
        alone = {row for row, column, _ in comments if not self.lines[row - 1][:column].strip()}
        for row, column, comment in comments:
            for match in _SEGMENT.finditer(comment):
                self._add(row, column, match, alone)

    def unit(self, line: int) -> tuple[int, int]:
        """The first and the last line of the statement that a line belongs to; of a compound one, of its head."""
        at = bisect.bisect_right(self._starts, line) - 1
        if at >= 0 and self._units[at][0] <= line <= self._units[at][1]:
            return self._units[at]
        return (line, line)

    def is_inside(self, line: int) -> bool:
        """Whether a line belongs to a statement."""
        at = bisect.bisect_right(self._starts, line) - 1
        return at >= 0 and line <= self._units[at][1]

    def _tokenize(self) -> list[tuple[int, int, str]]:
        """Find the units; returns (line, column from 0, text) of the comments that name us."""
        comments: list[tuple[int, int, str]] = []
        start = 0  # first line of the statement at hand; 0 between statements
        decorated = 0  # first line of the decorators above
        is_decorator = False
        opened: list[int] = []  # first lines of the f-strings at hand, where these are several tokens
        try:
            for token in tokenize.generate_tokens(io.StringIO("\n".join(self.lines)).readline):
                if token.start[0] != token.end[0]:
                    self.closed.update(range(token.start[0], token.end[0]))
                if token.type == _FSTRING_START:
                    opened.append(token.start[0])
                elif token.type == _FSTRING_END and opened:
                    self.closed.update(range(opened.pop(), token.end[0]))
                if token.type == tokenize.COMMENT:
                    if WORD in token.string:
                        comments.append((*token.start, token.string))
                elif token.type == tokenize.NEWLINE:
                    first = decorated or start
                    if start and is_decorator:
                        decorated = first
                    elif start:
                        self._starts.append(first)
                        self._units.append((first, token.start[0]))
                        decorated = 0
                    start = 0
                elif not start and token.type not in _SKIPPED:
                    start = token.start[0]
                    is_decorator = token.string == "@"
        except (tokenize.TokenError, SyntaxError):
            pass  # Python's parser has said what it thinks of the rest
        self.closed.update(row for row, line in enumerate(self.lines, 1) if line.endswith("\\"))
        return comments

    def _add(self, row: int, column: int, match: re.Match[str], alone: set[int]) -> None:
        kind, names, reason, fault = _parsed(match[1])
        first, last = self._span(kind, row, alone)
        start = column + match.start()
        end = column + match.start() + len(match[0].rstrip())
        is_alone = row in alone and not self.is_inside(row)
        self.directives.append(Directive(kind, names, reason, row, start + 1, end + 1, first, last, is_alone, fault))

    def _span(self, kind: str, row: int, alone: set[int]) -> tuple[int, int]:
        if kind == "ignore-file":
            return (1, len(self.lines))
        if kind in ("on", "off"):
            return (0, -1)
        if self.is_inside(row):
            return self.unit(row)
        below = row + 1
        while below <= len(self.lines) and not self.is_inside(below):
            if not self.lines[below - 1].strip().startswith("#"):
                return (0, -1)
            below += 1
        return self.unit(below) if below <= len(self.lines) else (0, -1)

    def ranges(self) -> list[tuple[Directive, int, int]]:
        """The lines that each `off` covers: to the next `on` for the same codes, or to the end of the file."""
        found = []
        for off in self.directives:
            if off.kind == "off" and not off.fault:
                ends = (d.line for d in self.directives if d.line > off.line and closes(d, off))
                found.append((off, off.line, min(ends, default=len(self.lines))))
        return found


def closes(on: Directive, off: Directive) -> bool:
    """Whether an `on` ends what an `off` began; one without codes ends all."""
    if on.kind != "on" or on.fault:
        return False
    return on.names is None or (off.names is not None and set(off.names) <= set(on.names))


def _parsed(body: str) -> tuple[str, tuple[str, ...] | None, str, str]:
    """Kind, names, reason and fault of what follows `cgsafe:`."""
    body = body.strip()
    match = _KIND.match(body)
    if match is None:
        return "", None, "", f"`{body}` is not understood; {_usage()}"
    kind, rest = match[0], body[match.end() :].strip()
    known = (*SUPPRESSIONS, *MARKERS)
    if kind not in known:
        near = difflib.get_close_matches(kind.lower().replace("_", "-"), known, n=1, cutoff=0.7)
        return "", None, "", f"`{kind}` is unknown; " + (f"did you mean `{near[0]}`?" if near else _usage())
    names: tuple[str, ...] | None = None
    if rest.startswith("["):
        inside, closed, rest = rest[1:].partition("]")
        if not closed:
            return kind, None, "", "the bracket is not closed"
        names = tuple(dict.fromkeys(part.strip() for part in inside.split(",") if part.strip()))
        if kind in SUPPRESSIONS:
            names = tuple(name.upper() for name in names)
        if not names:
            return kind, None, "", "the brackets are empty; leave them out to mean all"
    reason = rest.lstrip(":-\u2013\u2014 ").strip()
    if kind in SUPPRESSIONS and names is None and (code := _CODE.match(reason)) is not None:
        return kind, None, "", f"codes stand in brackets: `{kind}[{code[0]}]`"
    return kind, names, reason, ""


def _usage() -> str:
    return f"known are {', '.join((*SUPPRESSIONS, *MARKERS))}"


def removal(directive: Directive, line: str) -> tuple[int, int, int, int, str]:
    """What takes a directive out of its line: line, column, end line, end column and the replacement."""
    before, after = line[: directive.column - 1], line[directive.end_column - 1 :]
    if not before.strip() and not after.strip():
        return (directive.line, 1, directive.line + 1, 1, "")
    if after.strip():
        # Another comment follows, which moves up.
        return (directive.line, directive.column, directive.line, len(line) - len(after.lstrip()) + 1, "")
    return (directive.line, len(before.rstrip()) + 1, directive.line, len(line) + 1, "")
