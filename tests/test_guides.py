"""The README and the guides: what they show is what the commands print, their links lead somewhere, nothing is left out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import guides
from cgsafe.cli import cli
from cgsafe.report import FORMATS
from cgsafe.rule import load_rules
from test_cli_surface import options

PLUGIN = guides.REPOSITORY / "tests" / "example_plugin"
README = (guides.REPOSITORY / "README.md").read_text(encoding="utf-8")
MARKDOWN = MarkdownIt("commonmark").enable("table")


@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("git")), reason="the commands need bash and git")
@pytest.mark.parametrize("page", guides.PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page):
    said = page.read_text(encoding="utf-8")
    assert guides.followed(page) == said, f"python tests/guides.py {page.relative_to(guides.REPOSITORY)}"


def anchors(page: Path) -> set[str]:
    """What links to headings of a page may name, as GitHub has it."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", guides.PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    tokens = [t for block in MARKDOWN.parse(page.read_text("utf-8")) for t in block.children or []]
    links = [str(t.attrs[kind]) for t in tokens for kind in ("href", "src") if kind in t.attrs]
    for link in links:
        target, _, anchor = link.partition("#")
        if target.startswith("https:"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def test_the_picture_shows_what_the_command_prints():
    ink = "{http://www.w3.org/2000/svg}text"
    lines: dict[str, list[tuple[float, str]]] = {}
    for text in ET.parse(guides.PICTURE).iter(ink):
        if "y" in text.attrib and text.text and not text.attrib.get("class", "").endswith("title"):
            lines.setdefault(text.attrib["y"], []).append((float(text.attrib["x"]), text.text))
    drawn = "".join(
        "".join(part for _, part in sorted(line)) for _, line in sorted(lines.items(), key=lambda y: float(y[0]))
    )
    printed = re.sub(r"\x1b\[[\d;]*m", "", guides.report())
    expected = f"$ cgsafe check {guides.PICTURED}\n{printed}"
    assert "".join(drawn.split()) == "".join(expected.split())


def test_the_picture_needs_nothing_from_elsewhere():
    text = guides.PICTURE.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\"' )]+", text.replace("http://www.w3.org/2000/svg", "")) in (
        [],
        ["https://www.textualize.io"],  # rich's name in a comment
    )


def test_the_index_lists_every_guide():
    index = (guides.DOCS / "README.md").read_text(encoding="utf-8")
    for page in guides.DOCS.glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index
        assert page.name == "README.md" or f"](cgsafe/docs/{page.name})" in README


def test_the_readme_tells_of_every_command_option_format_and_rule():
    for name in cli.commands:
        assert f"| `cgsafe {name}" in README
    for command, option in options():
        if command == "check" and option.name != "help":
            assert any(f"`{spelling}" in README for spelling in option.opts), option.opts
    for name in FORMATS:
        assert f"`{name}`" in README
    for rule in load_rules()[0]:
        if rule.__module__.startswith("cgsafe_rules"):
            assert f"[{rule.code}](rules/docs/{rule.code}.md)" in README


def test_the_readme_names_no_option_that_is_not_there():
    known = {spelling for _, option in options() for spelling in option.opts} | {"--help", "--version", "--check"}
    known |= {"--evidence", "--unsafe-fixes"}
    for page in guides.PAGES:
        text = page.read_text(encoding="utf-8")
        for command in re.findall(r"cgsafe [a-z]+ [^\n`|]*", text):
            if command.startswith("cgsafe measure"):
                continue
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", command):
                assert option in known, f"{page.name}: {command}"


# -- the example package of rules ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed into a folder of its own from a copy, without a network."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--target", str(folder / "installed"), str(folder / "source")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "installed"


def run(plugin: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(plugin)}
    command = [sys.executable, "-m", "cgsafe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=plugin)


def test_a_rule_of_another_package_is_listed_explained_and_used(plugin):
    assert re.search(r"^ACME1 +capture-without-pool +warning ", run(plugin, "rules").stdout, re.M)
    explained = run(plugin, "explain", "capture-without-pool")
    assert explained.stdout.startswith("ACME1 capture-without-pool (warning)\n")
    assert "\nBad: bad_graph.py\n" in explained.stdout
    assert "\nGood: good_" in explained.stdout
    checked = run(plugin, "check", "acme_rules/fixtures", "--output-format", "concise")
    assert checked.returncode == 1
    assert [line.split(": ")[1].split()[0] for line in checked.stdout.splitlines()] == ["ACME1", "ACME1"]


def test_its_own_check_of_its_examples_passes(plugin):
    environment = {**os.environ, "PYTHONPATH": str(plugin)}
    command = [sys.executable, str(PLUGIN / "check_examples.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.count("as expected"), "NOT" in done.stdout) == (0, 4, False)


def test_a_project_chooses_whose_rules_count(plugin, tmp_path):
    (tmp_path / ".git").mkdir()
    example = plugin / "acme_rules" / "fixtures" / "ACME1" / "bad_graph.py"
    (tmp_path / "m.py").write_text(example.read_text().replace("  # expect: ACME1", ""))
    environment = {**os.environ, "PYTHONPATH": str(plugin)}
    told = {}
    for plugins in ("[]", '["acme"]'):
        (tmp_path / "cgsafe.toml").write_text(f"plugins = {plugins}\n")
        for command in ("check", "why"):
            words = ["check", "m.py", "--output-format", "concise"] if command == "check" else ["why", "m.py:8"]
            told[plugins, command] = subprocess.run(
                [sys.executable, "-m", "cgsafe", *words], capture_output=True, text=True, env=environment, cwd=tmp_path
            ).stdout
    assert ["ACME1" in text for text in told.values()] == [False, False, True, True]
