"""After a change only the roots that it concerns are walked, and nobody can tell from the outcome."""

from __future__ import annotations

import json
import os
import random

import pytest

from cgsafe import engine, run
from cgsafe.findings import Confidence
from cgsafe.index import load
from cgsafe.report import Options
from cgsafe.report.json import document
from cgsafe.rule import load_rules
from cgsafe.settings import Settings
from edits import edited
from expectations import TORCH
from test_determinism import tree


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def walked(monkeypatch):
    """The names of the roots that are walked."""
    names = []
    walk = run.Share.walk

    def noting(self, candidates, *rest):
        names.extend(f"{os.path.basename(c.path)}:{c.name}" for c in candidates)
        walk(self, candidates, *rest)

    monkeypatch.setattr(run.Share, "walk", noting)
    return names


def check(paths=(".",), **options) -> str:
    settings = Settings(
        **{"jobs": 1, "cache": True, "min_confidence": Confidence.LOW, "all_paths": True, "edits": True, **options}
    )
    data = document(engine.check(list(paths), settings, load_rules()[0], None), Options())
    return json.dumps([data["findings"], data["errors"], data["summary"]], indent=1)


def same(paths=(".",), **options) -> str:
    recalled = check(paths, **options)
    assert recalled == check(paths, **{**options, "cache": False})
    return recalled


FILES = {
    "pyproject.toml": "",
    "zoo/__init__.py": "from .layers import *\n",
    "zoo/layers.py": TORCH
    + """
TABLE = {}
LIMIT = 3
_step = 0

def register(name):
    def add(f):
        TABLE[name] = f
        return f
    return add

def advance():
    global _step
    _step += 1

class Base(nn.Module):
    def act(self, x):
        raise NotImplementedError

    def forward(self, x):
        y = self.act(x)
        return y

    def unused(self, x):
        return x

class Doubling(Base):
    def act(self, x):
        return x * 2
""",
    "zoo/acts.py": TORCH
    + """
from zoo.layers import register

@register("sum")
def total(x):
    return x.sum().item()
""",
    "zoo/one.py": TORCH
    + """
from zoo.layers import LIMIT, TABLE, Base

class One(Base):
    def __init__(self):
        super().__init__()
        self.scale = None

    def load(self, value):
        self.scale = 2

    def act(self, x):
        for f in TABLE.values():
            f(x)
        if self.scale > LIMIT:
            return x
        if x.sum() > 0:
            return x + 1
        return x
""",
    "zoo/two.py": TORCH
    + """
import zoo

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = zoo.Doubling()

    def forward(self, x):
        longest = x.max()
        if longest > 3:
            return self.inner(x)
        return x
""",
}


def change(root, name, old, new):
    path = root / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


CHANGES = {
    "a function that one root runs": ("zoo/two.py", "> 3", "> 4", ["two.py:Two"]),
    "a function that nobody runs": ("zoo/layers.py", "return x\n\nclass D", "return x + 1\n\nclass D", []),
    "a comment between functions": ("zoo/layers.py", "class Base", "# a comment\n\n\nclass Base", []),
    "lines above": ("zoo/two.py", "import zoo", "import os\nimport zoo\n\n", []),
    "a function below a registry's decorator": ("zoo/acts.py", "x.sum()", "x.max()", ["one.py:One"]),
    "a constant": ("zoo/layers.py", "LIMIT = 3", "LIMIT = 4", ["one.py:One"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_only_what_a_change_concerns_is_walked(write, walked, name):
    path, old, new, expected = CHANGES[name]
    root = write(FILES)
    check()
    change(root, path, old, new)
    walked.clear()
    recalled = check([path])
    assert walked == expected
    assert recalled == check([path], cache=False)
    same()


OTHERS = {
    "an attribute that a method sets": ("zoo/one.py", "self.scale = 2", "self.scale = value"),
    "an attribute that a method does not set any more": ("zoo/one.py", "self.scale = 2", "pass"),
    "a name that a star brings": ("zoo/layers.py", "class Doubling", "class Tripling"),
    "another import": ("zoo/__init__.py", "from .layers import *", "from .one import One as Doubling"),
    "a registered name": ("zoo/acts.py", '@register("sum")\n', ""),
    "a base": ("zoo/one.py", "class One(Base)", "class One(nn.Module)"),
    "an abstract method": ("zoo/layers.py", "raise NotImplementedError", "return x.tolist()"),
    "a constant that is bound again": ("zoo/layers.py", "global _step\n    _step", "global LIMIT\n    LIMIT"),
    "a mark": ("zoo/two.py", "    def forward(self, x):", "    def forward(self, x):  # cgsafe: not-captured"),
    "a syntax error": ("zoo/layers.py", "class Base", "class Base("),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("remember", [0, 10**9])
def test_changes_from_afar(write, monkeypatch, name, remember):
    monkeypatch.setattr(run, "REMEMBER", remember)
    path, old, new = OTHERS[name]
    root = write(FILES)
    check()
    change(root, path, old, new)
    for _ in range(2):
        same()
        same(["zoo/two.py"])
        same(["zoo/one.py"])
    change(root, path, new, old)
    same()


def test_files_that_come_and_go(write):
    root = write(FILES)
    check()
    (root / "zoo/three.py").write_text(
        TORCH + "from zoo.layers import Base\n\nclass Three(Base):\n    def act(self, x):\n        return x.item()\n"
    )
    same()
    same(["zoo/three.py"])
    (root / "zoo/layers").mkdir()
    (root / "zoo/acts.py").unlink()
    same()
    (root / "zoo/layers.py").unlink()
    same()


def test_messages_that_name_lines_move_with_them(write, walked):
    root = write(FILES)
    line = (root / "zoo/two.py").read_text().split("\n").index("        longest = x.max()") + 1
    assert f"(line {line})" in check(["zoo/two.py"])
    change(root, "zoo/two.py", "import zoo", "\n\n\nimport zoo")
    walked.clear()
    assert f"(line {line + 3})" in check(["zoo/two.py"])
    assert not walked
    same()


def test_a_file_that_was_changed_behind_the_clock_is_read(write, monkeypatch):
    root = write(FILES)
    monkeypatch.setattr(load, "TICK", 0)
    check()
    path = root / "zoo/two.py"
    stamp = path.stat()
    change(root, "zoo/two.py", "> 3", "> 4")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    assert "longest > 4" in same()


@pytest.mark.parametrize("seed", range(4))
def test_random_edits(write, monkeypatch, seed):
    """One after the other on the same project; some are taken back."""
    monkeypatch.setattr(run, "REMEMBER", seed % 2 * 10**9)
    monkeypatch.setattr(run, "SMALL", 2)
    examples = {n: t for number, (n, t) in enumerate(tree(5).items()) if n.startswith("zoo") or number % 12 == seed}
    root = write({"pyproject.toml": "", **examples, **{f"more/{n}": t for n, t in FILES.items() if "/" in n}})
    rng = random.Random(seed)
    check()
    files = sorted(p for folder in ("zoo", "more", "examples") for p in (root / folder).rglob("*.py"))
    for number in range(6):
        path = rng.choice(files[-12:] if number % 2 else files)
        text = path.read_text()
        if not text.strip():
            continue
        kind, new = edited(text, rng)
        path.write_text(new)
        where = str(path.relative_to(root))
        assert check(jobs=1 + number % 2) == check(cache=False), (where, kind)
        assert check([where]) == check([where], cache=False), (where, kind)
        if number % 3 == 2:
            path.write_text(text)
