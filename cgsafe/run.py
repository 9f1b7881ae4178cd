"""Walks a project from its roots and collects what they reach; shared out among processes, remembered between runs."""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from cgsafe.cache import KEEP_RUNS, Store, tool_stamp
from cgsafe.findings import Problem
from cgsafe.index.project import Project
from cgsafe.parallel import Helper, Queue, available
from cgsafe.roots import (
    Candidate,
    Start,
    around_candidates,
    explicit_starts,
    instantiated_names,
    module_candidates,
    site_candidates,
    start_module,
    walk_site,
)
from cgsafe.rule import Rule, RuleSet
from cgsafe.settings import Settings
from cgsafe.sites import read_sites
from cgsafe.source import read
from cgsafe.trace import Judge, Reaches, RootKey, add, capture_sites, collect, from_plain, root_key, to_plain
from cgsafe.walk.walker import Walker

Progress = Callable[[str, int, int], None]
CHUNK = 12  # roots that a process takes at a time: neighbours share much of what they reach
MAX_CHUNKS = 20000
SMALL = 60  # roots; fewer are not worth another process
Place = tuple[str, str]  # path and qualified name of a class


@dataclass
class Outcome:
    """What walking a project, or a share of its roots, gave."""

    reaches: Reaches = field(default_factory=dict)
    roots: set[RootKey] = field(default_factory=set)
    root_count: int = 0
    statistics: dict[str, int] = field(default_factory=dict)
    faults: dict[tuple[str, int], str] = field(default_factory=dict)
    rule_failures: dict[str, str] = field(default_factory=dict)
    cuts: set[tuple[str, int]] = field(default_factory=set)


def analyse(project: Project, settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None) -> Outcome:
    """Walk from all roots, or recall what an earlier run over the very same contents found."""
    store = Store("runs", KEEP_RUNS) if settings.cache else None
    key = _key(project, rules) if store is not None else ""
    if store is not None:
        kept = store.load(key)
        if kept is not None:
            return Outcome(from_plain(kept[0]), set(), kept[1], kept[2], cuts=set(kept[3]))
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 12000))
    gc_was_on = gc.isenabled()
    gc.disable()  # the graph of the walk stays alive to the end, and there is nothing to collect in it
    try:
        outcome = _analyse(project, settings, rules, progress)
    finally:
        gc.freeze()  # or the first collection after this would look through all of it
        if gc_was_on:
            gc.enable()
    if store is not None and not outcome.faults and not outcome.rule_failures:
        store.save(key, (to_plain(outcome.reaches), outcome.root_count, outcome.statistics, sorted(outcome.cuts)))
    return outcome


def _key(project: Project, rules: Sequence[type[Rule]]) -> str:
    digest = hashlib.blake2b(tool_stamp().encode(), digest_size=16)
    for rule in sorted(rules, key=lambda r: r.code):
        digest.update(f"{rule.code} {rule.__module__}".encode())
        try:
            source = inspect.getsourcefile(rule)
            status = os.stat(source) if source else None
            digest.update(f"{source} {status and (status.st_mtime_ns, status.st_size)}".encode())
        except (OSError, TypeError):
            digest.update(b"?")
    for path in sorted(project.files):
        digest.update(path.encode(errors="surrogateescape"))
        digest.update(project.files[path].digest.encode())
    return digest.hexdigest()


def _analyse(project: Project, settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None) -> Outcome:
    walker = Walker(project, _Reader(settings))
    paths = sorted(project.files)
    names = instantiated_names(walker)
    sites = site_candidates(walker, paths)
    around = around_candidates(walker, paths)
    modules = module_candidates(walker, paths)
    # First what nobody is seen to make, mostly whole models; then what these did not reach.
    top = [c for c in modules if c.name.rpartition(".")[2] not in names]
    rest = [c for c in modules if c.name.rpartition(".")[2] in names]
    jobs = available(settings.jobs) if len(modules) >= SMALL else 1
    first, second = _chunks([*around, *sites, *top]), _chunks(rest)
    if jobs > 1:
        outcomes = _shared(walker, rules, (first, second), jobs, progress)
        if outcomes is not None:
            return _merged(outcomes)
    share = _Share(walker, rules)
    share.walk_all(first, None, progress)
    share.walk_all(second, set(share.reached()), progress)
    return _merged([share.outcome()])


def _chunks(candidates: list[Candidate]) -> list[list[Candidate]]:
    """Neighbours together: they share most of what they reach."""
    size = max(CHUNK, len(candidates) // MAX_CHUNKS + 1)
    return [candidates[i : i + size] for i in range(0, len(candidates), size)]


def _shared(
    walker: Walker,
    rules: Sequence[type[Rule]],
    chunks: tuple[list[list[Candidate]], list[list[Candidate]]],
    jobs: int,
    progress: Progress | None,
) -> list[Outcome] | None:
    """Walk with helpers; None where one of them died, and all is to be done again by this process alone."""
    queues = (Queue(len(chunks[0]), jobs == 2), Queue(len(chunks[1]), jobs == 2))

    def work(connection: Connection) -> None:
        share = _Share(walker, rules, False)
        share.walk_queue(chunks[0], queues[0], None, None)
        connection.send(share.reached())
        share.walk_queue(chunks[1], queues[1], set(connection.recv()), None)
        part = share.outcome()
        connection.send(
            (to_plain(part.reaches), part.roots, part.statistics, part.faults, part.rule_failures, part.cuts)
        )

    helpers = [Helper(work) for _ in range(1, jobs)]
    mine = _Share(walker, rules)
    try:
        mine.walk_queue(chunks[0], queues[0], None, progress)
        reached = set(mine.reached())
        for helper in helpers:
            reached |= set(helper.receive())
        for helper in helpers:
            helper.send(sorted(reached))
        mine.walk_queue(chunks[1], queues[1], reached, progress)
        outcomes = [mine.outcome()]
        for helper in helpers:
            plain, roots, statistics, faults, failures, cuts = helper.receive()
            outcomes.append(Outcome(from_plain(plain), roots, len(roots), statistics, faults, failures, cuts))
        return outcomes
    except EOFError:
        return None
    finally:
        for helper in helpers:
            helper.close()
        for queue in queues:
            os.close(queue.reader)


def _left(candidates: list[Candidate], reached: Collection[Place]) -> list[Candidate]:
    return [c for c in candidates if (c.path, c.name) not in reached] if reached else candidates


class _Share:
    """A share of the roots, walked in this process."""

    def __init__(self, walker: Walker, rules: Sequence[type[Rule]], first: bool = True):
        self.walker = walker
        self.first = first  # the process that began
        self.rules = RuleSet(rules)
        self.starts: list[Start] = []

    def walk_all(self, chunks: list[list[Candidate]], reached: set[Place] | None, progress: Progress | None) -> None:
        for number, chunk in enumerate(chunks):
            self.walk(_left(chunk, reached or ()), number, len(chunks), progress)

    def walk_queue(
        self, chunks: list[list[Candidate]], queue: Queue, reached: set[Place] | None, progress: Progress | None
    ) -> None:
        taken = 0
        while (number := queue.take()) is not None:
            if queue.two_ended:
                # Two processes work towards each other: what neighbours share is then walked once.
                number = taken if self.first else len(chunks) - 1 - taken
            self.walk(_left(chunks[number], reached or ()), number, len(chunks), progress)
            taken += 1

    def walk(self, candidates: list[Candidate], done: int, total: int, progress: Progress | None) -> None:
        if progress is not None:
            progress("walking", done, total)
        for candidate in candidates:
            try:
                if candidate.kind == "site":
                    walk_site(self.walker, candidate)
                elif candidate.kind == "around":
                    read_sites(self.walker, candidate.path)
                else:
                    start = start_module(self.walker, candidate)
                    if start is not None:
                        self.starts.append(start)
            except Exception as error:
                if self.walker.tables.debug:
                    raise
                self.walker.faults.setdefault(
                    (candidate.path, 0), f"internal error while walking: {type(error).__name__}: {error}"
                )

    def reached(self) -> list[Place]:
        return sorted((d.file.path, d.qualname) for d in self.walker.reached)

    def outcome(self) -> Outcome:
        walker = self.walker
        judge = Judge(self.rules)
        starts = [*explicit_starts(walker), *self.starts]
        outcome = Outcome(roots={root_key(s.root) for s in starts})
        collect(starts, judge, outcome.reaches)
        capture_sites(walker.all_nodes(), judge, outcome.reaches)
        outcome.statistics = dict(walker.statistics)
        outcome.faults = dict(walker.faults)
        outcome.cuts = set(walker.cuts)
        outcome.rule_failures = dict(self.rules.failures)
        return outcome


def _merged(outcomes: list[Outcome]) -> Outcome:
    result = outcomes[0]
    for other in outcomes[1:]:
        for spot, ways in other.reaches.items():
            for reach in ways.values():
                add(result.reaches, spot, reach)
        result.roots |= other.roots
        for name, count in other.statistics.items():
            result.statistics[name] = result.statistics.get(name, 0) + count
        result.faults.update(other.faults)
        result.cuts |= other.cuts
        result.rule_failures.update(other.rule_failures)
    result.root_count = len(result.roots)
    return result


class _Reader:
    """Texts of known files, read again when the walk wants to see a function."""

    def __init__(self, settings: Settings):
        self.settings = settings

    def __call__(self, path: str) -> str:
        source = read(path, self.settings.stdin)
        return "" if isinstance(source, Problem) else source.text
