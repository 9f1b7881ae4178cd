"""What gets installed: everything that belongs to it, and rules through the entry points only."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import cgsafe.rule
from samples import ReadRule, TruthRule

REPOSITORY = Path(__file__).resolve().parent.parent
PARTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "cgsafe", "rules", "fixtures")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, built from a copy so that nothing is left in the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for part in PARTS:
        origin = REPOSITORY / part
        if origin.is_dir():
            shutil.copytree(origin, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(origin, tree / part)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run([*command, str(tree)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("cgsafe-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def run(wheel: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command out of the unpacked wheel, away from the repository."""
    environment = {**os.environ, "PYTHONPATH": str(wheel), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "cgsafe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=wheel.parent, env=environment)


@pytest.mark.parametrize(
    ("folder", "installed", "patterns"),
    [
        ("cgsafe", "cgsafe", ("*.py", "*.toml", "*.json", "*.html", "*.md", "*.svg", "py.typed")),
        ("rules", "cgsafe_rules", ("*.py", "*.toml", "*.json")),
        ("fixtures", "cgsafe_rules/fixtures", ("*",)),
    ],
)
def test_the_wheel_holds_every_file(wheel, folder, installed, patterns):
    files = {
        path.relative_to(REPOSITORY / folder)
        for pattern in patterns
        for path in (REPOSITORY / folder).rglob(pattern)
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    assert files
    assert {file for file in files if not (wheel / installed / file).is_file()} == set()


def test_the_wheel_holds_nothing_else(wheel):
    names = {path.name for path in wheel.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"cgsafe", "cgsafe_rules"}
    (info,) = wheel.glob("*.dist-info")
    assert (info / "licenses" / "LICENSE").is_file()
    metadata = (info / "METADATA").read_text()
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Requires-Python: >=3.10\n" in metadata


def test_the_wheel_finds_its_rules_and_their_examples(wheel):
    where = "import cgsafe, cgsafe_rules; print(cgsafe.__file__, cgsafe_rules.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    done = subprocess.run([sys.executable, "-c", where], capture_output=True, text=True, cwd=wheel, env=environment)
    assert all(file.startswith(str(wheel)) for file in done.stdout.split()), "the test must not see the repository"
    listed = run(wheel, "rules")
    assert (listed.returncode, listed.stderr) == (0, "")
    codes = [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("CG")]
    assert codes
    told = []
    for code in codes:
        explained = run(wheel, "explain", code)
        assert (explained.returncode, explained.stderr) == (0, "")
        assert "\nBad: bad" in explained.stdout
        assert "\nGood: good" in explained.stdout
        told += re.findall(r"^Seen on .*PyTorch \d", explained.stdout, re.MULTILINE)
    assert told, "what a GPU did with the examples is installed too"


def test_no_module_of_the_tool_knows_the_built_in_rules():
    names = set()
    for path in (REPOSITORY / "cgsafe").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
    assert "cgsafe.rule" in names
    assert {name for name in names if name.split(".")[0] in ("cgsafe_rules", "rules")} == set()


def entries(monkeypatch: pytest.MonkeyPatch, **targets: object) -> None:
    """Let these be all entry points there are."""
    points = [EntryPoint(name, f"{name}:x", "cgsafe.rules") for name in targets]
    monkeypatch.setattr(EntryPoint, "load", lambda self: targets[self.name])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points if group == "cgsafe.rules" else [])


def test_without_entry_points_there_are_no_rules(monkeypatch):
    entries(monkeypatch)
    assert cgsafe.rule.load_rules() == ([], [])


def test_rules_of_others_come_through_the_same_door(monkeypatch):
    entries(monkeypatch, ours=lambda: [TruthRule], theirs=ReadRule)
    assert cgsafe.rule.load_rules() == ([TruthRule, ReadRule], [])


def test_a_rule_that_takes_a_code_is_told_and_the_rest_stays(monkeypatch):
    class Thief(ReadRule):
        code = "CG101"

    entries(monkeypatch, ours=lambda: [TruthRule], theirs=Thief)
    rules, problems = cgsafe.rule.load_rules()
    assert rules == [TruthRule]
    assert len(problems) == 1
    assert "CG101" in problems[0]


def test_ci_runs_the_command_that_the_readme_tells():
    readme = (REPOSITORY / "README.md").read_text()
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert "\npython -m pytest\n" in readme
    assert script.rstrip().endswith("\npython -m pytest")
    assert "pip install -e '.[dev]'\n" in readme
    assert os.access(REPOSITORY / ".ci" / "run", os.X_OK)
