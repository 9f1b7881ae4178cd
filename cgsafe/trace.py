"""Reads findings off the graph of the walk: which events a root reaches, and the shortest call path to each."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cgsafe.events import CaptureSite, DeviceWait, HostCopy, HostRead, SiteEvent, SizeRead, TruthTest
from cgsafe.findings import Confidence, Fix, Root, Severity, Step
from cgsafe.forks import stream_hazards
from cgsafe.owners import Owners
from cgsafe.roots import Start
from cgsafe.rule import RuleSet
from cgsafe.walk.walker import Node


class Spot(NamedTuple):
    """What makes two findings one: a rule at a place. Paths are absolute here."""

    code: str
    path: str
    line: int
    column: int


@dataclass
class Reach:
    """How one root reaches a spot."""

    root: Root
    steps: tuple[Step, ...]
    confidence: int
    message: str
    severity: Severity
    fix: Fix | None
    end: tuple[int, int]
    name: str
    function: str
    source: str
    group: tuple[int, int] | None = None
    region: str = "captured"  # or "hot-path"
    accepted: str = ""  # the block in which the author accepts a wait

    def rank(self) -> Any:
        """Smaller is better: surer, then shorter, then by text, so that the choice is the same in every run."""
        return (
            -self.confidence,
            self.severity is not Severity.ERROR,
            self.accepted != "",
            len(self.steps),
            [(s.path, s.line) for s in self.steps],
            (self.root.path, self.root.line, self.root.function),
            self.message,
        )


# By profile, where a warm-up precedes each capture but is prepared apart from it.
_APART = (
    "here a run of its own warms up each shape right before its capture, so that only calls which that run makes in "
    "another way are left, such as one with an argument that is None there"
)
_WAITS = (TruthTest, HostRead, SizeRead, HostCopy, DeviceWait)
RootKey = tuple[str, int, str, str]
Reaches = dict[Spot, dict[RootKey, Reach]]


def root_key(root: Root) -> RootKey:
    """What makes two roots one."""
    return (root.path, root.line, root.function, root.kind)


def add(reaches: Reaches, spot: Spot, reach: Reach) -> None:
    """Keep the better of two ways from the same root."""
    ways = reaches.setdefault(spot, {})
    key = root_key(reach.root)
    ways[key] = _better(ways.get(key), reach)


def _better(present: Reach | None, reach: Reach) -> Reach:
    """The better of two ways. Where they come with other values, and propose other edits, neither edit is right for both."""
    if present is None:
        return reach
    best, other = (reach, present) if reach.rank() < present.rank() else (present, reach)
    if best.fix is not None and best.fix.transform and (other.fix is None or other.fix.transform != best.fix.transform):
        best.fix = Fix(best.fix.description)
    return best


class Judge:
    """Applies the rules to each event once."""

    def __init__(self, rules: RuleSet):
        self.rules = rules
        self._hits: dict[int, list[Any]] = {}
        self._kept: list[Node] = []

    def of(self, node: Node) -> list[Any]:
        """(event, rule, hit) for all events of a node."""
        found = self._hits.get(id(node))
        if found is None:
            found = [(e, rule, hit) for e in node.events.values() for rule, hit in self.rules.judge(e)]
            self._hits[id(node)] = found
            self._kept.append(node)  # so that no other node gets the same id
        return found


def collect(starts: Iterable[Start], judge: Judge, reaches: Reaches, owners: Owners) -> None:
    """Add to `reaches` what each root runs into, by its shortest path."""
    for start in starts:
        _from_root(start, judge, reaches, owners)


def _from_root(start: Start, judge: Judge, reaches: Reaches, owners: Owners) -> None:
    best = found_from(start, judge)
    if start.module is not None and any(reach.confidence > Confidence.LOW for reach in best.values()):
        lowered(best.values(), owners.keep_out(start.module))
    for spot, reach in best.items():
        add(reaches, spot, reach)


def lowered(found: Iterable[Reach], guess: str) -> None:
    """Make guesses of what a root reaches, where there is a reason to."""
    if guess:
        for reach in found:
            reach.confidence = int(Confidence.LOW)
            reach.message += f"; {guess}"


def leading(starts: Iterable[Start], judge: Judge) -> set[Node]:
    """The nodes from which calls lead to something that is stated, of all that the roots reach: most lead nowhere."""
    callers: dict[Node, list[Node]] = {start.node: [] for start in starts}
    waiting = list(callers)
    found: list[Node] = []
    for node in waiting:
        if node.streams or judge.of(node):
            found.append(node)
        for _, callee in node.calls:
            known = callers.get(callee)
            if known is None:
                callers[callee] = [node]
                waiting.append(callee)
            else:
                known.append(node)
    leads = set(found)
    for node in found:
        for caller in callers[node]:
            if caller not in leads:
                leads.add(caller)
                found.append(caller)
    return leads


def found_from(start: Start, judge: Judge, leads: Collection[Node] | None = None) -> dict[Spot, Reach]:
    """What a root runs into, by its shortest path, whoever runs it; `leads` as `leading` gives it."""
    parents: dict[Node, tuple[Node, int] | None] = {start.node: None}
    queue = [start.node]
    best: dict[Spot, Reach] = {}
    for node in queue:
        for event, rule, hit in judge.of(node):
            if isinstance(event, SiteEvent):
                continue
            _add(best, start, node, parents, event, rule, hit)
        calls = node.calls if leads is None else [call for call in node.calls if call[1] in leads]
        for line, callee in sorted(calls, key=lambda call: (call[0], node_order(call[1]))):
            if callee not in parents:
                parents[callee] = (node, line)
                queue.append(callee)
    for node, event in stream_hazards(start.node, start.node.site, start.node.main):
        if node in parents:
            for rule, hit in judge.rules.judge(event):
                _add(best, start, node, parents, event, rule, hit)
    if start.module is not None and start.guess:
        lowered(best.values(), start.guess)
    return best


def node_order(node: Node) -> tuple[str, str]:
    return (node.definition.label if node.definition is not None else "", node.label)


def _add(
    best: dict[Spot, Reach], start: Start, node: Node, parents: dict[Node, Any], event: Any, rule: Any, hit: Any
) -> None:
    if event.region.hot and not isinstance(event, _WAITS):
        return  # no graph records here: all that matters is that the host waits
    if event.region.hot and isinstance(event, DeviceWait) and event.how.endswith(".query"):
        return  # it asks how far the GPU is, and goes on
    if hit.unless_warmed and event.signature in start.warm:
        return
    place = event.place
    if getattr(event, "owner", None) in start.given:
        return  # an object that the capture was handed, not one that stays
    limit = Confidence.HIGH if start.explicit or event.region.explicit else rule.implicit
    confidence = min(event.confidence, limit, hit.confidence or Confidence.HIGH)
    if event.region.doubt or event.needs in start.lacks or (hit.unless_warmed and start.warmed):
        confidence = Confidence.LOW
    if hit.at is not None:
        path, line, column, end_line, end_column = hit.at
    else:
        path, line, column, end_line, end_column = (
            place.path,
            place.line,
            place.column,
            place.end_line,
            place.end_column,
        )
    spot = Spot(rule.code, path, line, column)
    message, severity = hit.message, hit.severity or rule.severity
    if event.region.hot:
        message, severity = f"{message}; this stalls the host at every step", Severity.WARNING
    elif hit.unless_warmed and start.warmed_apart:
        message, severity = f"{message}; {_APART}", Severity.WARNING
    steps = [*steps_to(node, parents), Step(place.path, place.line, place.function)]
    if hit.at is not None and (path, line) != (place.path, place.line):
        steps.append(Step(path, line, hit.function or place.function))
    reach = Reach(
        start.root,
        tuple(steps),
        int(confidence),
        message,
        severity,
        hit.fix,
        (end_line, end_column),
        rule.name,
        hit.function or place.function,
        event.source,
        hit.group,
        "hot-path" if event.region.hot else "captured",
        event.region.accepted,
    )
    best[spot] = _better(best.get(spot), reach)


def steps_to(node: Node, parents: dict[Node, Any]) -> list[Step]:
    """The calls that lead from the root to a node; the artificial step into the root itself is left out."""
    steps: list[Step] = []
    here = node
    while parents[here] is not None:
        caller, line = parents[here]
        definition = caller.definition
        is_entry = parents[caller] is None and not caller.cells and not caller.args and caller.result_is_entry
        if definition is not None and not is_entry:
            called = here.definition.name if here.definition is not None else "code"
            steps.append(Step(definition.file.path, line, definition.qualname, f"calls {called}"))
        here = caller
    steps.reverse()
    return steps


def has_sites(node: Node) -> bool:
    """True where something is stated about the place of a capture."""
    return any(isinstance(event, SiteEvent) for event in node.events.values())


_CAPTURE = "a CUDA graph capture is opened here"
_AROUND = "host code around a capture or a replay"


def capture_sites(nodes: Iterable[Node], judge: Judge, reaches: Reaches) -> None:
    """Findings about the places where captures are opened, which need no root to reach them."""
    for node in nodes:
        for event, rule, hit in judge.of(node):
            if not isinstance(event, SiteEvent):
                continue
            place = event.place
            reason = _CAPTURE if isinstance(event, CaptureSite) else _AROUND
            root = Root("capture-site", reason, place.path, place.line, place.function)
            spot = Spot(rule.code, place.path, place.line, place.column)
            confidence = min(event.confidence, hit.confidence or Confidence.HIGH)
            reach = Reach(
                root,
                (Step(place.path, place.line, place.function),),
                int(confidence),
                hit.message,
                hit.severity or rule.severity,
                hit.fix,
                (place.end_line, place.end_column),
                rule.name,
                place.function,
                event.source,
            )
            add(reaches, spot, reach)


def fingerprint(code: str, module: str, function: str, source: str, ordinal: int) -> str:
    """A name for a finding that survives moved lines: what, in which function of which module, and the how-manieth."""
    text = "\0".join((code, module, function, " ".join(source.split()), str(ordinal)))
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=10).hexdigest()
