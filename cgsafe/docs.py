"""The pages about rules, from the same texts as `cgsafe explain`: python -m cgsafe.docs PACKAGE [--check].

PACKAGE is the folder of a package of rules, as `rules` is; its pages are written to `docs/` in it: one for each rule, and
README.md as their index.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from cgsafe import catalogue
from cgsafe.rule import Rule, load_rules

FOLDER = "docs"
INDEX = "README.md"
MARK = "<!-- Written by `python -m cgsafe.docs`: change the rule, its examples or its evidence, and run that again. -->"

INTRODUCTION = (
    "One page for each rule; `cgsafe explain CODE` tells the same. In the examples, `# expect: CODE` stands on the lines that",
    "the rule reports. A fix is called automatic where cgsafe knows the edit, at least in some of the rule's examples.",
)

_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_SPECIAL = re.compile(r"[\\`*_\[\]<~$]|&(?=[#\w])")
_BLOCK_START = re.compile(r"^(\d*)([-+=>#]|(?<=\d)[.)])")


# -- Markdown ----------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Text that says in Markdown just what it says."""
    return _at_start_of_block(_escaped(" ".join(text.split())))


def prose(text: str) -> str:
    """A sentence or a paragraph in which backticks mark code, as in docstrings; the rest is plain."""
    text = " ".join(text.split())
    parts = []
    end = 0
    for span in _CODE_SPAN.finditer(text):
        parts += [_escaped(text[end : span.start()]), span[0]]
        end = span.end()
    parts.append(_escaped(text[end:]))
    return _at_start_of_block("".join(parts))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def _at_start_of_block(markdown: str) -> str:
    """Keep the start of a text from being that of a list, a heading or a quotation."""
    return _BLOCK_START.sub(r"\1\\\2", markdown)


def cell(markdown: str) -> str:
    """Markdown for a cell of a table, where a bar would end it, in code too."""
    return markdown.replace("|", "\\|")


def fenced(text: str, language: str) -> Iterator[str]:
    """A block of code, whatever is in it."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text) or [""]))
    yield f"{fence}{language}"
    yield from text.rstrip().splitlines()
    yield fence


def paragraphs(text: str) -> Iterator[str]:
    """What a docstring says; one line for each paragraph, for a line that starts anew could become a list."""
    for number, paragraph in enumerate(text.strip("\n").split("\n\n")):
        if number:
            yield ""
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines):
            yield from fenced("\n".join(line[4:] for line in lines), "python")
        elif lines and lines[0].startswith(("- ", "* ")):
            yield from _items(lines)
        else:
            yield prose(paragraph)


def _items(lines: Sequence[str]) -> Iterator[str]:
    items: list[str] = []
    for line in lines:
        if line.startswith(("- ", "* ")):
            items.append(line[2:])
        else:
            items[-1] += f" {line}"
    yield from (f"- {prose(item)}" for item in items)


# -- the pages ---------------------------------------------------------------------------------------------------------


def pages(rules: Sequence[type[Rule]], folder: str) -> dict[str, str]:
    """All pages by file name; `folder` is where they will lie, for their links."""
    fix = fixes(rules)
    return {INDEX: index(rules, fix), **{f"{rule.code}.md": page(rule, folder, fix[rule.code]) for rule in rules}}


def index(rules: Sequence[type[Rule]], fix: Mapping[str, str]) -> str:
    """The table of all rules."""
    lines = ["# Rules", "", MARK, "", *INTRODUCTION, ""]
    lines += ["| code | name | severity | what | fix |", "| --- | --- | --- | --- | --- |"]
    for rule in rules:
        row = [f"[{rule.code}]({rule.code}.md)", plain(rule.name), rule.severity.value]
        row += [prose(catalogue.summary(rule)), fix[rule.code]]
        lines.append(f"| {' | '.join(map(cell, row))} |")
    return "\n".join(lines) + "\n"


def page(rule: type[Rule], folder: str, fix: str) -> str:
    """All about one rule."""
    sections = catalogue.sections(rule)
    lines = [f"# {plain(f'{rule.code} {rule.name}')}", "", MARK, ""]
    lines += [f"Severity: {rule.severity.value}. Fix: {fix}. [All rules]({INDEX})", ""]
    lines += paragraphs(catalogue.documentation(rule))
    # What the machine said comes before the examples, what to do after them.
    for section in sections:
        if section.verbatim:
            lines += ["", f"## {section.title}", "", *fenced(section.text, "text")]
    for title, start in (("Bad", "bad"), ("Good", "good")):
        for example in catalogue.shortest(catalogue.examples(rule, start)):
            lines += ["", f"## {title}", "", f"{_link(rule, example.name, folder)}:"]
            for name, text in catalogue.excerpt(example).files:
                lines += ["", *([f"`{name}`:", ""] if len(example.files) > 1 else []), *fenced(text, "python")]
    for section in sections:
        if not section.verbatim:
            lines += ["", f"## {section.title}", "", *paragraphs(section.text)]
    sightings, faults = catalogue.seen(rule)
    if faults:
        raise ValueError(f"evidence: {'; '.join(faults)}")
    for sighting in sightings:
        title = plain(f"Seen on {sighting.table.machine}, {sighting.table.date}")
        lines += ["", f"## {title}", "", "| example | outcome |", "| --- | --- |"]
        for name, outcome in sighting.outcomes:
            lines.append(f"| {cell(_link(rule, name, folder))} | {cell(plain(str(outcome)))} |")
    return "\n".join(lines) + "\n"


def _link(rule: type[Rule], name: str, folder: str) -> str:
    target = os.path.relpath(os.path.join(catalogue.examples_folder(rule) or "", name), folder).replace(os.sep, "/")
    return f"[`{rule.code}/{name}`]({target})"


def fixes(rules: Sequence[type[Rule]]) -> dict[str, str]:
    """By code, how the findings in the rule's own bad examples are put right: cgsafe is asked, not the rules' authors."""
    from cgsafe import engine
    from cgsafe.settings import Settings

    folders = [folder for rule in rules if (folder := catalogue.examples_folder(rule))]
    report = engine.check(folders, Settings(jobs=1, cache=False, edits=True), list(rules), None)
    kinds: dict[str, set[str]] = {rule.code: set() for rule in rules}
    for finding in report.findings:
        if finding.fix and finding.fix.edits:
            kinds[finding.code].add(finding.fix.safety)
    return {code: f"automatic ({', '.join(sorted(found))})" if found else "by hand" for code, found in kinds.items()}


# -- the command -------------------------------------------------------------------------------------------------------


def rules_in(package: str) -> list[type[Rule]]:
    """The installed rules whose package lies in a folder."""
    wanted = os.path.realpath(package)
    rules, problems = load_rules()
    if problems:
        raise ValueError("; ".join(problems))
    found = [rule for rule in rules if os.path.realpath(catalogue.package_folder(rule) or "") == wanted]
    if not found:
        raise ValueError(f"no installed rule lies in `{package}`; install that package first (`pip install -e`)")
    return found


def outdated(texts: dict[str, str], folder: str) -> tuple[list[str], list[str]]:
    """Which pages must be written, and which were written for rules that are no more; other files are left alone."""
    there = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".md"):
            with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
                there[name] = file.read()
    stale = [name for name, text in texts.items() if there.get(name) != text]
    return stale, [name for name, text in there.items() if name not in texts and MARK in text]


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or tell whether they are up to date; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m cgsafe.docs",
        description="Write the pages about a package's rules, from what `cgsafe explain` says, to PACKAGE/docs/.",
    )
    parser.add_argument("package", metavar="PACKAGE", help="the folder of a package of rules")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where pages are not up to date")
    options = parser.parse_args(arguments)
    folder = os.path.join(options.package, FOLDER)
    try:
        texts = pages(rules_in(options.package), folder)
        stale, left_over = outdated(texts, folder)
        if not options.check:
            _write({name: texts[name] for name in stale}, left_over, folder)
    except (OSError, ValueError) as error:
        print(f"cgsafe.docs: {error}", file=sys.stderr)
        return 2
    for what, names in (("out of date" if options.check else "written", stale), ("no rule's page", left_over)):
        for name in names:
            print(f"{os.path.join(folder, name)}: {what}{'' if options.check or name in stale else ', removed'}")
    if options.check and (stale or left_over):
        print(f"write them: python -m cgsafe.docs {options.package}")
        return 1
    return 0


def _write(texts: dict[str, str], left_over: Sequence[str], folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8", newline="") as file:
            file.write(text)
    for name in left_over:
        os.remove(os.path.join(folder, name))


if __name__ == "__main__":
    sys.exit(main())
