"""The same input gives the same bytes, whatever the processes, the state of the cache and the order of files."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cgsafe import engine
from cgsafe.findings import Confidence
from cgsafe.report import Options
from cgsafe.report.json import document
from cgsafe.rule import load_rules
from cgsafe.settings import Settings
from cgsafe.suppressions import about_comments
from expectations import TORCH

FIXTURES = Path(__file__).parent.parent / "fixtures"


def tree(models: int) -> dict[str, str]:
    """Some models that share helpers, recursive and decorated ones among them, and the fixtures."""
    files = {
        "zoo/__init__.py": "",
        "zoo/shared.py": TORCH
        + textwrap.dedent(
            """

            def checked(f):
                def wrapper(self, x, *args):
                    if x.isnan().any():
                        raise ValueError
                    return f(self, x, *args)

                return wrapper


            def shrink(t, depth):
                if depth == 0:
                    return t.sum().item()
                return shrink(t / 2, depth - 1)


            def even(t, n):
                return t if n == 0 else odd(t, n - 1)


            def odd(t, n):
                return float(t.max()) if n == 0 else even(t, n - 1)


            class Base(nn.Module):
                limit = 3

                def scale(self, t):
                    raise NotImplementedError

                @checked
                def forward(self, x: torch.Tensor, *args):
                    y = self.scale(x)
                    return y if y.sum() > self.limit else shrink(y, self.limit) + even(y, 4)


            @torch.compile
            def gelu(t):
                return F.gelu(t)
            """
        ),
    }
    for number in range(models):
        other = (number * 7 + 3) % models
        files[f"zoo/model{number:02}.py"] = TORCH + textwrap.dedent(
            f"""
            from .shared import Base, gelu, shrink
            from . import model{other:02} as other


            class Layer{number}(nn.Module):
                def forward(self, t, bound):
                    return gelu(t[: bound])


            class Model{number}(Base):
                def __init__(self, n):
                    super().__init__()
                    self.limit = {number}
                    self.layers = nn.ModuleList([Layer{number}() for _ in range(n)])
                    self.other = other.Layer{other}()

                def scale(self, t):
                    for layer in self.layers:
                        t = layer(t, t.argmax(){".item()" if number % 3 == 0 else ""})
                    return self.other(t, t.shape[0] // {number + 1})
            """
        )
    for path in sorted(FIXTURES.rglob("*.py")):
        files[f"examples/{path.relative_to(FIXTURES).as_posix()}"] = path.read_text()
    return files


@pytest.fixture
def project(write):
    return write({"pyproject.toml": "", **tree(12)})


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def run(paths=(".",), **options) -> str:
    """The JSON report of a run, without statistics."""
    rules, _ = load_rules()
    settings = Settings(**{"jobs": 1, "cache": False, "min_confidence": Confidence.LOW, "all_paths": True, **options})
    report = engine.check(list(paths), settings, rules, None)
    assert report.findings
    assert not report.errors, report.errors
    data = document(report, Options())
    return json.dumps([data["findings"], data["errors"], data["summary"]], indent=1)


def test_two_runs_in_one_process(project):
    assert run() == run()


def test_one_process_and_two(project):
    assert run(jobs=1) == run(jobs=2)


def test_one_process_and_many(project):
    assert run(jobs=1) == run(jobs=5)


def test_without_cache_cold_and_warm(project):
    without = run(cache=False)
    assert run(cache=True) == without
    assert run(cache=True) == without
    assert run(cache=True, jobs=2) == without


def test_a_cache_made_by_two_processes(project):
    cold = run(cache=True, jobs=2)
    assert run(cache=True, jobs=1) == cold == run(cache=False)


def test_the_order_of_the_paths(project):
    names = sorted(str(p.relative_to(project)) for p in project.rglob("*.py"))
    expected = run(names)
    for seed in range(3):
        random.Random(seed).shuffle(names)
        assert run(names) == expected


def test_the_order_of_the_directory_entries(project, monkeypatch):
    expected = run()
    real_scandir, real_listdir, real_walk = os.scandir, os.listdir, os.walk

    class Reversed:
        def __init__(self, entries):
            self.entries = sorted(entries, key=lambda e: e.name, reverse=True)
            self.close = entries.close

        def __iter__(self):
            return iter(self.entries)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.close()

    monkeypatch.setattr(os, "scandir", lambda path=".": Reversed(real_scandir(path)))
    monkeypatch.setattr(os, "listdir", lambda path=".": sorted(real_listdir(path), reverse=True))
    assert real_walk
    assert run() == expected


def test_part_of_the_tree_tells_what_all_of_it_tells_there(project):
    """What is reported in a file does not depend on which other files are asked about."""
    everything = json.loads(run())[0]
    for part in ("zoo/shared.py", "zoo/model03.py"):
        alone = [f for f in json.loads(run([part]))[0] if f["path"] == part]
        assert alone == [f for f in everything if f["path"] == part]


# -- what a cache must notice ------------------------------------------------------------------------------------------


def edit(path: Path, old: str, new: str) -> str:
    """Change a file, and return what was in it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return text


EDITS = {
    "the file of the hazard": ("zoo/shared.py", "t.sum().item()", "t.shape[0]"),
    "moved lines": ("zoo/shared.py", "def shrink", "# a line more\n\n\ndef shrink"),
    "a decorator's wrapper": ("zoo/shared.py", "if x.isnan().any():", "if x.shape[0] > 3:"),
    "a model's method": ("zoo/model05.py", "t.argmax()", "3"),
    "what another model imports": ("zoo/model02.py", "class Layer2", "class Moved2"),
    "a removed decorator": ("zoo/shared.py", "@torch.compile\n", ""),
    "a new import": ("zoo/model01.py", "from .shared import Base", "from .shared import even as more, Base"),
}


@pytest.mark.parametrize(("path", "old", "new"), EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_edit_is_noticed(project, path, old, new, jobs):
    before = run(cache=True, jobs=jobs)
    text = edit(project / path, old, new)
    after = run(cache=True, jobs=jobs)
    assert after == run(cache=False)
    assert after != before or "even as more" in new
    (project / path).write_text(text)
    assert run(cache=True, jobs=jobs) == before


def test_an_edit_within_the_same_second_and_size_is_noticed(project):
    path = project / "zoo/shared.py"
    before = run(cache=True)
    stamp = path.stat()
    edit(path, "t.sum().item()", "t.sum().abs() ")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    after = run(cache=True)
    assert after == run(cache=False)
    assert after != before


def test_new_and_removed_files_are_noticed(project):
    before = run(cache=True)
    new = project / "zoo/late.py"
    new.write_text(TORCH + "class Late(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n")
    with_new = run(cache=True)
    assert with_new == run(cache=False) != before
    new.unlink()
    assert run(cache=True) == before


def test_a_module_that_appears_in_front_of_another_is_noticed(write):
    """An import that led nowhere, or elsewhere, leads to the new file."""
    hot = TORCH + "\n\ndef scale(t):\n    return t.sum().item()\n"
    model = TORCH + "from lib import scale\n\n\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor):\n"
    root = write({"pyproject.toml": "", "model.py": model + "        return int(x.sum()) + scale(x)\n"})
    before = run(cache=True)
    (root / "lib.py").write_text(hot)
    after = run(cache=True)
    assert after == run(cache=False)
    assert after != before


def test_settings_are_not_mixed_up(project):
    options = [{"min_confidence": level, "all_paths": paths} for level in Confidence for paths in (True, False)]
    rules, _ = load_rules()

    def told(**more) -> list[str]:
        found = []
        for option in options:
            settings = Settings(**{"jobs": 1, "cache": False, **option, **more})
            found.append(json.dumps(document(engine.check(["."], settings, rules, None), Options())))
        return found

    assert told(cache=True) == told(cache=True) == told()


def test_the_choice_of_rules_is_not_mixed_up(project):
    every, _ = load_rules()
    rules = [rule for rule in every if not about_comments(rule)]  # what these say depends on the others
    settings = Settings(jobs=1, cache=True, min_confidence=Confidence.LOW)
    for some in (rules[:1], rules, rules[1:], every):
        report = engine.check(["."], settings, some, None)
        assert {f.code for f in report.findings} == {rule.code for rule in some}


def test_a_broken_cache_is_no_fault(project, own_cache):
    expected = run(cache=True)
    files = [p for p in own_cache.rglob("*") if p.is_file()]
    for number, path in enumerate(sorted(files)):
        content = path.read_bytes()
        path.write_bytes([b"", content[: len(content) // 2], b"\x00" * 64, content[::-1]][number % 4])
    assert run(cache=True) == expected
    assert run(cache=True) == expected


def test_a_cache_that_cannot_be_written_is_no_fault(project, monkeypatch, tmp_path):
    blocked = tmp_path / "not a folder"
    blocked.write_text("")
    expected = run(cache=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert run(cache=True) == expected


# -- through the command line ------------------------------------------------------------------------------------------


def test_the_command_line_writes_the_same_bytes(project):
    """Whatever the hash seed, the processes and the cache: the very bytes of the JSON report."""
    outputs = set()
    for seed, jobs, cache in itertools.chain([(1, 1, "--no-cache"), (2, 2, "--no-cache"), (3, 1, ""), (4, 2, "")]):
        command = [sys.executable, "-m", "cgsafe", "check", ".", "--output-format", "json", "--jobs", str(jobs)]
        command += ["--all-paths", *([cache] if cache else [])]
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(command, capture_output=True, env=environment, cwd=project)
        assert done.returncode == 1, done.stderr.decode()
        outputs.add(done.stdout)
    assert len(outputs) == 1
