"""What the rules say about themselves: the table of `cgsafe rules` and the pages of `cgsafe explain`."""

from __future__ import annotations

import inspect
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cgsafe import source
from cgsafe.report.style import Style, escape
from cgsafe.rule import Rule

WIDEST_PROSE = 100


@dataclass(frozen=True)
class Example:
    """A bad or good example of a rule: one file, or a folder with the files of several modules."""

    name: str
    files: tuple[tuple[str, str], ...]  # name inside the example, text


def summary(rule: type[Rule]) -> str:
    """The first paragraph of a rule's documentation, on one line."""
    return " ".join(_documentation(rule).split("\n\n")[0].split())


def rules_table(rules: Sequence[type[Rule]], width: int, color: bool) -> Iterator[str]:
    """One row for each rule; a summary that does not fit is continued below itself."""
    style = Style(color)
    rows = [(escape(rule.code), escape(rule.name), rule.severity.value, escape(summary(rule))) for rule in rules]
    head = ("code", "name", "severity", "summary")
    wide = [max(len(row[column]) for row in [head, *rows]) for column in range(3)]
    indent = sum(wide) + 6
    room = max(width - indent, 30)
    yield style("  ".join(text.ljust(size) for text, size in zip(head, [*wide, 0], strict=True)), "bold")
    for (code, name, severity, text), rule in zip(rows, rules, strict=True):
        first, *rest = textwrap.wrap(text, room, break_long_words=False) or [""]
        colored = style.severity(severity.ljust(wide[2]), rule.severity)
        yield f"{style(code.ljust(wide[0]), 'bold')}  {name.ljust(wide[1])}  {colored}  {first}".rstrip()
        for line in rest:
            yield " " * indent + line


def rules_json(rules: Sequence[type[Rule]]) -> str:
    """All rules for programs."""
    data = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": rule.severity.value,
            "summary": summary(rule),
            "instead": _prose(rule.instead),
            "error": rule.error,
            "measured": rule.measured,
            "allowed": _prose(rule.allowed),
            "from": rule.__module__,
        }
        for rule in rules
    ]
    return json.dumps({"version": 1, "rules": data}, indent=2) + "\n"


def explanation(rule: type[Rule], width: int, color: bool, all_examples: bool = False) -> Iterator[str]:
    """Everything that a rule says about itself, with its examples."""
    style = Style(color)
    wide = min(width, WIDEST_PROSE)
    severity = style.severity(rule.severity.value, rule.severity)
    yield f"{style(f'{escape(rule.code)} {escape(rule.name)}', 'bold')} ({severity})"
    yield ""
    yield from _paragraphs(_documentation(rule), wide, "")
    for title, text in (("What the GPU says", rule.error), ("Measured on", rule.measured)):
        if text:
            yield ""
            yield style(title, "bold")
            # As it was said: a message that is searched for must not be wrapped.
            yield from (f"    {escape(line)}".rstrip() for line in inspect.cleandoc(text).splitlines())
    for title, text in (("Instead", rule.instead), ("When it is all right", rule.allowed)):
        if text:
            yield ""
            yield style(title, "bold")
            yield from _paragraphs(inspect.cleandoc(text), wide, "    ")
    for title, start in (("Bad", "bad"), ("Good", "good")):
        found = examples(rule, start)
        shown = found if all_examples else found[:1]
        for example in shown:
            yield ""
            yield style(f"{title}: {example.name}", "bold")
            for name, text in example.files:
                if len(example.files) > 1:
                    yield f"    {style(f'# {name}', 'dim')}"
                yield from (f"    {escape(line)}".rstrip() for line in text.expandtabs(4).splitlines())
        if len(found) > len(shown):
            yield style(f"    ({len(found) - len(shown)} more with --all-examples)", "dim")


def examples(rule: type[Rule], start: str) -> list[Example]:
    """The examples of a rule whose file or folder name starts with `start` ("bad" or "good"), by name."""
    folder = examples_folder(rule)
    if folder is None:
        return []
    found = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not name.startswith(start):
            continue
        if os.path.isdir(path):
            files, _ = source.discover([path])
            texts = [(os.path.relpath(file, path).replace(os.sep, "/"), _text(file)) for file in files]
            found.append(Example(name, tuple(texts)))
        elif name.endswith(".py"):
            found.append(Example(name, ((name, _text(path)),)))
    return [example for example in found if example.files]


def examples_folder(rule: type[Rule]) -> str | None:
    """Where the examples of a rule lie: `fixtures/CODE/` in the package of the rule, or beside it in its repository.

    The built-in rules are installed with theirs inside the package; an editable install finds them beside `rules/`.
    """
    package = sys.modules.get(rule.__module__.split(".")[0])
    file = getattr(package, "__file__", None)
    if not file:
        return None
    home = os.path.dirname(os.path.abspath(file))
    for base in (home, os.path.dirname(home)):
        folder = os.path.join(base, "fixtures", rule.code)
        if os.path.isdir(folder):
            return folder
    return None


def _text(path: str) -> str:
    found = source.read(path)
    return found.text if isinstance(found, source.Source) else f"# {found.message}"


def _documentation(rule: type[Rule]) -> str:
    # Not inspect.getdoc: a rule without documentation would get that of its base class.
    return inspect.cleandoc(rule.__doc__ or "")


def _prose(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str, width: int, indent: str) -> Iterator[str]:
    """Text with its paragraphs refilled; indented blocks and lists stay as they are written."""
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ""
        lines = [escape(line) for line in paragraph.splitlines()]
        if any(line.startswith((" ", "- ", "* ")) for line in lines):
            yield from (f"{indent}{line}".rstrip() for line in lines)
        else:
            filled = textwrap.wrap(
                " ".join(lines),
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            yield from filled
