"""What the rules say about themselves: the table of `cgsafe rules`, the pages of `cgsafe explain` and cgsafe/docs.py."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cgsafe import evidence, source
from cgsafe.report.style import Style, escape
from cgsafe.rule import Rule

WIDEST_PROSE = 100

_MARK = re.compile(r"#\s*docs:\s*(begin|end)")  # in examples, around what matters


@dataclass(frozen=True)
class Example:
    """A bad or good example of a rule: one file, or a folder with the files of several modules."""

    name: str
    files: tuple[tuple[str, str], ...]  # name inside the example, text


@dataclass(frozen=True)
class Section:
    """A titled part of what a rule says about itself."""

    title: str
    text: str
    verbatim: bool = False


@dataclass(frozen=True)
class Sighting:
    """What one machine did with the examples of a rule."""

    table: evidence.Table
    outcomes: tuple[tuple[str, evidence.Outcome], ...]  # by name of the example; the bad ones first


def summary(rule: type[Rule]) -> str:
    """The first paragraph of a rule's documentation, on one line."""
    return " ".join(documentation(rule).split("\n\n")[0].split())


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
            "measured": measured(rule),
            "allowed": _prose(rule.allowed),
            "from": rule.__module__,
        }
        for rule in rules
    ]
    return json.dumps({"version": 1, "rules": data}, indent=2) + "\n"


def explanation(rule: type[Rule], width: int, color: bool, all_examples: bool = False) -> Iterator[str]:
    """Everything that a rule says about itself, with its examples and what a GPU did with them."""
    style = Style(color)
    wide = min(width, WIDEST_PROSE)
    severity = style.severity(rule.severity.value, rule.severity)
    yield f"{style(f'{escape(rule.code)} {escape(rule.name)}', 'bold')} ({severity})"
    yield ""
    yield from _paragraphs(documentation(rule), wide, "")
    for section in sections(rule):
        yield ""
        yield style(section.title, "bold")
        if section.verbatim:
            # As it was said: a message that is searched for must not be wrapped.
            yield from (f"    {escape(line)}".rstrip() for line in section.text.splitlines())
        else:
            yield from _paragraphs(section.text, wide, "    ")
    for title, start in (("Bad", "bad"), ("Good", "good")):
        found = examples(rule, start)
        shown = [whole(example) for example in found] if all_examples else [excerpt(e) for e in shortest(found)]
        for example in shown:
            yield ""
            yield style(f"{title}: {example.name}", "bold")
            for name, text in example.files:
                if len(example.files) > 1:
                    yield f"    {style(f'# {name}', 'dim')}"
                yield from (f"    {escape(line)}".rstrip() for line in text.expandtabs(4).splitlines())
        if len(found) > len(shown):
            yield style(f"    ({len(found) - len(shown)} more with --all-examples)", "dim")
    sightings, faults = seen(rule)
    for sighting in sightings:
        yield ""
        yield style(f"Seen on {escape(sighting.table.machine)}, {escape(sighting.table.date)}", "bold")
        yield from (f"    {escape(f'{name}: {outcome}')}" for name, outcome in sighting.outcomes)
    yield from (f"    {escape(fault)}" for fault in faults)


def documentation(rule: type[Rule]) -> str:
    """What and why: a rule's docstring."""
    # Not inspect.getdoc: a rule without documentation would get that of its base class.
    return inspect.cleandoc(rule.__doc__ or "")


def sections(rule: type[Rule]) -> list[Section]:
    """What a rule says besides its documentation, in order, without its examples."""
    found = [Section("What the GPU says", inspect.cleandoc(rule.error), verbatim=True)]
    if not seen(rule)[0]:
        found.append(Section("Measured on", inspect.cleandoc(measured(rule)), verbatim=True))
    found.append(Section("Instead", inspect.cleandoc(rule.instead)))
    found.append(Section("When it is all right", inspect.cleandoc(rule.allowed)))
    return [section for section in found if section.text]


def measured(rule: type[Rule]) -> str:
    """Where a GPU ran the rule's examples, by the tables of evidence; without any, what the rule says itself."""
    found = [table.machine for table in _tables(rule)[0] if any(_of(name, rule) for name in table.outcomes)]
    return "; ".join(found) or rule.measured


def seen(rule: type[Rule]) -> tuple[list[Sighting], list[str]]:
    """What a GPU did with the examples of a rule as they are now, and what is wrong with tables of evidence."""
    tables, faults = _tables(rule)
    sightings = []
    if any(_of(name, rule) for table in tables for name in table.outcomes):
        found = examples(rule, "bad") + examples(rule, "good")
        digests = {example.name: evidence.digest(example.files) for example in found}
        for table in tables:
            rows = [(name, table.outcomes.get(f"{rule.code}/{name}")) for name in digests]
            current = [(name, row) for name, row in rows if row is not None and row.digest == digests[name]]
            if current:
                sightings.append(Sighting(table, tuple(current)))
    return sightings, list(faults)


def _tables(rule: type[Rule]) -> tuple[Sequence[evidence.Table], Sequence[str]]:
    home = package_folder(rule)
    return evidence.tables(os.path.join(home, evidence.FOLDER)) if home else ((), ())


def _of(name: str, rule: type[Rule]) -> bool:
    return name.startswith(f"{rule.code}/")


def shortest(found: Sequence[Example]) -> list[Example]:
    """The example that shows it with the fewest lines, or none."""

    def length(example: Example) -> int:
        return sum(len(text.splitlines()) for _, text in excerpt(example).files)

    return sorted(found, key=length)[:1]


def excerpt(example: Example) -> Example:
    """The parts of an example that it marks as what matters; all of it where it marks none."""
    parts = [(name, _marked(text)) for name, text in example.files]
    if any(text for _, text in parts):
        return Example(example.name, tuple((name, text) for name, text in parts if text))
    return whole(example)


def whole(example: Example) -> Example:
    """All of an example, without its marks."""
    files = [(name, "".join(line for line in _lines(text) if not _mark(line))) for name, text in example.files]
    return Example(example.name, tuple(files))


def _marked(text: str) -> str:
    parts: list[list[str]] = []
    inside = False
    for line in _lines(text):
        if mark := _mark(line):
            if mark == "begin":
                parts.append([])
            inside = mark == "begin"
        elif inside:
            parts[-1].append(line)
    return "\n".join("".join(part) for part in parts if part)


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _mark(line: str) -> str:
    """ "begin" or "end" where a line is a mark."""
    found = _MARK.fullmatch(line.strip())
    return found[1] if found else ""


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
    home = package_folder(rule)
    if home is None:
        return None
    for base in (home, os.path.dirname(home)):
        folder = os.path.join(base, "fixtures", rule.code)
        if os.path.isdir(folder):
            return folder
    return None


def package_folder(rule: type[Rule]) -> str | None:
    """The folder of the top-level package that a rule belongs to."""
    package = sys.modules.get(rule.__module__.split(".")[0])
    file = getattr(package, "__file__", None)
    return os.path.dirname(os.path.abspath(file)) if file else None


def _text(path: str) -> str:
    found = source.read(path)
    return found.text if isinstance(found, source.Source) else f"# {found.message}"


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
