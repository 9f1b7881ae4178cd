"""Walks a project from its roots and collects what they reach; shared out among processes, remembered between runs."""

from __future__ import annotations

import gc
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from cgsafe.around import Around
from cgsafe.cache import tool_stamp
from cgsafe.findings import Confidence, Problem
from cgsafe.index.asked import Asked
from cgsafe.index.project import File, Project
from cgsafe.index.trail import Cell
from cgsafe.owners import Owners
from cgsafe.parallel import Helper, Queue, available
from cgsafe.recall import UNSURE, Closures, Memory, Part, Recalled, Record, Walked, answer_of, digest, merged, to_row
from cgsafe.roots import (
    NAMED,
    Candidate,
    Start,
    around_candidates,
    around_names,
    called_as,
    explicit_starts,
    instantiated_names,
    marked_starts,
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
from cgsafe.trace import Judge, Reaches, RootKey, capture_sites, found_from, has_sites, leading
from cgsafe.walk.defs import Text
from cgsafe.walk.walker import Node, Walker

Progress = Callable[[str, int, int], None]
CHUNK = 12  # roots that a process takes at a time: neighbours share much of what they reach
MAX_CHUNKS = 20000
REMEMBER = 15000  # functions walked; where fewer were, the memory is left as it is
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
    walked: Walked = field(default_factory=Walked)  # root by root

    def add_root(self, key: RootKey, reason: str) -> None:
        """Note a root; of two reasons for one place the first by text, so that the choice is the same in every run."""
        self.roots[key] = min(reason, self.roots.get(key, reason))


def analyse(project: Project, settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None) -> Outcome:
    """Walk from all roots, or recall what an earlier run found from those that no change since then concerns."""
    memory = Memory(_key(project, settings, rules)) if settings.cache else None
    lines = Lines(settings)
    around = Around(lambda: Walker(project, Reader(settings), settings.profile))
    recalled = memory.recall(project, lines, around) if memory is not None and memory.load() else Recalled()
    if not recalled.changed:
        assert memory is not None
        return _unchanged(project, settings, recalled, memory)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 12000))
    gc_was_on = gc.isenabled()
    gc.disable()  # the graph of the walk stays alive to the end, and there is nothing to collect in it
    try:
        outcome, walked, plan, walker = _analyse(project, settings, rules, progress, recalled)
        enough = not recalled.records or walker.statistics["functions"] > REMEMBER or len(walked) > 1
        if memory is not None and enough and not outcome.faults and not outcome.rule_failures:
            if recalled.records:
                walked.append(memory.kept(recalled))
            more = {"statistics": outcome.statistics, "cuts": sorted(outcome.cuts)}
            around = Around(lambda: walker)
            memory.save(project, walked, plan, lines, _watched(walker, plan), more, walker.reader_of, around)
    finally:
        gc.freeze()  # or the first collection after this would look through all of it
        if gc_was_on:
            gc.enable()
    return outcome


def _unchanged(project: Project, settings: Settings, recalled: Recalled, memory: Memory) -> Outcome:
    """The outcome of an earlier run over the very same contents."""
    assert memory.head is not None
    records = list(recalled.records.values())
    first = set(recalled.plan[0])
    reached = {place for r in records if r.candidate in first for place in r.reached}
    outcome = _outcome(records, project, _Eager(project, settings, reached, True))
    outcome.reached = reached
    outcome.statistics = dict(memory.head["statistics"])
    outcome.cuts = set(memory.head["cuts"])
    return outcome


def _key(project: Project, settings: Settings, rules: Sequence[type[Rule]]) -> str:
    """One memory for each kind of check of each set of import roots; contents are looked up inside it."""
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
    for path in sorted({os.path.dirname(path) for path in project.files}):
        digest.update(path.encode(errors="surrogateescape"))
    return digest.hexdigest()


class _Eager:
    """Who runs the module of a start outside of graphs: as recalled, where nothing has changed, else worked out."""

    def __init__(self, project: Project, settings: Settings, reached: set[Place], recalled: bool):
        self.project, self.settings, self.reached, self.recalled = project, settings, reached, recalled
        self.walker: Walker | None = None
        self.owners: Owners | None = None

    def __call__(self, part: Part) -> str:
        if part.eager is not None and (self.recalled or part.fresh):
            return part.eager
        assert part.module is not None
        if self.owners is None:
            self.walker = self.walker or Walker(self.project, Reader(self.settings), self.settings.profile)
            self.owners = Owners(self.walker, self.reached)
        file = self.project.files.get(part.module[0])
        if file is None or part.module[1] not in file.raw["classes"]:
            return ""
        return self.owners.keep_out(self.owners.walker.definitions.class_(file, part.module[1]))


def _outcome(records: Sequence[Record], project: Project, eager: _Eager) -> Outcome:
    outcome = Outcome()
    files = project.files
    shown = {path for path, file in files.items() if file.reported}
    parts = [part for record in records for part in record.parts]
    wanted = None if len(shown) == len(files) else (lambda row: row[1] in shown or row[4][2] in shown)
    outcome.reaches = merged(parts, wanted, eager)
    for part in parts:
        if part.root is not None:
            kind, reason, path, line, function = part.root
            outcome.add_root((path, line, function, kind), reason)
    outcome.root_count = len(outcome.roots)
    return outcome


Plan = tuple[list[Candidate], list[Candidate], list[Candidate]]


def _analyse(
    project: Project,
    settings: Settings,
    rules: Sequence[type[Rule]],
    progress: Progress | None,
    recalled: Recalled,
) -> tuple[Outcome, list[Walked], Plan, Walker]:
    walker = Walker(project, Reader(settings), settings.profile)
    walker.keep_accepted = settings.hot_path and settings.show_accepted
    plan: Plan = recalled.plan or _plan(walker, settings)
    known = recalled.records
    todo = [[c for c in part if c not in known] for part in plan]
    reached = {place for c in plan[0] if c in known for place in known[c].reached}
    rounds = (_chunks(todo[0]), _chunks(todo[1]), _chunks(todo[2]))
    left = len(todo[0]) + len(_left(todo[1], reached)) + len(todo[2])
    jobs = available(settings.jobs) if left >= SMALL else 1
    notes = settings.cache
    outcomes = _shared(walker, rules, rounds, jobs, progress, reached, notes) if jobs > 1 else None
    if outcomes is None:
        share = Share(walker, rules)
        reached |= share.walk_three(*rounds, progress, reached)
        outcomes = [share.outcome(notes)]
        outcomes[0].reached = reached
    reached = outcomes[0].reached
    walked = [o.walked for o in outcomes]
    used = [known[c] for c in (*plan[0], *_left(plan[1], reached), *plan[2]) if c in known]
    recalled.records = {r.candidate: r for r in used}
    eager = _Eager(project, settings, reached, False)
    eager.walker = walker
    outcome = _outcome([*(r for w in walked for r in w.records), *used], project, eager)
    outcome.reached = reached
    for other in outcomes:
        for name, count in other.statistics.items():
            outcome.statistics[name] = outcome.statistics.get(name, 0) + count
        outcome.faults.update(other.faults)
        outcome.cuts |= other.cuts
        outcome.rule_failures.update(other.rule_failures)
    return outcome, walked, plan, walker


Chunks = list[list[Candidate]]


def _plan(walker: Walker, settings: Settings) -> Plan:
    """First what nobody is seen to make, mostly whole models; then what these may reach; then what is not captured."""
    paths = sorted(walker.project.files)
    names = instantiated_names(walker)
    modules = module_candidates(walker, paths)
    top = [c for c in modules if c.name.rpartition(".")[2] not in names]
    rest = [c for c in modules if c.name.rpartition(".")[2] in names]
    named = named_candidates(walker, paths, ("captured", "compiled"))
    hot = named_candidates(walker, paths, ("hot_path",)) if settings.hot_path else []
    sites = [*around_candidates(walker, paths), *site_candidates(walker, paths)]
    return [*sites, *named, *top], rest, hot


def _watched(walker: Walker, plan: Plan) -> frozenset[str]:
    """Names whose importers may be candidates for that: see `roots.site_candidates` and `roots.around_candidates`."""
    names = {"graph", "make_graphed_callables"}
    for candidate in plan[0]:
        if candidate.kind == "site" and candidate.name:
            names.add(called_as(walker.project.files[candidate.path], candidate.name))
    return frozenset({*names, *around_names(walker.project.files.values())})


def walk_whole(project: Project, settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None) -> Share:
    """Walk all of a project in this process, recalling nothing: for questions that need the walk itself."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 12000))
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        share = Share(Walker(project, Reader(settings), settings.profile), rules)
        share.walker.keep_accepted = settings.hot_path and settings.show_accepted
        first, second, hot = _plan(share.walker, settings)
        share.walk_three(_chunks(first), _chunks(second), _chunks(hot), progress, set())
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
    known: set[Place],
    notes: bool,
) -> list[Outcome] | None:
    """Walk with helpers; None where one of them died, and all is to be done again by this process alone.

    `known`: modules that recalled roots of the first round reach.
    """
    queues = tuple(Queue(len(part), jobs == 2) for part in chunks)

    def work(connection: Connection) -> None:
        share = Share(walker, rules, False)
        share.walk_queue(chunks[0], queues[0], None, None)
        connection.send(share.reached())
        share.walk_queue(chunks[1], queues[1], set(connection.recv()), None)
        share.walk_queue(chunks[2], queues[2], None, None)
        part = share.outcome(notes)
        connection.send((part.walked, part.statistics, part.faults, part.rule_failures, part.cuts))

    helpers = [Helper(work) for _ in range(1, jobs)]
    mine = Share(walker, rules)
    try:
        mine.walk_queue(chunks[0], queues[0], None, progress)
        reached = known | set(mine.reached())
        for helper in helpers:
            reached |= set(helper.receive())
        for helper in helpers:
            helper.send(sorted(reached))
        mine.walk_queue(chunks[1], queues[1], reached, progress)
        mine.walk_queue(chunks[2], queues[2], None, progress)
        outcomes = [mine.outcome(notes)]
        outcomes[0].reached = reached
        for helper in helpers:
            walked, statistics, faults, failures, cuts = helper.receive()
            part = Outcome(statistics=statistics, faults=faults, rule_failures=failures, cuts=cuts)
            part.walked = walked
            outcomes.append(part)
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
        self.walked: dict[Candidate, tuple[Cell, Start | None]] = {}
        self.leads: set[Node] = set()  # nodes from which calls lead to something
        self.known: set[Place] = set()  # modules that the roots of the first round reached, in whichever process

    def walk_all(self, chunks: list[list[Candidate]], reached: set[Place] | None, progress: Progress | None) -> None:
        self.known |= reached or set()
        for number, chunk in enumerate(chunks):
            self.walk(_left(chunk, reached or ()), number, len(chunks), progress)

    def walk_three(
        self, first: Chunks, second: Chunks, hot: Chunks, progress: Progress | None, known: set[Place]
    ) -> set[Place]:
        """Walk all roots; returns the modules that those of the first round reached, `known` ones included."""
        self.walk_all(first, None, progress)
        reached = known | set(self.reached())
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
            cell, start = Cell(), None
            try:
                with cell:
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
            self.walked[candidate] = cell, start

    def reached(self) -> list[Place]:
        return sorted((d.file.path, d.qualname) for d in self.walker.reached)

    def owners(self) -> Owners:
        """Who makes the modules, for findings on the paths from their forwards."""
        return Owners(self.walker, self.known)

    def outcome(self, notes: bool) -> Outcome:
        """What was found, root by root; with `notes` on what it rests on."""
        walker = self.walker
        judge = Judge(self.rules)
        owners = self.owners()
        marked = marked_starts(walker)
        self.leads = leading([*(start for start, _ in marked.values()), *self.starts], judge)
        explicit = {leaf: self._part(start, judge, owners) for leaf, (start, _) in marked.items()}
        sites = {node: _sites_part(node, judge) for node in walker.all_nodes() if has_sites(node)}
        outcome = Outcome()
        if notes:
            self._note(outcome.walked, marked, explicit, sites, judge, owners)
        else:
            parts = [*explicit.values(), *(self._part(s, judge, owners) for s in self.starts), *sites.values()]
            outcome.walked.records.append(Record(Candidate("", "", ""), parts, ()))
        outcome.statistics = dict(walker.statistics)
        outcome.faults = dict(walker.faults)
        outcome.cuts = set(walker.cuts)
        outcome.rule_failures = dict(self.rules.failures)
        return outcome

    def _note(
        self,
        into: Walked,
        marked: dict[Any, tuple[Start, Cell]],
        explicit: dict[Any, Part],
        sites: dict[Node, Part],
        judge: Judge,
        owners: Owners,
    ) -> None:
        """Record by record, what was found and what it rests on."""
        closures = Closures()
        leaves = closures.leaves
        # Those that lead somewhere first: so the sets of records, of which there are many, are small numbers.
        walked = sorted(
            self.walked.items(), key=lambda item: item[1][1] is None and item[0].kind not in ("site", "around")
        )
        cells = closures.spread({cell: 1 << n for n, (_, (cell, _)) in enumerate(walked)}, sites)
        reached = {leaf: records for leaf, records in leaves.items() if leaf[0] == "reached"}
        given: dict[Any, int] = {}
        while more := {leaf: leaves[leaf] for leaf in marked if leaves.get(leaf, 0) != given.get(leaf, 0)}:
            given.update(more)
            for cell, records in closures.spread({marked[leaf][1]: r for leaf, r in more.items()}, sites).items():
                cells[cell] = cells.get(cell, 0) | records
        unsure = leaves.pop(UNSURE, 0)
        for number, (candidate, (_, start)) in enumerate(walked):
            parts = [self._part(start, judge, owners)] if start is not None else []
            into.records.append(Record(candidate, parts, (), not unsure >> number & 1))
        for part, records in [
            *((part, leaves.get(leaf, 0)) for leaf, part in explicit.items()),
            *((part, cells.get(node, 0)) for node, part in sites.items()),
        ]:
            for number in _numbers(records):
                into.records[number].parts.append(part)
        for (_, path, name), records in reached.items():
            for number in _numbers(records):
                into.records[number].reached += ((path, name),)
        by_path: dict[str, list[Any]] = {}
        for leaf, records in leaves.items():
            if leaf[0] in ("w", "m"):
                into.leaves[leaf] = b"", records
            elif leaf[0] not in ("start", "reached"):
                by_path.setdefault(leaf[1], []).append(leaf)
        answers = self.walker.answers
        for path, some in by_path.items():
            file = self.walker.project.files.get(path)
            asked = Asked(file.raw, self.walker.lines(file)) if file is not None else None
            for leaf in some:
                answer = answers[leaf] if leaf in answers else answer_of(leaf, asked)
                into.leaves[leaf] = digest(answer), leaves[leaf]

    def _part(self, start: Start, judge: Judge, owners: Owners) -> Part:
        found = found_from(start, judge, self.leads)
        root, module, eager = start.root, None, ""
        if start.module is not None:
            module = (start.module.file.path, start.module.qualname)
            if any(reach.confidence > Confidence.LOW for reach in found.values()):
                eager = owners.keep_out(start.module)
        rows = tuple(to_row(spot, reach) for spot, reach in found.items())
        return Part((root.kind, root.reason, root.path, root.line, root.function), module, eager, rows, True)


def _numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _sites_part(node: Node, judge: Judge) -> Part:
    found: Reaches = {}
    capture_sites([node], judge, found)
    return Part(None, None, "", tuple(to_row(s, reach) for s, ways in found.items() for reach in ways.values()), True)


class Reader:
    """Texts of known files, read again when the walk wants to see a function."""

    def __init__(self, settings: Settings):
        self.settings = settings

    def __call__(self, path: str) -> str:
        source = read(path, self.settings.stdin, self.settings.contents)
        return "" if isinstance(source, Problem) else source.text


class Lines:
    """The lines of known files."""

    def __init__(self, settings: Settings):
        self._read = Reader(settings)

    def __call__(self, file: File) -> list[str]:
        return Text(self._read(file.path)).lines
