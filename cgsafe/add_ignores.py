"""`cgsafe check --add-ignore`: writes comments that silence the findings there are."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence

from cgsafe.comments import Comments
from cgsafe.findings import Finding, Problem
from cgsafe.source import STDIN, Source, read
from cgsafe.terminal import unwritable, write_bytes

WIDEST = 120  # columns; a comment that would make a line longer stands above it
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|$)")


def add_ignores(findings: Sequence[Finding], reason: str = "") -> tuple[int, int, list[Problem]]:
    """Silence findings where they are. Returns how many were, in how many files, and what went wrong."""
    if "#" in reason or not reason.isprintable():
        raise ValueError("a reason is plain text on one line, without `#`")
    by_path: dict[str, list[Finding]] = {}
    for finding in findings:
        by_path.setdefault(finding.path, []).append(finding)
    silenced = files = 0
    problems: list[Problem] = []
    for path, some in sorted(by_path.items()):
        problem = _in_file(path, some, reason)
        if problem is not None:
            problems.append(problem)
        else:
            silenced += len(some)
            files += 1
    return silenced, files, problems


def _in_file(path: str, findings: list[Finding], reason: str) -> Problem | None:
    source = read(path) if path != STDIN else Problem(path, 0, "standard input cannot be changed")
    if isinstance(source, Problem):
        return source
    if reason_not := unwritable(path):
        return Problem(path, 0, f"cannot write it: {reason_not}")
    text = with_ignores(source.text, [(f.line, f.code) for f in findings], reason)
    if not _faithful(source.text, text, findings):
        return Problem(path, 0, "no comment was added: it would have changed the code")
    try:
        write_bytes(os.path.realpath(path), _encoded(source, text))
    except (OSError, UnicodeEncodeError) as error:
        return Problem(path, 0, f"cannot write it: {getattr(error, 'strerror', None) or error}")
    return None


def _encoded(source: Source, text: str) -> bytes:
    return text.encode(source.encoding)


def _faithful(before: str, after: str, findings: list[Finding]) -> bool:
    """Whether the code is the same, and each finding is silenced."""
    try:
        if ast.dump(ast.parse(before)) != ast.dump(ast.parse(after)):
            return False
    except (SyntaxError, ValueError, RecursionError):
        return False
    wanted = {f.code for f in findings}
    return wanted <= {name for d in Comments(after).directives for name in d.names or ()}


def with_ignores(text: str, spots: Sequence[tuple[int, str]], reason: str = "") -> str:
    """The text with a comment for each (line, code)."""
    comments = Comments(text)
    lines = [list(match.groups()) for match in _LINE.finditer(text)]
    ending = next((end for _, end in lines if end), "\n")
    by_unit: dict[tuple[int, int], dict[str, int]] = {}
    for line, code in spots:
        by_unit.setdefault(comments.unit(line), {}).setdefault(code, line)
    for unit, codes in sorted(by_unit.items(), reverse=True):  # from below, so that lines above stay where they are
        if _joined(comments, lines, unit, sorted(codes)):
            continue
        comment = f"# cgsafe: ignore[{', '.join(sorted(codes))}]{' ' + reason if reason else ''}"
        line = _bearing(comments, lines, unit, min(codes.values()), len(comment))
        if line:
            lines[line - 1][0] = f"{lines[line - 1][0].rstrip()}  {comment}"
        else:
            head = lines[unit[0] - 1][0]
            lines.insert(unit[0] - 1, [head[: len(head) - len(head.lstrip())] + comment, ending])
    return "".join(line + end for line, end in lines)


def _joined(comments: Comments, lines: list[list[str]], unit: tuple[int, int], codes: list[str]) -> bool:
    """Add codes to a comment that the statement has already."""
    for directive in comments.directives:
        if directive.kind == "ignore" and not directive.fault and directive.names and directive.first == unit[0]:
            text = lines[directive.line - 1][0]
            closed = text.index("]", directive.column - 1)
            more = [code for code in codes if code not in directive.names]
            lines[directive.line - 1][0] = text[:closed] + "".join(f", {code}" for code in more) + text[closed:]
            return True
    return False


def _bearing(comments: Comments, lines: list[list[str]], unit: tuple[int, int], line: int, length: int) -> int:
    """The line of a statement that can take a comment at its end; 0 where it is better put above."""
    for candidate in (line, unit[1]):
        if candidate not in comments.closed and len(lines[candidate - 1][0].rstrip()) + 2 + length <= WIDEST:
            return candidate
    return 0
