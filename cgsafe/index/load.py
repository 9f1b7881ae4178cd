"""Reads and indexes all known files: from the cache where contents are unchanged, with several processes where it pays."""

from __future__ import annotations

import gc
import hashlib
import marshal
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from cgsafe.cache import KEEP_INDEXES, Store, tool_stamp
from cgsafe.findings import Problem
from cgsafe.index.build import build
from cgsafe.index.project import File, Project, module_name
from cgsafe.parallel import Helper, Queue, available
from cgsafe.settings import Settings
from cgsafe.source import STDIN, Projects, Source, read

Progress = Callable[[str, int, int], None]
TICK = 2_000_000_000  # nanoseconds; no file system in use counts more coarsely
MANY = 60  # files that changed since their indexes were written; with more they are written anew
SMALL = 200  # files; fewer are not worth another process
SHARE = 32  # files that a process takes at a time


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
    roots: dict[str, str] = {}  # folder -> its import root
    for path, digest in digests.items():
        index = indexes.get(digest)
        if index is not None:
            project.add(_file(surroundings, roots, path, digest, index))
        elif digest in faults:
            line, message = faults[digest]
            problems.append(Problem(path, line, message))
    return project, problems


def _digests(paths: list[str], settings: Settings) -> tuple[dict[str, str], list[Problem]]:
    """The content hash of each readable file; of one that was not touched since its last reading, as it was then."""
    digests: dict[str, str] = {}
    problems: list[Problem] = []
    store = Store("stamps", KEEP_INDEXES) if settings.cache else None
    key = hashlib.blake2b(
        "\0".join([tool_stamp(), *paths]).encode(errors="surrogateescape"), digest_size=16
    ).hexdigest()
    known = (store.load(key) or {}) if store is not None else {}
    given = settings.contents or {}
    fresh = False
    for path in paths:
        stamp = _stamp(path) if store is not None and path not in given else None
        noted = known.get(path)
        if noted is not None and noted[0] == stamp:
            digests[path] = noted[1]
            continue
        source = read(path, settings.stdin, settings.contents)
        if isinstance(source, Problem):
            problems.append(source)
            continue
        digests[path] = source.digest
        if stamp is not None and stamp == _stamp(path) and _settled(stamp):
            known[path] = stamp, source.digest
            fresh = True
    if store is not None and fresh:
        store.save(key, {path: known[path] for path in paths if path in known})
    return digests, problems


def _stamp(path: str) -> tuple[int, ...] | None:
    """Changes whenever a regular file does, but for changes within the same tick of the clock."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


def _settled(stamp: tuple[int, ...]) -> bool:
    """True where the last change is so long ago that one more would be seen."""
    return time.time_ns() - max(stamp[1], stamp[2]) > TICK


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
    late: Any = None
    if known is not None:
        wanted = set(digests.values())
        indexes = {d: i for d, i in known[0].items() if d in wanted}
        faults = {d: f for d, f in known[1].items() if d in wanted}
        if len(indexes) + len(faults) < len(wanted):
            assert store is not None
            late = store.load(f"{key}-late")  # of files that changed since
            if late is not None:
                indexes.update((d, i) for d, i in late[0].items() if d in wanted)
                faults.update((d, f) for d, f in late[1].items() if d in wanted)
    missing: dict[str, str] = {}
    for path, digest in digests.items():
        if digest not in indexes and digest not in faults:
            missing.setdefault(digest, path)
    if missing:
        _build_all(sorted((path, digest) for digest, path in missing.items()), settings, progress, indexes, faults)
        if store is not None:
            first = set(known[0]) | set(known[1]) if known is not None else set()
            newer = (
                {d: i for d, i in indexes.items() if d not in first},
                {d: f for d, f in faults.items() if d not in first},
            )
            if known is not None and len(newer[0]) + len(newer[1]) <= MANY:
                store.save(f"{key}-late", newer)
            else:
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
    shares = [files[i : i + SHARE] for i in range(0, len(files), SHARE)]
    queue = Queue(len(shares))

    def work(connection: Connection) -> None:
        connection.send_bytes(marshal.dumps(_build_shares(shares, queue, settings, None)))

    helpers = [Helper(work) for _ in range(1, jobs)]
    results = [_build_shares(shares, queue, settings, progress)]
    for helper in helpers:
        with suppress(EOFError, OSError, ValueError):  # it has died; what it took is missing
            results.append(marshal.loads(helper.connection.recv_bytes()))
        helper.close()
    os.close(queue.reader)
    for some_indexes, some_faults in results:
        indexes.update(some_indexes)
        faults.update(some_faults)
    _build_share([f for f in files if f[1] not in indexes and f[1] not in faults], settings, indexes, faults)


def _build_shares(
    shares: list[list[tuple[str, str]]], queue: Queue, settings: Settings, progress: Progress | None
) -> tuple[Indexes, Faults]:
    indexes: Indexes = {}
    faults: Faults = {}
    while (number := queue.take()) is not None:
        if progress is not None:
            progress("reading", number, len(shares))
        _build_share(shares[number], settings, indexes, faults)
    return indexes, faults


def _build_share(files: list[tuple[str, str]], settings: Settings, indexes: Indexes, faults: Faults) -> None:
    for path, digest in files:
        source = read(path, settings.stdin, settings.contents)
        if isinstance(source, Problem):
            faults[digest] = (source.line, source.message)
            continue
        index, fault = index_of(source)
        if fault is not None:
            faults[digest] = fault
        else:
            indexes[digest] = index


def _file(surroundings: Projects, roots: dict[str, str], path: str, digest: str, index: dict[str, Any]) -> File:
    where = path if path != STDIN else os.path.join(os.getcwd(), "<stdin>.py")
    folder = os.path.dirname(where)
    root = roots.get(folder)
    if root is None:
        root = roots[folder] = surroundings.around(folder).import_root
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
