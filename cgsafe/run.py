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
from cgsafe.owners import Owners
from cgsafe.parallel import Helper, Queue, available
from cgsafe.roots import (
    NAMED,
    Candidate,
    Start,
    around_candidates,
    explicit_starts,
    instantiated_names,
    module_candidates,
    named_candidates,
    site_candidates,
    start_module,
    start_named,
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
    roots: dict[RootKey, str] = field(default_factory=dict)  # -> why it is one
    reached: set[Place] = field(default_factory=set)  # modules that other modules call
    root_count: int = 0
    statistics: dict[str, int] = field(default_factory=dict)
    faults: dict[tuple[str, int], str] = field(default_factory=dict)
    rule_failures: dict[str, str] = field(default_factory=dict)
    cuts: set[tuple[str, int]] = field(default_factory=set)

    def add_root(self, key: RootKey, reason: str) -> None:
        """Note a root; of two reasons for one place the first by text, so that the choice is the same in every run."""
        self.roots[key] = min(reason, self.roots.get(key, reason))


def analyse(project: Project, settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None) -> Outcome:
    """Walk from all roots, or recall what an earlier run over the very same contents found."""
    store = Store("runs", KEEP_RUNS) if settings.cache else None
    key = _key(project, settings, rules) if store is not None else ""
    if store is not None:
        kept = store.load(key)
        if kept is not None:
            roots, reached, statistics, cuts = kept[1:]
            return Outcome(from_plain(kept[0]), roots, set(reached), len(roots), statistics, cuts=set(cuts))
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
        roots, reached = dict(sorted(outcome.roots.items())), sorted(outcome.reached)
        store.save(key, (to_plain(outcome.reaches), roots, reached, outcome.statistics, sorted(outcome.cuts)))
    return outcome


def _key(project: Project, settings: Settings, rules: Sequence[type[Rule]]) -> str:
    digest = hashlib.blake2b(
        f"{tool_stamp()} {settings.profile} {settings.hot_path} {settings.show_accepted}".encode(), digest_size=16
    )
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
    walker = Walker(project, Reader(settings), settings.profile)
    first, second, hot = _plan(walker, settings)
    jobs = available(settings.jobs) if sum(map(len, [*first, *second, *hot])) >= SMALL else 1
    if jobs > 1:
        outcomes = _shared(walker, rules, (first, second, hot), jobs, progress)
        if outcomes is not None:
            return _merged(outcomes)
    share = Share(walker, rules)
    reached = share.walk_three(first, second, hot, progress)
    outcome = share.outcome()
    outcome.reached = reached
    return _merged([outcome])


Chunks = list[list[Candidate]]


def _plan(walker: Walker, settings: Settings) -> tuple[Chunks, Chunks, Chunks]:
    """First what nobody is seen to make, mostly whole models; then what these may reach; then what is not captured."""
    walker.keep_accepted = settings.hot_path and settings.show_accepted
    paths = sorted(walker.project.files)
    names = instantiated_names(walker)
    modules = module_candidates(walker, paths)
    top = [c for c in modules if c.name.rpartition(".")[2] not in names]
    rest = [c for c in modules if c.name.rpartition(".")[2] in names]
    named = named_candidates(walker, paths, ("captured", "compiled"))
    hot = named_candidates(walker, paths, ("hot_path",)) if settings.hot_path else []
    sites = [*around_candidates(walker, paths), *site_candidates(walker, paths)]
    return _chunks([*sites, *named, *top]), _chunks(rest), _chunks(hot)


def walk_whole(project: Project, settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None) -> Share:
    """Walk all of a project in this process, recalling nothing: for questions that need the walk itself."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 12000))
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        share = Share(Walker(project, Reader(settings), settings.profile), rules)
        share.walk_three(*_plan(share.walker, settings), progress)
        return share
    finally:
        gc.freeze()
        if gc_was_on:
            gc.enable()


def _chunks(candidates: list[Candidate]) -> list[list[Candidate]]:
    """Neighbours together: they share most of what they reach."""
    size = max(CHUNK, len(candidates) // MAX_CHUNKS + 1)
    return [candidates[i : i + size] for i in range(0, len(candidates), size)]


def _shared(
    walker: Walker,
    rules: Sequence[type[Rule]],
    chunks: tuple[Chunks, Chunks, Chunks],
    jobs: int,
    progress: Progress | None,
) -> list[Outcome] | None:
    """Walk with helpers; None where one of them died, and all is to be done again by this process alone."""
    queues = tuple(Queue(len(part), jobs == 2) for part in chunks)

    def work(connection: Connection) -> None:
        share = Share(walker, rules, False)
        share.walk_queue(chunks[0], queues[0], None, None)
        connection.send(share.reached())
        share.walk_queue(chunks[1], queues[1], set(connection.recv()), None)
        share.walk_queue(chunks[2], queues[2], None, None)
        part = share.outcome()
        connection.send(
            (to_plain(part.reaches), part.roots, part.statistics, part.faults, part.rule_failures, part.cuts)
        )

    helpers = [Helper(work) for _ in range(1, jobs)]
    mine = Share(walker, rules)
    try:
        mine.walk_queue(chunks[0], queues[0], None, progress)
        reached = set(mine.reached())
        for helper in helpers:
            reached |= set(helper.receive())
        for helper in helpers:
            helper.send(sorted(reached))
        mine.walk_queue(chunks[1], queues[1], reached, progress)
        mine.walk_queue(chunks[2], queues[2], None, progress)
        outcomes = [mine.outcome()]
        outcomes[0].reached = reached
        for helper in helpers:
            plain, roots, statistics, faults, failures, cuts = helper.receive()
            outcomes.append(Outcome(from_plain(plain), roots, set(), len(roots), statistics, faults, failures, cuts))
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


class Share:
    """A share of the roots, walked in this process."""

    def __init__(self, walker: Walker, rules: Sequence[type[Rule]], first: bool = True):
        self.walker = walker
        self.first = first  # the process that began
        self.rules = RuleSet(rules)
        self.starts: list[Start] = []
        self.known: set[Place] = set()  # modules that the roots of the first round reached, in whichever process

    def walk_all(self, chunks: list[list[Candidate]], reached: set[Place] | None, progress: Progress | None) -> None:
        self.known |= reached or set()
        for number, chunk in enumerate(chunks):
            self.walk(_left(chunk, reached or ()), number, len(chunks), progress)

    def walk_three(self, first: Chunks, second: Chunks, hot: Chunks, progress: Progress | None) -> set[Place]:
        """Walk all roots; returns the modules that those of the first round reached."""
        self.walk_all(first, None, progress)
        reached = set(self.reached())
        self.walk_all(second, reached, progress)
        self.walk_all(hot, None, progress)
        return reached

    def all_starts(self) -> list[Start]:
        """Every root that was walked, explicit captures first."""
        return [*explicit_starts(self.walker), *self.starts]

    def walk_queue(
        self, chunks: list[list[Candidate]], queue: Queue, reached: set[Place] | None, progress: Progress | None
    ) -> None:
        self.known |= reached or set()
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
                    find = start_named if candidate.kind in NAMED else start_module
                    start = find(self.walker, candidate)
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

    def owners(self) -> Owners:
        """Who makes the modules, for findings on the paths from their forwards."""
        return Owners(self.walker, self.known)

    def outcome(self) -> Outcome:
        walker = self.walker
        judge = Judge(self.rules)
        starts = self.all_starts()
        outcome = Outcome()
        for start in starts:
            outcome.add_root(root_key(start.root), start.root.reason)
        collect(starts, judge, outcome.reaches, self.owners())
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
        for key, reason in other.roots.items():
            result.add_root(key, reason)
        for name, count in other.statistics.items():
            result.statistics[name] = result.statistics.get(name, 0) + count
        result.faults.update(other.faults)
        result.cuts |= other.cuts
        result.rule_failures.update(other.rule_failures)
    result.root_count = len(result.roots)
    return result


class Reader:
    """Texts of known files, read again when the walk wants to see a function."""

    def __init__(self, settings: Settings):
        self.settings = settings

    def __call__(self, path: str) -> str:
        source = read(path, self.settings.stdin, self.settings.contents)
        return "" if isinstance(source, Problem) else source.text
