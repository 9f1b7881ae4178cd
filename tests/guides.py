"""The guides' commands, really run: python tests/guides.py [--check] [PAGE...].

A guide is a page of Markdown in `cgsafe/docs/`, or the README. Its blocks of the language `console` hold commands (`$ ...`)
and what they print, both streams together. They are run one after the other, in an empty folder for each page; a block
behind a line that ends in "`NAME`:" is first written to that file. Blocks of other languages (`sh`) are not run. Lines that
are just `...` stand for any lines.

Without `--check` the pages are written anew with what the commands printed, and so is the picture of a report.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "cgsafe" / "docs"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.glob("*.md"))]
# What lies in the folder of a page's commands at the start.
COPIES = {"README.md": [REPOSITORY / "fixtures"], "writing-a-rule.md": [REPOSITORY / "tests" / "example_plugin"]}
PICTURE = DOCS / "first-check.svg"
PICTURED = "fixtures/CG101/bad_decorator"
ELLIPSIS = "..."

_FENCE = re.compile(r"(?:`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block of code on a page: the file that it is to be written to, if any, and where its text lies."""

    name: str
    language: str
    start: int
    end: int


def blocks(text: str) -> Iterator[Block]:
    """The blocks that are files or hold commands."""
    for found in _FENCE.finditer(text):
        if found[1] or found[2] == "console":
            yield Block(found[1] or "", found[2], *found.span(3))


def commands(body: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block, and the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return iter(found)


class Shell:
    """An empty folder to run commands in, with this checkout's cgsafe, and nothing of the user's around."""

    def __init__(self, folder: Path, copies: Sequence[Path] = ()) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for copied in copies:
            shutil.copytree(copied, self.folder / copied.name, ignore=shutil.ignore_patterns("__pycache__"))
        tools = folder / "bin"
        tools.mkdir()
        for name, words in {"cgsafe": ["-m", "cgsafe"], "python": [], "pip": ["-m", "pip"]}.items():
            tool = tools / name
            tool.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *words])} "$@"\n')
            tool.chmod(0o755)
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self.environment = {
            **kept,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(self.folder / "plugins"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **{f"GIT_{who}_{what}": f"you@{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, command: str) -> list[str]:
        """What a command prints."""
        if command.startswith("cd "):
            self.folder = (self.folder / command[3:]).resolve()
            return []
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return [line.rstrip() for line in done.stdout.decode().rstrip().splitlines()]


def agrees(said: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether what a page says is what a command prints."""
    pattern = "".join("(?:.*\n)*?" if line == ELLIPSIS else re.escape(line.rstrip()) + "\n" for line in said)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def followed(page: Path) -> str:
    """A page with what its commands print now; all else is as it was."""
    with tempfile.TemporaryDirectory() as folder:
        return _followed(page.read_text(encoding="utf-8"), Shell(Path(folder), COPIES.get(page.name, ())))


def _followed(text: str, shell: Shell) -> str:
    parts, end = [], 0
    for block in blocks(text):
        body = text[block.start : block.end]
        if block.name:
            shell.write(block.name, body)
            continue
        lines = []
        for command, said in commands(body):
            printed = shell.run(command)
            lines += [f"$ {command}", *(said if agrees(said, printed) else printed)]
        parts += [text[end : block.start], *(f"{line}\n" for line in lines)]
        end = block.end
    return "".join([*parts, text[end:]])


def report() -> str:
    """The report that the picture shows, with colours."""
    command = [sys.executable, "-m", "cgsafe", "check", PICTURED, "--color", "always", "--no-cache"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout


def picture() -> str:
    """That report as SVG, drawn by rich; without fonts from elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ cgsafe check {PICTURED}"))
    console.print(Text.from_ansi(report()), soft_wrap=True)
    drawn = console.export_svg(title="cgsafe", unique_id="cgsafe")
    return (
        "\n".join(line.rstrip() for line in re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL).splitlines())
        + "\n"
    )


def main() -> int:
    """Write the pages, or tell which of them are not up to date; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not up to date")
    parser.add_argument("pages", nargs="*", type=Path, help="all pages and the picture, unless some are named")
    options = parser.parse_args()
    stale = []
    for page in options.pages or PAGES:
        text = page.read_text(encoding="utf-8")
        new = followed(page)
        if new != text:
            stale.append(page)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    for page in stale:
        print(f"{page}: {'out of date' if options.check else 'written'}")
    if not options.check and not options.pages:
        PICTURE.write_text(picture(), encoding="utf-8")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
