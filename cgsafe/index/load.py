"""Reads and indexes all known files, from the cache where their contents are unchanged, with several processes where it pays."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

from cgsafe.findings import Problem
from cgsafe.index.build import build
from cgsafe.index.project import File, Project, module_name
from cgsafe.settings import Settings
from cgsafe.source import STDIN, Projects, Source, read

Progress = Callable[[str, int, int], None]


def load_project(
    paths: list[str], shown: dict[str, str], settings: Settings, progress: Progress | None
) -> tuple[Project, list[Problem]]:
    """The project of all readable files among `paths`, and what was wrong with the others."""
    problems: list[Problem] = []
    project = Project()
    surroundings = Projects()
    gc_was_on = gc.isenabled()
    gc.disable()  # millions of short-lived nodes, none of them in cycles
    try:
        for number, path in enumerate(paths):
            if progress is not None and number % 64 == 0:
                progress("reading", number, len(paths))
            source = read(path, settings.stdin)
            if isinstance(source, Problem):
                problems.append(source)
                continue
            index, problem = index_of(source)
            if problem is not None:
                problems.append(problem)
                continue
            project.add(_file(surroundings, path, source.digest, index))
    finally:
        if gc_was_on:
            gc.enable()
    return project, problems


def _file(surroundings: Projects, path: str, digest: str, index: dict[str, Any]) -> File:
    where = path if path != STDIN else os.path.join(os.getcwd(), "<stdin>.py")
    root = surroundings.around(os.path.dirname(where)).import_root
    name, package = module_name(where, root)
    return File(path, name, package, root, digest, index)


def index_of(source: Source) -> tuple[dict[str, Any], Problem | None]:
    """The index of a file, or why there is none."""
    try:
        return build(source.text), None
    except SyntaxError as error:
        return {}, Problem(source.path, error.lineno or 0, f"syntax error: {error.msg}")
    except ValueError as error:
        return {}, Problem(source.path, 0, f"not Python source: {error}")
    except (RecursionError, MemoryError):
        return {}, Problem(source.path, 0, "nested too deeply for Python's parser")
