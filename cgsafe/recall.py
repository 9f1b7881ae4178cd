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
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from cgsafe.cache import Store
from cgsafe.findings import Edit, Fix, Root, Severity, Step
from cgsafe.index.asked import ASKED, Asked, binding, class_body, reads_pattern
from cgsafe.index.project import File, Project
from cgsafe.roots import Candidate
from cgsafe.trace import Reach, Reaches, Spot, add, eager_guess, lowered

Place = tuple[str, str]
Row = tuple[Any, ...]
KEEP = 6  # memories of projects; the oldest go first
UNSURE = ("unsure",)


@dataclass
class Part:
    """What one start reaches, as plain rows, before it is asked who runs the module (see `cgsafe.owners`)."""

    root: tuple[Any, ...] | None  # None: findings about capture sites, which need no root
    module: Place | None
    eager: str | None  # who runs the module outside of graphs; None: that is to be worked out
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
    leaves: array[int] | None = None  # numbers in the table of the process that walked it; None: not to be recalled


@dataclass
class Walked:
    """The records of one process, and the leaves that they rest on with a digest of each answer."""

    records: list[Record] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)


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
            lowered(found.values(), eager_guess(eager(part), part.module[1].rpartition(".")[2]))
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


def contributions(file: Asked, wanted: Iterable[str] | None = None) -> dict[Any, Any]:
    """What a file adds to the answers to questions about all files: question -> its part of the answer."""
    index = file.index
    found: dict[Any, list[Any]] = {}
    for local, (module, attribute, level) in index["imports"].items():
        if attribute is not None:
            found.setdefault(("w", "imported", attribute), []).append((local, module, level))
    imports = index["imports"]
    for qualified, info in index["classes"].items():
        for base in info["bases"]:
            name = base.partition("[")[0].rpartition(".")[2]
            found.setdefault(("w", "subclasses", name), []).append(qualified)
        for decorator in info["decorators"]:
            _decoration(found, file, qualified, decorator, info["lines"], imports)
    for qualified, entry in index["functions"].items():
        if not entry[3]:
            for decorator in entry[4]:
                _decoration(found, file, qualified, decorator, entry, imports)
    lines = index["triggers"].get("op", ())
    if lines:
        decorated = [(q, e[4], file.span(e[0], e[1])) for q, e in index["functions"].items() if e[4] and not e[3]]
        found[("w", "ops")] = [decorated, [file.span(line, line + 25) for line in lines]]
    return found


def _decoration(found: dict[Any, Any], file: Asked, qualified: str, decorator: str, lines: Any, imports: Any) -> None:
    parts = decorator.split(".")
    known = tuple(part in imports for part in parts)
    row = (qualified, decorator, file.span(lines[0], lines[1]), known)
    found.setdefault(("w", "decorated", parts[-1]), []).append(row)


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
    """Works out what candidates rest on."""

    def __init__(self) -> None:
        self.split: dict[Any, tuple[list[Any], list[Any]]] = {}

    def of(self, cell: Any, starts: dict[Any, Any]) -> tuple[set[Any], set[Any], set[Any]]:
        """Leaves, other cells, and of the leaves those that are no starts'."""
        leaves: set[Any] = set()
        cells: set[Any] = {cell}
        self._add([cell], leaves, cells)
        own = {leaf for leaf in leaves if leaf[0] == "reached"}
        done: set[Any] = set()
        while more := [leaf for leaf in leaves if leaf[0] == "start" and leaf not in done and leaf in starts]:
            done.update(more)
            waiting = [c for c in (starts[leaf][1] for leaf in more) if c not in cells]
            cells.update(waiting)
            self._add(waiting, leaves, cells)
        return leaves, cells, own

    def _add(self, stack: list[Any], leaves: set[Any], cells: set[Any]) -> None:
        split = self.split
        while stack:
            here = stack.pop()
            parts = split.get(here)
            if parts is None:
                plain = [d for d in here.deps if d.__class__ is tuple]
                parts = split[here] = plain, [d for d in here.deps if d.__class__ is not tuple]
            leaves.update(parts[0])
            for cell in parts[1]:
                if cell not in cells:
                    cells.add(cell)
                    stack.append(cell)


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

    def recall(self, project: Project, lines: Callable[[File], list[str]]) -> Recalled:
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
        bad: set[int] = set(head["unsure"])
        star = self.shard("")
        if star is None:
            return Recalled()
        moves: dict[str, Moves | None] = {}
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
                module = file.module if file is not None else files[path][1]
                for name in module_names(module):
                    bad.update(_numbers(star["leaves"].get(("m", name), (b"", b""))[1]))
            if plan is not None and (
                old is None or asked is None or old["print"] != plan_print(asked, file.digest, head["watched"])  # type: ignore[union-attr]
            ):
                plan = None
            moves[path] = Moves(old, asked)
        for number, record in enumerate(records):
            if number not in bad and not _moved(record, moves):
                bad.add(number)
        return Recalled({r.candidate: r for n, r in enumerate(records) if n not in bad}, plan)

    def _bad_of(self, path: str, old: dict[str, Any], asked: Asked | None, star: dict[str, Any]) -> set[int]:
        """The records that no longer hold, because of one file."""
        bad: set[int] = set()
        leaves = old.get("leaves", {})
        marked = old.get("marked") or (asked is not None and asked.index.get("marks") is not None)
        for leaf, (answer, numbers) in leaves.items():
            if marked or digest(answer_of((leaf[0], path, *leaf[1:]), asked)) != answer:
                bad.update(_numbers(numbers))
        before = old.get("adds", {})
        after = {k: digest(v) for k, v in contributions(asked).items() if k in star["leaves"]} if asked else {}
        for question in before.keys() | after.keys():
            if before.get(question) != after.get(question) and question in star["leaves"]:
                bad.update(_numbers(star["leaves"][question][1]))
        for question, (witness, numbers) in star["reads"].items():
            name, but = question
            if witness is None or witness == path:
                reads = asked is not None and path != but and any(map(reads_pattern(name).search, asked.lines))
                if reads != (witness is not None):
                    bad.update(_numbers(numbers))
        return bad

    def kept(self, recalled: Recalled, project: Project) -> Walked:
        """The records that still hold, as if they had been walked now."""
        assert self.head is not None
        walked = Walked()
        places: dict[int, Record] = {}
        for number, row in enumerate(self.head["records"]):
            record = recalled.records.get(Candidate(*row[0]))
            if record is not None:
                record.leaves = array("I")
                for part in record.parts:
                    part.eager = None if part.module is not None else part.eager
                places[number] = record
                walked.records.append(record)
        for path in self.head["shards"]:
            shard = self.shard(path) or {}
            leaves = (
                [((leaf[0], path, *leaf[1:]), *row) for leaf, row in shard["leaves"].items()]
                if path
                else [
                    *((leaf, *row) for leaf, row in shard["leaves"].items()),
                    *((("w", "reads", *names), b"", row[1]) for names, row in shard["reads"].items()),
                ]
            )
            for leaf, answer, raw in leaves:
                numbers = [n for n in _numbers(raw) if n in places]
                if numbers:
                    walked.leaves.append(leaf)
                    walked.answers.append(answer)
                    for n in numbers:
                        places[n].leaves.append(len(walked.leaves) - 1)  # type: ignore[union-attr]
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
    ) -> None:
        """Remember a run that walked all roots."""
        if self.store.folder is None:
            return
        numbers: dict[Any, list[int]] = {}
        answers: dict[Any, bytes] = {}
        rows: list[Any] = []
        unsure: list[int] = []
        for process in walked:
            own: list[list[int]] = []
            for leaf, answer in zip(process.leaves, process.answers, strict=True):
                own.append(numbers.setdefault(leaf, []))
                answers[leaf] = answer
            for record in process.records:
                number = len(rows)
                candidate = record.candidate
                parts = tuple(part.plain() for part in record.parts)
                rows.append(((candidate.path, candidate.kind, candidate.name), parts, record.reached))
                if record.leaves is None:
                    unsure.append(number)
                else:
                    for leaf_number in record.leaves:
                        own[leaf_number].append(number)
        shards: dict[str, dict[str, Any]] = {}
        star: dict[str, Any] = {"leaves": {}, "reads": {}}
        packed: dict[bytes, bytes] = {}
        for leaf, some in numbers.items():
            raw = array("I", some).tobytes()
            raw = packed.setdefault(raw, raw)
            if leaf[0] == "w" and leaf[1] == "reads":
                star["reads"][leaf[2:]] = (witness(leaf[2], leaf[3]), raw)
            elif leaf[0] in ("w", "m"):
                star["leaves"][leaf] = (b"", raw)
            else:
                shard = shards.setdefault(leaf[1], {"leaves": {}})
                shard["leaves"][(leaf[0], *leaf[2:])] = (answers[leaf], raw)
        mentioned = {place for row in rows for part in row[1] for place in _paths(part)}
        asked_for = star["leaves"]
        files = {}
        for path, file in project.files.items():
            files[path] = (file.digest, file.module, file.package, file.import_root)
            shard = shards.setdefault(path, {"leaves": {}})
            asked = Asked(file.raw, _Lazy(lambda file=file: lines(file)))  # type: ignore[arg-type,misc]
            shard["adds"] = {k: digest(v) for k, v in contributions(asked).items() if k in asked_for}
            shard["print"] = plan_print(asked, file.digest, watched)
            shard["marked"] = file.raw.get("marks") is not None
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
            **more,
        }
        first = marshal.dumps(head)
        self.store.write(self.key, b"".join([len(first).to_bytes(8, "little"), first, *blobs]))


class _Lazy:
    """The lines of a file, read when they are asked for."""

    def __init__(self, read: Callable[[], list[str]]):
        self._read = read
        self._lines: list[str] | None = None

    def __getitem__(self, what: Any) -> Any:
        if self._lines is None:
            self._lines = self._read()
        return self._lines[what]


def _numbers(raw: bytes) -> array[int]:
    found: array[int] = array("I")
    found.frombytes(raw)
    return found


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
    found = []
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


def _moved(record: Record, moves: dict[str, Moves | None]) -> bool:
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


def number_leaves(closures: Iterable[tuple[Record, set[Any]]], answer: Callable[[Any], Any], into: Walked) -> None:
    """Note on what each record rests, in numbers."""
    numbers: dict[Any, int] = {}
    for record, leaves in closures:
        into.records.append(record)
        if UNSURE in leaves:
            continue
        record.leaves = array("I")
        for leaf in leaves:
            if leaf[0] in ("start", "reached"):
                continue
            number = numbers.get(leaf)
            if number is None:
                number = numbers[leaf] = len(into.leaves)
                into.leaves.append(leaf)
                into.answers.append(b"" if leaf[0] in ("w", "m") else digest(answer(leaf)))
            record.leaves.append(number)
