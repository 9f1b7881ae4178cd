"""Random edits of a released package: what is recalled and walked after each of them is what a run from scratch finds."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from pathlib import Path

import pytest

from cgsafe import engine
from cgsafe.findings import Confidence
from cgsafe.rule import load_rules
from cgsafe.settings import Settings
from edits import edited

pytestmark = pytest.mark.corpus
TREE = os.environ.get("CGSAFE_CHANGED_TREE", "")  # the folder of an unpacked package, such as vllm


def check(path, **options):
    settings = Settings(min_confidence=Confidence.LOW, all_paths=True, edits=True, **options)
    report = engine.check([str(path)], settings, load_rules()[0], None)
    return [dataclasses.astuple(f) for f in report.findings], report.roots, report.errors


@pytest.mark.skipif(not TREE, reason="CGSAFE_CHANGED_TREE names no folder")
def test_edits_of_a_package(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / Path(TREE).name
    shutil.copytree(TREE, root)
    check(root)
    rng = random.Random(int(os.environ.get("CGSAFE_CHANGED_SEED", "0")))
    files = [p for p in sorted(root.rglob("*.py")) if p.stat().st_size > 200]
    for number in range(int(os.environ.get("CGSAFE_CHANGED_COUNT", "10"))):
        path = rng.choice(files)
        text = path.read_text()
        kind, new = edited(text, rng)
        path.write_text(new)
        scratch = check(root, cache=False)
        where = str(path.relative_to(root)), kind
        assert check(root, jobs=1 + number % 2) == scratch, where
        assert check(path) == check(path, cache=False), where
        path.write_text(text)
