"""Shared by all tests: checking a few files, a stand-in for the engine, and which tests need what."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cgsafe
from cgsafe.findings import Confidence, Report
from cgsafe.rule import load_rules
from cgsafe.selection import choose
from cgsafe.settings import Settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--evidence FILE`, for the examples' GPU tests."""
    text = "write what a GPU did with the examples to this file (or folder, under the usual name); all of them must run"
    parser.addoption("--evidence", type=Path, metavar="FILE", help=text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none; torch is only imported if such a test was asked for."""
    # Not by keyword: the folder `gpu` gives that to all that lies in it.
    needy = [item for item in items if item.get_closest_marker("gpu")]
    if needy and not _has_gpu():
        for item in needy:
            item.add_marker(pytest.mark.skip(reason="needs torch and a CUDA device"))


def _has_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def write_files(folder: Path, files: dict[str, str | bytes]) -> None:
    """Write files below a folder; text is dedented, so that tests can indent it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = textwrap.dedent(content).lstrip("\n").encode()
        path.write_bytes(content)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str | bytes]], Path]:
    """Write files into an empty folder, make that the working directory, and return it."""

    def writer(files: dict[str, str | bytes]) -> Path:
        write_files(tmp_path, files)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    return writer


@pytest.fixture
def check(write: Callable[[dict[str, str | bytes]], Path]) -> Callable[..., Report]:
    """`check({"model.py": "..."}, paths=[...], min_confidence="low", ...)`: write the files and let the engine check.

    All of the folder is checked unless `paths` says otherwise. All rules run unless `rules`, `select` or `ignore` says
    otherwise. Other arguments are fields of Settings.
    """

    def checker(files: dict[str, str | bytes], paths: list[str] | None = None, **options: Any) -> Report:
        from cgsafe import engine

        write(files)
        rules = options.pop("rules", None)
        for name in ("select", "ignore", "exclude"):
            if isinstance(options.get(name), str):
                options[name] = (options[name],)
        if isinstance(level := options.get("min_confidence"), str):
            options["min_confidence"] = Confidence[level.upper()]
        settings = Settings(**{"jobs": 1, "cache": False, **options})
        if rules is None:
            rules, problems = load_rules()
            assert not problems
        return engine.check(paths or ["."], settings, choose(rules, settings.select, settings.ignore), None)

    return checker


@pytest.fixture
def stub_engine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Put a stand-in for the engine in place, which returns a given report or raises a given exception.

    What it was called with is kept in the list that comes back.
    """

    def install(outcome: Report | BaseException) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = []

        def fake(paths: list[str], settings: Settings, rules: list[Any], progress: Any = None) -> Report:
            calls.append({"paths": paths, "settings": settings, "rules": rules, "progress": progress})
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        module = types.ModuleType("cgsafe.engine")
        module.check = fake  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cgsafe.engine", module)
        monkeypatch.setattr(cgsafe, "engine", module, raising=False)
        return calls

    return install
