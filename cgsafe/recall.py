"""What earlier runs found from each root, and what that rests on: a run walks only the roots that a change concerns.

While the walk goes on, whatever is looked at is noted (`cgsafe.index.trail`). What a candidate for a root rests on is all
that can be reached from its cell: leaves, each of which has an answer (the text of a function, what a name is bound to,
whether a file rebinds a name ...). A record is good while all its leaves have the answers they had. To see that, only
files that changed need be looked into: the memory is kept file by file, with who rests on which leaf.

A record does not move with its lines: where functions moved as a whole, so do the places in it.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from cgsafe.around import Around
from cgsafe.cache import Store
from cgsafe.findings import Edit, Fix, Root, Severity, Step
from cgsafe.index.asked import ASKED, Asked, binding, class_body, reads_pattern
from cgsafe.index.project import File, Project
from cgsafe.roots import Candidate
from cgsafe.trace import Reach, Reaches, Spot, add, lowered

Place = tuple[str, str]
Row = tuple[Any, ...]
KEEP = 24  # memories of projects; the oldest go first
UNSURE = ("unsure",)


@dataclass
class Part:
    """What one start reaches, as plain rows, before it is asked who runs the module (see `cgsafe.owners`)."""

    root: tuple[Any, ...] | None  # None: findings about capture sites, which need no root
    module: Place | None
    eager: str | None  # why the module is no part of what is captured, "" for most; None: that is to be worked out
    rows: tuple[Row, ...]
    fresh: bool = False  # of this run

    def plain(self) -> tuple[Any, ...]:
        return (self.root, self.module, self.eager, self.rows)


@dataclass
class Record:
    """What walking from one candidate gave."""

    candidate: Candidate
    parts: list[Part]
    reached: tuple[Place, ...]  # modules that it calls
    sure: bool = True  # False: not to be recalled


@dataclass
class Walked:
    """The records of one process, and on which leaves they rest: leaf -> (digest of the answer, records as bits)."""

    records: list[Record] = field(default_factory=list)
    leaves: dict[Any, tuple[bytes, int]] = field(default_factory=dict)


# -- rows ----------------------------------------------------------------------------------------------------------------


def to_row(spot: Spot, reach: Reach) -> Row:
    fix = None
    if reach.fix is not None:
        edits = tuple(tuple(vars(e).values()) for e in reach.fix.edits)
        fix = (reach.fix.description, reach.fix.safety, edits, reach.fix.transform)
    root = reach.root
    return (
        *spot,
        (root.kind, root.reason, root.path, root.line, root.function),
        tuple((s.path, s.line, s.function, s.note) for s in reach.steps),
        reach.confidence,
        reach.message,
        reach.severity.value,
        fix,
        reach.end,
        reach.name,
        reach.function,
        reach.source,
        reach.group,
        reach.region,
        reach.accepted,
    )


def from_row(row: Row) -> tuple[Spot, Reach]:
    fix = row[9]
    return Spot(*row[:4]), Reach(
        Root(*row[4]),
        tuple(Step(*s) for s in row[5]),
        row[6],
        row[7],
        Severity(row[8]),
        Fix(fix[0], fix[1], tuple(Edit(*e) for e in fix[2]), fix[3]) if fix is not None else None,
        *row[10:],
    )


def merged(parts: Iterable[Part], wanted: Callable[[Row], bool] | None, eager: Callable[[Part], str]) -> Reaches:
    """What all starts reach; only rows that are `wanted`, where that is given."""
    reaches: Reaches = {}
    seen: set[int] = set()
    for part in parts:
        if id(part.rows) in seen and part.module is None:
            continue  # a capture that several roots come by
        seen.add(id(part.rows))
        rows = part.rows if wanted is None else [row for row in part.rows if wanted(row)]
        if not rows:
            continue
        found = dict(map(from_row, rows))
        if part.module is not None and any(row[6] > 1 for row in part.rows):
            lowered(found.values(), eager(part))
        for spot, reach in found.items():
            add(reaches, spot, reach)
    return reaches


# -- leaves --------------------------------------------------------------------------------------------------------------


def digest(answer: Any) -> bytes:
    return hashlib.blake2b(repr(answer).encode(errors="surrogatepass"), digest_size=8).digest()


def answer_of(leaf: Any, file: Asked | None) -> Any:
    """The answer to a question about one file, as it is now."""
    if file is None:
        return None
    kind = leaf[0]
    if kind == "f":
        return file.function(leaf[2])
    if kind == "r":
        return binding(file, leaf[2])
    if kind == "c":
        return class_body(file, leaf[2])
    if kind == "q":
        return ASKED[leaf[2]](file, *leaf[3:])
    return "\n".join(file.lines)


def contributions(file: Asked, wanted: Collection[Any]) -> dict[Any, Any]:
    """What a file adds to the answers to the `wanted` questions about all files: question -> its part of the answer."""
    index = file.index
    found: dict[Any, list[Any]] = {}

    def note(question: Any, row: Any) -> None:
        if question in wanted:
            found.setdefault(question, []).append(row() if callable(row) else row)

    def decoration(qualified: str, decorator: str, first: int, line: int) -> None:
        parts = decorator.split(".")
        known = tuple(part in index["imports"] for part in parts)
        note(("w", "decorated", parts[-1]), lambda: (qualified, decorator, file.span(first, line), known))

    for local, (module, attribute, level) in index["imports"].items():
        if attribute is not None:
            note(("w", "imported", attribute), (local, module, level))
    for qualified, info in index["classes"].items():
        for base in info["bases"]:
            note(("w", "subclasses", base.partition("[")[0].rpartition(".")[2]), qualified)
        for decorator in info["decorators"]:
            decoration(qualified, decorator, *info["lines"][:2])
    for qualified, entry in index["functions"].items():
        if entry[4] and not entry[3]:
            for decorator in entry[4]:
                decoration(qualified, decorator, entry[0], entry[1])
    lines = index["triggers"].get("op", ())
    if lines and ("w", "ops") in wanted:
        decorated = [(q, e[4], file.span(e[0], e[1])) for q, e in index["functions"].items() if e[4] and not e[3]]
        found[("w", "ops")] = [decorated, [file.span(line, line + 25) for line in lines]]
    return found


def module_names(module: str) -> set[str]:
    """The names by which somebody may have asked for a module, or for a package above it."""
    found = set()
    while module:
        name = module
        while name:
            found.add(name)
            name = name.partition(".")[2]
        module = module.rpartition(".")[0]
    return found


class Closures:
    """Works out who rests on what. Sets of records are the bits of an integer."""

    def __init__(self) -> None:
        self.leaves: dict[Any, int] = {}  # leaf -> records

    def spread(self, seeds: dict[Any, int], wanted: Iterable[Any]) -> dict[Any, int]:
        """Hand the records of some cells down to all that these rest on; returns those of the `wanted` cells."""
        numbers: dict[Any, int] = {}
        below: list[list[int]] = []
        plain: list[list[Any]] = []
        order: list[int] = []
        for seed in seeds:
            if seed not in numbers:
                self._visit(seed, numbers, below, plain, order)
        bits = [0] * len(below)
        for seed, records in seeds.items():
            bits[numbers[seed]] |= records
        order.reverse()  # callers first, but for circles
        changed = True
        while changed:
            changed = False
            done = bytearray(len(below))
            for at in order:
                done[at] = 1
                records = bits[at]
                for cell in below[at]:
                    before = bits[cell]
                    after = before | records
                    if after != before:
                        bits[cell] = after
                        if done[cell]:
                            changed = True
        leaves = self.leaves
        for at, some in enumerate(plain):
            records = bits[at]
            for leaf in some:
                leaves[leaf] = leaves.get(leaf, 0) | records
        return {cell: bits[numbers[cell]] for cell in wanted if cell in numbers}

    @staticmethod
    def _visit(
        start: Any, numbers: dict[Any, int], below: list[list[int]], plain: list[list[Any]], order: list[int]
    ) -> None:
        stack: list[tuple[int, Any]] = []

        def enter(cell: Any) -> bool:
            """Number a cell; True where it has others below it, which come next."""
            number = numbers[cell] = len(below)
            below.append([])
            deps = cell.deps
            leaves = [d for d in deps if d.__class__ is tuple]
            plain.append(leaves)
            if len(leaves) == len(deps):
                order.append(number)
                return False
            stack.append((number, iter([d for d in deps if d.__class__ is not tuple])))
            return True

        enter(start)
        while stack:
            number, rest = stack[-1]
            mine = below[number]
            for cell in rest:
                known = numbers.get(cell)
                if known is None:
                    mine.append(len(below))
                    if enter(cell):
                        break
                else:
                    mine.append(known)
            else:
                order.append(number)
                stack.pop()


# -- the memory ------------------------------------------------------------------------------------------------------------


@dataclass
class Recalled:
    """What of an earlier run is still good."""

    records: dict[Candidate, Record] = field(default_factory=dict)
    plan: Any = None  # the candidates, where they are still the same
    changed: bool = True  # some file is not as it was


class Memory:
    """The outcomes of earlier runs over one set of paths, with one set of rules and settings."""

    def __init__(self, key: str):
        self.store = Store("records", KEEP)
        self.key = key
        self.head: dict[str, Any] | None = None
        self.blobs = b""

    def load(self) -> bool:
        """True where there is something to recall."""
        if self.store.folder is None:
            return False
        path = Path(self.store.folder) / f"{self.key}.marshal"
        try:
            with open(path, "rb") as file:
                size = int.from_bytes(file.read(8), "little")
                self.head = marshal.loads(file.read(size))
                self.start = 8 + size
            self.path = path
            os.utime(path)
        except (OSError, ValueError, EOFError, TypeError):
            self.head = None
        return self.head is not None and self.head.get("key") == self.key

    def shard(self, path: str) -> dict[str, Any] | None:
        """What is remembered about a file; None where it was not known."""
        assert self.head is not None
        place = self.head["shards"].get(path)
        if place is None:
            return None
        try:
            with open(self.path, "rb") as file:
                file.seek(self.start + place[0])
                found: dict[str, Any] = marshal.loads(file.read(place[1]))
                return found
        except (OSError, ValueError, EOFError, TypeError):
            return None

    def recall(self, project: Project, lines: Callable[[File], list[str]], around: Around) -> Recalled:
        """The records that still hold for a project as it is now."""
        assert self.head is not None
        head = self.head
        files: dict[str, tuple[Any, ...]] = head["files"]
        now = {path: (f.digest, f.module, f.package, f.import_root) for path, f in project.files.items()}
        changed = sorted(path for path in {*files, *now} if files.get(path) != now.get(path))
        if len(changed) > max(40, len(now) // 8):
            return Recalled()
        records = [Record(Candidate(*row[0]), [Part(*part) for part in row[1]], row[2]) for row in head["records"]]
        plan: Any = tuple([Candidate(*c) for c in part] for part in head["plan"])
        if not changed:
            return Recalled({r.candidate: r for r in records}, plan, False)
        star = self.shard("")
        if star is None:
            return Recalled()
        bad = sum(1 << number for number in head["unsure"])
        moves: dict[str, Moves | None] = {}
        declares = False
        for path in changed:
            old = self.shard(path)
            if path in files and old is None:
                return Recalled()
            file = project.files.get(path)
            if file is not None and path in files and files[path][1:] != now[path][1:]:
                return Recalled()  # another module now: what lies around it has changed
            asked = Asked(file.raw, lines(file)) if file is not None else None
            bad |= self._bad_of(path, old or {}, asked, star)
            if path not in files or file is None:
                for name in module_names(file.module if file is not None else files[path][1]):
                    bad |= star["leaves"].get(("m", name), 0)
            if plan is not None and (
                old is None or asked is None or old["print"] != plan_print(asked, file.digest, head["watched"])  # type: ignore[union-attr]
            ):
                plan = None
            said = around.print(file, asked.lines, head["tails"]) if file is not None and asked is not None else None
            declares = declares or path not in files or file is None or (old or {}).get("said") != digest(said)
            moves[path] = Moves(old, asked)
        if declares:
            bad |= self._bad_by_declarations(around)
        good = [r for n, r in enumerate(records) if not bad >> n & 1 and moved(r, moves)]
        return Recalled({r.candidate: r for r in good}, plan)

    def _bad_of(self, path: str, old: dict[str, Any], asked: Asked | None, star: dict[str, Any]) -> int:
        """The records that no longer hold, because of one file."""
        bad = 0
        marked = old.get("marked") or (asked is not None and asked.index.get("marks") is not None)
        for leaf, (answer, records) in old.get("leaves", {}).items():
            if records & ~bad and (marked or digest(answer_of((leaf[0], path, *leaf[1:]), asked)) != answer):
                bad |= records
        before = old.get("adds", {})
        after = {k: digest(v) for k, v in contributions(asked, star["leaves"]).items()} if asked else {}
        for question in before.keys() | after.keys():
            if before.get(question) != after.get(question):
                bad |= star["leaves"].get(question, 0)
        for (name, but), (witness, records) in star["reads"].items():
            if witness is None or witness == path:
                reads = asked is not None and path != but and any(map(reads_pattern(name).search, asked.lines))
                if reads != (witness is not None):
                    bad |= records
        return bad

    def _bad_by_declarations(self, around: Around) -> int:
        """The records that rest on files around which other names are declared now."""
        assert self.head is not None
        before, now, bad = self.head["declared"], around.names(), 0
        for path in before.keys() | now.keys():
            if before.get(path) != now.get(path):
                for _, records in (self.shard(path) or {}).get("leaves", {}).values():
                    bad |= records
        return bad

    def kept(self, recalled: Recalled) -> Walked:
        """The records that still hold, as if they had been walked now."""
        assert self.head is not None
        walked = Walked()
        new: dict[int, int] = {}  # bit -> bit
        alive = 0
        for number, row in enumerate(self.head["records"]):
            record = recalled.records.get(Candidate(*row[0]))
            if record is not None:
                for part in record.parts:
                    part.eager = None if part.module is not None else part.eager
                new[1 << number] = 1 << len(walked.records)
                alive |= 1 << number
                walked.records.append(record)
        packed: dict[int, int] = {}

        def renumbered(records: int) -> int:
            found = packed.get(records)
            if found is None:
                found, rest = 0, records & alive
                while rest:
                    lowest = rest & -rest
                    found |= new[lowest]
                    rest ^= lowest
                packed[records] = found
            return found

        for path in self.head["shards"]:
            shard = self.shard(path) or {}
            if path:
                leaves = [((leaf[0], path, *leaf[1:]), *row) for leaf, row in shard["leaves"].items()]
            else:
                leaves = [(leaf, b"", records) for leaf, records in shard["leaves"].items()]
                leaves += [(("w", "reads", *names), b"", records) for names, (_, records) in shard["reads"].items()]
            for leaf, answer, records in leaves:
                if some := renumbered(records):
                    walked.leaves[leaf] = answer, some
        return walked

    def save(
        self,
        project: Project,
        walked: list[Walked],
        plan: Any,
        lines: Callable[[File], list[str]],
        watched: frozenset[str],
        more: dict[str, Any],
        witness: Callable[[str, str], str | None],
        around: Around,
    ) -> None:
        """Remember a run that walked all roots."""
        if self.store.folder is None:
            return
        leaves: dict[Any, tuple[bytes, int]] = {}
        rows: list[Any] = []
        unsure: list[int] = []
        for process in walked:
            first = len(rows)
            for leaf, (answer, records) in process.leaves.items():
                leaves[leaf] = answer, records << first | leaves.get(leaf, (b"", 0))[1]
            for record in process.records:
                candidate = record.candidate
                if not record.sure:
                    unsure.append(len(rows))
                parts = tuple(part.plain() for part in record.parts)
                rows.append(((candidate.path, candidate.kind, candidate.name), parts, record.reached))
        shards: dict[str, dict[str, Any]] = {}
        star: dict[str, Any] = {"leaves": {}, "reads": {}}
        packed: dict[int, int] = {}
        for leaf, (answer, records) in leaves.items():
            records = packed.setdefault(records, records)  # the same object: written once
            if leaf[0] == "w" and leaf[1] == "reads":
                star["reads"][leaf[2:]] = (witness(leaf[2], leaf[3]), records)
            elif leaf[0] in ("w", "m"):
                star["leaves"][leaf] = records
            else:
                shard = shards.setdefault(leaf[1], {"leaves": {}})
                own = (leaf[0], *leaf[2:])
                shard["leaves"][own] = (answer, records)
        mentioned = {place for row in rows for part in row[1] for place in _paths(part)}
        asked_for = star["leaves"]
        tails = around.tails()
        files = {}
        for path, file in project.files.items():
            files[path] = (file.digest, file.module, file.package, file.import_root)
            shard = shards.setdefault(path, {"leaves": {}})
            asked = Asked(file.raw, _Lazy(lambda file=file: lines(file)))  # type: ignore[arg-type,misc]
            shard["adds"] = {k: digest(v) for k, v in contributions(asked, asked_for).items()}
            shard["print"] = plan_print(asked, file.digest, watched)
            shard["marked"] = file.raw.get("marks") is not None
            shard["said"] = digest(around.print(file, asked.lines, tails))
            if path in mentioned:
                shard["spans"] = spans_of(asked)
        places: dict[str, tuple[int, int]] = {}
        blobs = []
        at = 0
        for path, shard in [("", star), *shards.items()]:
            blob = marshal.dumps(shard)
            places[path] = (at, len(blob))
            at += len(blob)
            blobs.append(blob)
        head = {
            "key": self.key,
            "files": files,
            "shards": places,
            "records": rows,
            "unsure": unsure,
            "plan": tuple([(c.path, c.kind, c.name) for c in part] for part in plan),
            "watched": watched,
            "tails": tails,
            "declared": around.names(),
            **more,
        }
        top = marshal.dumps(head)
        self.store.write(self.key, b"".join([len(top).to_bytes(8, "little"), top, *blobs]))


class _Lazy:
    """The lines of a file, read when they are asked for."""

    def __init__(self, read: Callable[[], list[str]]):
        self._read = read
        self._lines: list[str] | None = None

    def __getitem__(self, what: Any) -> Any:
        if self._lines is None:
            self._lines = self._read()
        return self._lines[what]


def _paths(part: Any) -> set[str]:
    found = {part[0][2]} if part[0] is not None else set()
    for row in part[3]:
        found.add(row[1])
        found.add(row[4][2])
        found.update(step[0] for step in row[5])
    return found


def plan_print(file: Asked, content: str, watched: frozenset[str]) -> bytes:
    """Changes where a change of the file may make other candidates; `watched`: names whose importers matter."""
    index = file.index
    names = sorted({a for _, a, _ in index["imports"].values() if a in watched})
    classes = [(q, "forward" in i["methods"], bool(i["bases"])) for q, i in index["classes"].items()]
    near = content if names or index["triggers"].keys() & {"capture", "around"} else ""
    return digest((classes, list(index["functions"]), index["instantiates"], names, near))


# -- places that moved -------------------------------------------------------------------------------------------------------


def spans_of(file: Asked) -> Any:
    """The parts of a file that move as a whole: (first line, last line, name, digest of the text), the inner ones last."""
    index = file.index
    found: list[Any] = []
    for name, spans in index["names"].items():
        found += [(first, last, ("n", name, n)) for n, (first, last) in enumerate(spans)]
    for qualified, info in index["classes"].items():
        first, line, _ = info["lines"]
        found.append((first, line, ("c", qualified)))
        for name, spans in info["names"].items():
            found += [(a, b, ("n", qualified, name, n)) for n, (a, b) in enumerate(spans)]
    for qualified, (first, _, last, _, _) in index["functions"].items():
        found.append((first, last, ("f", qualified)))
    return tuple((first, last, name, digest(file.span(first, last))) for first, last, name in found)


class Moves:
    """Where the lines of a file went."""

    def __init__(self, old: dict[str, Any] | None, now: Asked | None):
        self.spans = (old or {}).get("spans", ())
        self.now = {name: (first, text) for first, _, name, text in spans_of(now)} if now is not None else {}

        kept = [(s[0], self.now[s[2]][0]) for s in self.spans if s[2] in self.now]
        if any(a[1] > b[1] for a, b in pairwise(sorted(kept))):
            self.now = {}  # in another order: the choice among ways of the same length may be another

    def line(self, line: int) -> int | None:
        """The line now; None where the part it lies in has changed, or is not known."""
        best: Any = None
        for span in self.spans:
            if span[0] <= line <= span[1] and (best is None or span[0] >= best[0]):
                best = span
        if best is None:
            return None
        found = self.now.get(best[2])
        return line - best[0] + found[0] if found is not None and found[1] == best[3] else None


_LINE = re.compile(r"\bline (\d+)")


def moved(record: Record, moves: dict[str, Moves | None]) -> bool:
    """Bring the places of a record to where they are now; False where that cannot be done."""
    try:
        for part in record.parts:
            if part.root is not None and part.root[2] in moves:
                part.root = _moved_root(part.root, moves)
            if any(row[1] in moves or row[4][2] in moves or any(s[0] in moves for s in row[5]) for row in part.rows):
                part.rows = tuple(_moved_row(row, moves) for row in part.rows)
    except LookupError:
        return False
    return True


def _line(path: str, line: int, moves: Any) -> int:
    if path not in moves:
        return line
    found = moves[path].line(line)
    if found is None:
        raise LookupError(path)
    return int(found)


def _moved_root(root: tuple[Any, ...], moves: Any) -> tuple[Any, ...]:
    return (*root[:3], _line(root[2], root[3], moves), root[4])


def _moved_row(row: Row, moves: Any) -> Row:
    code, path, line, column, root, steps, confidence, message, severity, fix, end, name, function, source, group = row[
        :15
    ]
    message_in = {path, *(step[0] for step in steps[-2:])}
    if _LINE.search(message) and not message_in.isdisjoint(moves):
        if len(message_in) > 1:
            raise LookupError(path)
        message = _LINE.sub(lambda m: f"line {_line(path, int(m[1]), moves)}", message)
    if fix is not None and fix[2] and not message_in.isdisjoint(moves):
        raise LookupError(path)
    return (
        code,
        path,
        _line(path, line, moves),
        column,
        _moved_root(root, moves),
        tuple((s[0], _line(s[0], s[1], moves), s[2], s[3]) for s in steps),
        confidence,
        message,
        severity,
        fix,
        (_line(path, end[0], moves), end[1]),
        name,
        function,
        source,
        (_line(path, group[0], moves), group[1]) if group is not None else None,
        *row[15:],
    )
