"""Why a line is not captured: what pruned it, or why nothing captured calls the function around it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from cgsafe.index.project import File
from cgsafe.roots import FORWARD, NO_MODULE, Start, folder_refusal, module_refusal
from cgsafe.walk.frame import source_of
from cgsafe.walk.walker import Walker
from cgsafe.why.anatomy import Block, Spot, locate
from cgsafe.why.probe import CAPTURED, DOUBTED, HOST, Probe

MAX_CALLERS = 8  # of one function
MAX_LEVELS = 4  # of callers above each other
_ENDS = {ast.Return: "`return`", ast.Raise: "`raise`", ast.Continue: "`continue`", ast.Break: "`break`"}


@dataclass(frozen=True)
class Reason:
    """One sentence of the answer, and the place that it is about."""

    message: str
    path: str = ""
    line: int = 0


class Reasons:
    """Looks for the nearest reason. Everything that it says was seen in the walk, or stands in the text."""

    def __init__(self, walker: Walker, probe: Probe, starts: list[Start]):
        self.walker = walker
        self.probe = probe
        self.starts = starts
        self._spots: dict[tuple[str, int], Spot | None] = {}

    def spot(self, path: str, line: int) -> Spot | None:
        """The statement at a place, None where there is none."""
        key = (path, line)
        if key not in self._spots:
            text = "\n".join(self.walker.text(self.walker.project.files[path]).lines)
            try:
                self._spots[key] = locate(text, line)
            except (SyntaxError, ValueError, RecursionError):
                self._spots[key] = None
        return self._spots[key]

    def flags(self, path: str, statement: ast.stmt) -> int:
        return self.probe.ran.get(path, {}).get(statement.lineno, 0)

    def ran_captured(self, file: File, qualname: str) -> bool:
        """Whether any statement of a function ran as captured code."""
        entry = file.index["functions"].get(qualname)
        lines = self.probe.ran.get(file.path, {})
        return entry is not None and any(
            entry[1] < n <= entry[2] and how & (CAPTURED | DOUBTED) for n, how in lines.items()
        )

    # -- the answer --------------------------------------------------------------------------------------------------

    def of(self, file: File, spot: Spot) -> list[Reason]:
        """Why the statement is not captured, the nearest reason first."""
        if not spot.function:
            return [
                Reason(
                    f"it stands in the body of {f'the class `{spot.cls}`' if spot.cls else 'the module'}: it runs once, "
                    "when the module is imported",
                    file.path,
                    spot.first,
                )
            ]
        inside = self.inside(file.path, spot)
        if inside:
            return inside
        if not spot.header and self.ran_captured(file, spot.outermost) and len(spot.functions) > 1:
            return [
                Reason(
                    f"`{spot.outermost}` is captured, but no captured code was seen to call `{spot.function}`",
                    file.path,
                    spot.first,
                )
            ]
        return self.outside(file, spot)

    def inside(self, path: str, spot: Spot) -> list[Reason]:
        """What keeps captured code that is in the function from getting to the statement; empty where none is in it."""
        blocks = spot.blocks
        if not any(self.flags(path, s) & (CAPTURED | DOUBTED) for b in blocks[:1] for s in b.body[: b.position + 1]):
            return []
        for number, block in enumerate(blocks):
            how = self.flags(path, block.statement)
            if how & (CAPTURED | DOUBTED):
                if number + 1 < len(blocks) and (pruned := self._pruned(path, block)):
                    return [pruned]
                continue
            if how & HOST:
                return [self._host_block(path, blocks[:number])]
            return [self._ended(path, block)]
        return []

    def _pruned(self, path: str, block: Block) -> Reason | None:
        """The condition of a statement that never lets captured code into the block."""
        statement = block.statement
        if not isinstance(statement, (ast.If, ast.While)):
            return None
        key = (path, statement.lineno, statement.col_offset)
        outcomes = self.probe.outcomes.get(key, set())
        if outcomes != {block.part != "body"}:
            return None
        answer = next(iter(outcomes)) is False
        because = [
            f"`{text}` is {result}"
            for text, result in sorted(self.probe.known.get(key, {}).items())
            if text != source_of(statement.test)
        ]
        why = f", since {' and '.join(because)}" if because else ""
        says = f"`{source_of(statement.test)}` is always {not answer} in captured code{why}"
        where = "the `else` branch" if block.part == "orelse" else "its block"
        return Reason(f"{says}, so {where} is left out", path, statement.lineno)

    def _host_block(self, path: str, blocks: list[Block]) -> Reason:
        for block in reversed(blocks):
            statement = block.statement
            if isinstance(statement, (ast.With, ast.AsyncWith)) and self.flags(path, statement) & (CAPTURED | DOUBTED):
                entered = ", ".join(source_of(item.context_expr) for item in statement.items)
                return Reason(
                    f"it stands inside `with {entered}`, in which a wait for the GPU is accepted: the block counts as "
                    "host code",
                    path,
                    statement.lineno,
                )
        return Reason("what runs here is host code, before or after the capture", path)

    def _ended(self, path: str, block: Block) -> Reason:
        """The statement before it after which captured code does not go on."""
        for sibling in reversed(block.body[: block.position]):
            if not self.flags(path, sibling):
                continue
            kind = _ENDS.get(type(sibling))
            if kind is not None:
                return Reason(f"captured code always leaves at this {kind} before it", path, sibling.lineno)
            known = self._leaves(path, sibling)
            return Reason(f"captured code never gets past this statement before it{known}", path, sibling.lineno)
        return Reason("captured code never gets into the block that it stands in", path, block.statement.lineno)

    def _leaves(self, path: str, statement: ast.stmt) -> str:
        if not isinstance(statement, ast.If):
            return ""
        outcomes = self.probe.outcomes.get((path, statement.lineno, statement.col_offset), set())
        if len(outcomes) != 1 or None in outcomes:
            return ""
        return f": `{source_of(statement.test)}` is always {next(iter(outcomes))} there"

    # -- functions that captured code does not enter -------------------------------------------------------------------

    def outside(self, file: File, spot: Spot) -> list[Reason]:
        """Why nothing captured was seen to call the function."""
        reasons = [*self._verdict(file, spot), *self._class(file, spot)]
        entry = file.index["functions"].get(spot.outermost)
        if entry is not None and (file.path, entry[1]) in self.walker.cuts:
            reasons.append(
                Reason("calls nest too deeply here: the walk stopped before this function", file.path, entry[1])
            )
        if self._host(file, spot):
            reasons.append(Reason(f"`{spot.outermost}` was followed as host code only", file.path, spot.first))
        chain = self._nearest_captured(file, spot.outermost)
        if chain:
            reasons.extend(chain)
        elif not reasons:
            reasons.append(Reason(f"the walk did not get to `{spot.outermost}` at all", file.path, spot.first))
        return reasons

    def _host(self, file: File, spot: Spot) -> bool:
        entry = file.index["functions"].get(spot.outermost)
        lines = self.probe.ran.get(file.path, {})
        return entry is not None and any(entry[1] < n <= entry[2] and how & HOST for n, how in lines.items())

    def _verdict(self, file: File, spot: Spot) -> list[Reason]:
        if spot.outermost not in file.index["functions"]:
            return []
        definition = self.walker.definitions.function(file, spot.outermost)
        tables = self.walker.by_package.of(file.module)
        verdict = tables.function_verdict(definition, FORWARD)
        if verdict is None:
            return []
        place = (file.path, definition.line)
        if verdict == "cut" and definition.name in tables.host_setup:
            return [Reason(f"`{definition.name}` prepares a model before anything is captured, by its name", *place)]
        if verdict == "cut" and definition.name in (tables.warm_up | tables.elsewhere | tables.eager):
            kind = "eager" if definition.name in tables.eager else "warm-up"
            kind = "not for this kind of device" if definition.name in tables.elsewhere else kind
            return [Reason(f"by profile, `{definition.name}` is {kind}", *place)]
        if verdict == "cut" and tables.runs_eagerly(definition):
            return [Reason(f"by profile, `{definition.qualname}` is eager", *place)]
        if verdict == "cut":
            return [Reason(f"`{definition.name}` is a kernel in another language, by its decorator", *place)]
        if verdict == "eager-break":
            return [Reason(f"`{definition.name}` runs eagerly between captured segments, by its decorator", *place)]
        return [Reason(f"calls of `{definition.name}` are not followed: what it answers is known by its name", *place)]

    def _class(self, file: File, spot: Spot) -> list[Reason]:
        """Why the forward of the class around the line is no root."""
        owner = spot.cls
        if owner not in file.index["classes"]:
            return []
        definition = self.walker.definitions.class_(file, owner)
        place = (file.path, definition.line)
        said = module_refusal(self.walker, definition)
        if said == NO_MODULE:
            return []
        if not said:
            said = folder_refusal(self.walker, file) or self.walker.by_package.of(file.module).not_captured_by(
                file.module, definition.name
            )
        if said:
            return [Reason(f"the forward of `{owner}` is no root: {said}", *place)]
        if spot.outermost.rpartition(".")[2] != "forward":
            return [Reason(f"the forward of `{owner}` is captured, but does not lead here", *place)]
        return []

    def _nearest_captured(self, file: File, qualname: str) -> list[Reason]:
        """The way up from a function, by the names of calls, to the nearest captured one, and where it breaks."""
        level: list[tuple[File, str, list[Reason]]] = [(file, qualname, [])]
        seen = {(file.path, qualname)}
        first: list[Reason] = []
        for _ in range(MAX_LEVELS):
            following: list[tuple[File, str, list[Reason]]] = []
            for callee_file, callee, below in level:
                for caller_file, caller, line in self.callers(callee_file, callee):
                    if (caller_file.path, caller) in seen:
                        continue
                    seen.add((caller_file.path, caller))
                    spot = self.spot(caller_file.path, line)
                    called = Reason(f"`{caller}` calls `{_called(callee)}` here", caller_file.path, line)
                    first = first or [Reason(f"{called.message}, and is not captured either", *_place(called))]
                    if spot is not None and self.ran_captured(caller_file, caller):
                        return [*self._break(caller_file, caller, spot, callee, line), *below]
                    following.append((caller_file, caller, [called, *below]))
            level = following
            if not level:
                break
        if first:
            return first
        name = _called(qualname)
        return [Reason(f"no call of `{name}` was found in the known files", file.path, 0)]

    def _break(self, file: File, caller: str, spot: Spot, callee: str, line: int) -> list[Reason]:
        name = _called(callee)
        if self.flags(file.path, spot.statement) & (CAPTURED | DOUBTED):
            what = self.probe.unresolved.get((file.path, line))
            if what is not None:
                text = f"`{caller}` is captured and calls `{what}` here; what that is, is not known to the walk"
            else:
                text = f"`{caller}` is captured and calls a `{name}` here; the walk did not take it for this one"
            return [Reason(text, file.path, line)]
        head = Reason(f"`{caller}` is captured and calls `{name}` here, but this line is not", file.path, line)
        return [head, *self.inside(file.path, spot)]

    def callers(self, file: File, qualname: str) -> list[tuple[File, str, int]]:
        """Functions whose text calls one of this name, nearest first: same file, same package, others."""
        name = _called(qualname)
        word = re.compile(rf"(?<!def )(?<!class )\b{re.escape(name)}\(")
        found: list[tuple[File, str, int]] = []
        for path in sorted(self.walker.project.files, key=lambda p: (-_common(p, file.path), p)):
            other = self.walker.project.files[path]
            text = self.walker._read(path)
            if f"{name}(" not in text:
                continue
            lines = self.walker.text(other).lines
            spans = sorted((first, last, f) for f, (first, _, last, _, _) in other.index["functions"].items())
            for number, content in enumerate(lines, 1):
                if name not in content or not word.search(content.partition("#")[0]):
                    continue
                holders = [f for first, last, f in spans if first <= number <= last]
                if holders and not (other is file and holders[-1] == qualname):
                    found.append((other, holders[-1], number))
            if len(found) >= MAX_CALLERS:
                break
        # A caller that is captured tells most.
        return sorted(found, key=lambda c: not self.ran_captured(c[0], c[1]))[:MAX_CALLERS]


def _place(reason: Reason) -> tuple[str, int]:
    return reason.path, reason.line


def _called(qualname: str) -> str:
    """The name by which code calls a function: for constructors and forwards, that of the class."""
    holder, _, name = qualname.rpartition(".")
    if name in ("__init__", "__new__", "__call__", "forward", "__enter__", "__exit__") and holder:
        return holder.rpartition(".")[2]
    return name


def _common(a: str, b: str) -> int:
    """How many leading folders two paths share; files that are the same come first."""
    if a == b:
        return 10_000
    count = 0
    for one, two in zip(a.split("/"), b.split("/"), strict=False):
        if one != two:
            break
        count += 1
    return count


def nearest_root(starts: list[Start], path: str, line: int) -> dict[str, Any] | None:
    """The root closest to a line: in the same file, else in the nearest folder."""
    if not starts:
        return None
    best = min(
        (s.root for s in starts),
        key=lambda r: (-_common(r.path, path), abs(r.line - line) if r.path == path else 0, r.path, r.line, r.function),
    )
    return {"kind": best.kind, "reason": best.reason, "path": best.path, "line": best.line, "function": best.function}
