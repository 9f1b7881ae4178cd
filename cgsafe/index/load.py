"""Reads and indexes all known files: from the cache where contents are unchanged, with several processes where it pays."""

from __future__ import annotations

import gc
import hashlib
import marshal
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from cgsafe.cache import KEEP_INDEXES, Store, tool_stamp
from cgsafe.findings import Problem
from cgsafe.index.build import build
from cgsafe.index.project import File, Project, module_name
from cgsafe.parallel import Helper, available, split
from cgsafe.settings import Settings
from cgsafe.source import STDIN, Projects, Source, read

Progress = Callable[[str, int, int], None]
SMALL = 200  # files; fewer are not worth another process


def load_project(paths: list[str], settings: Settings, progress: Progress | None) -> tuple[Project, list[Problem]]:
    """The project of all readable files among `paths`, and what was wrong with the others."""
    gc_was_on = gc.isenabled()
    gc.disable()  # millions of short-lived nodes, none of them in cycles
    try:
        digests, problems = _digests(paths, settings)
        indexes, faults = _indexes(digests, settings, progress)
    finally:
        if gc_was_on:
            gc.enable()
    project = Project()
    surroundings = Projects()
    for path, digest in digests.items():
        index = indexes.get(digest)
        if index is not None:
            project.add(_file(surroundings, path, digest, index))
        elif digest in faults:
            line, message = faults[digest]
            problems.append(Problem(path, line, message))
    return project, problems


def _digests(paths: list[str], settings: Settings) -> tuple[dict[str, str], list[Problem]]:
    """The content hash of each readable file."""
    digests: dict[str, str] = {}
    problems: list[Problem] = []
    for path in paths:
        source = read(path, settings.stdin, settings.contents)
        if isinstance(source, Problem):
            problems.append(source)
        else:
            digests[path] = source.digest
    return digests, problems


Indexes = dict[str, dict[str, Any]]
Faults = dict[str, tuple[int, str]]


def _indexes(digests: dict[str, str], settings: Settings, progress: Progress | None) -> tuple[Indexes, Faults]:
    """Index (or fault) by content hash."""
    key, store, known = "", None, None
    if settings.cache:
        store = Store("index", KEEP_INDEXES)
        key = _key(digests)
        known = store.load(key)
    indexes: Indexes = {}
    faults: Faults = {}
    if known is not None:
        wanted = set(digests.values())
        indexes = {d: i for d, i in known[0].items() if d in wanted}
        faults = {d: f for d, f in known[1].items() if d in wanted}
    missing: dict[str, str] = {}
    for path, digest in digests.items():
        if digest not in indexes and digest not in faults:
            missing.setdefault(digest, path)
    if missing:
        _build_all(sorted((path, digest) for digest, path in missing.items()), settings, progress, indexes, faults)
        if store is not None:
            store.save(key, (indexes, faults))
    return indexes, faults


def _key(digests: dict[str, str]) -> str:
    """One cached file of indexes for each set of paths; contents are looked up inside it."""
    text = "\0".join([tool_stamp(), *digests])
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


def _build_all(
    files: list[tuple[str, str]], settings: Settings, progress: Progress | None, indexes: Indexes, faults: Faults
) -> None:
    jobs = available(settings.jobs) if len(files) >= SMALL else 1
    weights = [_size(path) for path, _ in files]
    shares = split(files, weights, jobs)

    def work(share: list[tuple[str, str]]) -> Callable[[Connection], None]:
        def run(connection: Connection) -> None:
            connection.send_bytes(marshal.dumps(_build_share(share, settings, None)))

        return run

    helpers = [Helper(work(share)) for share in shares[1:]]
    results = [_build_share(shares[0], settings, progress)]
    for helper, share in zip(helpers, shares[1:], strict=True):
        try:
            results.append(marshal.loads(helper.connection.recv_bytes()))
        except (EOFError, OSError, ValueError):
            results.append(_build_share(share, settings, progress))
        helper.close()
    for some_indexes, some_faults in results:
        indexes.update(some_indexes)
        faults.update(some_faults)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 1


def _build_share(files: list[tuple[str, str]], settings: Settings, progress: Progress | None) -> tuple[Indexes, Faults]:
    indexes: Indexes = {}
    faults: Faults = {}
    for number, (path, digest) in enumerate(files):
        if progress is not None and number % 32 == 0:
            progress("reading", number, len(files))
        source = read(path, settings.stdin, settings.contents)
        if isinstance(source, Problem):
            faults[digest] = (source.line, source.message)
            continue
        index, fault = index_of(source)
        if fault is not None:
            faults[digest] = fault
        else:
            indexes[digest] = index
    return indexes, faults


def _file(surroundings: Projects, path: str, digest: str, index: dict[str, Any]) -> File:
    where = path if path != STDIN else os.path.join(os.getcwd(), "<stdin>.py")
    root = surroundings.around(os.path.dirname(where)).import_root
    name, package = module_name(where, root)
    return File(path, name, package, root, digest, index)


def index_of(source: Source) -> tuple[dict[str, Any], tuple[int, str] | None]:
    """The index of a file, or why there is none: (line, message)."""
    try:
        return build(source.text), None
    except SyntaxError as error:
        return {}, (error.lineno or 0, f"syntax error: {error.msg}")
    except ValueError as error:
        return {}, (0, f"not Python source: {error}")
    except (RecursionError, MemoryError):
        return {}, (0, "nested too deeply for Python's parser")
