"""`cgsafe why PATH:LINE`: what the walk makes of one line, and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cgsafe.engine import Shown, findings_of, prepare
from cgsafe.findings import Confidence, Finding, Problem, Root, Step
from cgsafe.roots import Start
from cgsafe.rule import Rule
from cgsafe.run import walk_whole
from cgsafe.settings import Settings
from cgsafe.source import read
from cgsafe.trace import Judge, Reach, Reaches, capture_sites, collect, node_order, steps_to
from cgsafe.values import Ext, ModuleRef
from cgsafe.walk.walker import Node
from cgsafe.why.anatomy import Spot, locate
from cgsafe.why.probe import CAPTURED, DOUBTED, Probe, watching
from cgsafe.why.reasons import Reason, Reasons, nearest_root
from cgsafe.why.wording import in_words

Progress = Callable[[str, int, int], None]
MAX_KINDS = 6  # different values of one expression that are told


class QuestionError(Exception):
    """The question cannot be answered; the text says why."""


@dataclass(frozen=True)
class Way:
    """A root that leads to the line, and the calls on the way."""

    root: Root
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Known:
    """What the tool thinks an expression holds."""

    line: int
    column: int
    source: str
    values: tuple[str, ...]
    more: int  # further kinds of value that are not told
    origin: str


@dataclass(frozen=True)
class Hidden:
    """A finding that a check does not show."""

    code: str
    confidence: str
    column: int
    message: str
    reason: str


@dataclass
class Answer:
    """Everything about one line."""

    path: str
    line: int  # as asked
    first: int  # the lines of the statement
    last: int
    function: str
    captured: str = "no"  # "yes", "in doubt", "hot-path" (no graph records it, but it runs at every step) or "no"
    doubt: str = ""
    ways: list[Way] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    hidden: list[Hidden] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)  # what the walk noticed and no rule minds
    reasons: list[Reason] = field(default_factory=list)
    nearest: Root | None = None
    errors: list[Problem] = field(default_factory=list)


def question(text: str) -> tuple[str, int]:
    """`PATH:LINE`, or `PATH:LINE:COLUMN` as other tools write it."""
    parts = text.split(":")
    while len(parts) > 2 and parts[-1] == "":
        parts.pop()
    numbers: list[int] = []
    while len(parts) > 1 and parts[-1].isdecimal() and len(numbers) < 2:
        numbers.append(int(parts.pop()))
    if not numbers or numbers[-1] < 1:
        raise QuestionError(f"expected PATH:LINE, found `{text}`")
    return ":".join(parts), numbers[-1]


def why(
    path: str,
    line: int,
    paths: Sequence[str],
    settings: Settings,
    rules: Sequence[type[Rule]],
    progress: Progress | None = None,
) -> Answer:
    """Walk the project around a line (or that of `paths`), and tell what was seen there."""
    source = read(path)
    if isinstance(source, Problem):
        raise QuestionError(f"{path}: {source.message}")
    if line > len(source.lines):
        raise QuestionError(f"{path} has {len(source.lines)} lines, there is no line {line}")
    try:
        spot = locate(source.text, line)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise QuestionError(f"{path}: not Python source: {error}") from None
    if spot is None:
        raise QuestionError(f"{path}:{line}: there is no statement on this line or below it")
    report, project, by_path = prepare([*paths, path] if path not in paths else paths, settings, progress)
    real = os.path.abspath(path)
    file = project.files.get(real)
    if file is None:
        raise QuestionError(f"{path} could not be read, or lies outside of the given paths")
    probe = Probe(real, spot.first, spot.last, spot.outermost.rpartition(".")[2])
    with watching(probe):
        share = walk_whole(project, settings, rules, progress)
        starts = share.all_starts()
    answer = Answer(path, line, spot.first, spot.last, spot.function, errors=report.errors)
    show = Shown(by_path)
    targets = _targets(probe, spot, file.path, share.walker.all_nodes())
    ways = _ways(starts, list(targets))
    answer.ways = [Way(show.root(s.root), show.steps(steps)) for s, steps in ways]
    reached = list(targets.values()) if ways else []
    if reached and all(node.region.hot for node in targets):
        answer.captured = "hot-path"
    elif any(how & CAPTURED for how in reached):
        answer.captured = "yes"
    elif any(how & DOUBTED for how in reached):
        answer.captured = "in doubt"
        answer.doubt = next((n.region.doubt for n in targets if n.region.doubt), "")
    _values(answer, probe)
    _findings(answer, share, starts, settings, project, by_path)
    if answer.captured == "no":
        looking = Reasons(share.walker, probe, starts)
        answer.reasons = [
            Reason(r.message, show.path(r.path) if r.path else "", r.line) for r in looking.of(file, spot)
        ]
        near = nearest_root(starts, real, line)
        answer.nearest = show.root(Root(**near)) if near is not None else None
    return answer


def _targets(probe: Probe, spot: Spot, path: str, nodes: list[Node]) -> dict[Node, int]:
    """The nodes of the graph in which the statement ran as captured code."""
    found: dict[Node, int] = {}
    if spot.header:
        for node in nodes:
            definition = node.definition
            if definition is None or definition.file.path != path or definition.qualname != spot.function:
                continue
            if node.region.captured or node.region.traced:
                found[node] = DOUBTED if node.region.doubt else CAPTURED
        return found
    for (line, node), how in probe.nodes.items():
        if line == spot.statement.lineno and how & (CAPTURED | DOUBTED):
            found[node] = how
    return found


def _ways(starts: list[Start], targets: list[Node]) -> list[tuple[Start, tuple[Step, ...]]]:
    """Each root that leads to one of the nodes, by a shortest way; explicit captures and short ways first."""
    wanted = set(targets)
    ways = []
    callers: dict[Node, list[Node]] = {}
    seen: set[Node] = {s.node for s in starts}
    queue = list(seen)
    for node in queue:
        for _, callee in node.calls:
            callers.setdefault(callee, []).append(node)
            if callee not in seen:
                seen.add(callee)
                queue.append(callee)
    leading = set(wanted)
    queue = list(wanted)
    for node in queue:
        for caller in callers.get(node, ()):
            if caller not in leading:
                leading.add(caller)
                queue.append(caller)
    for start in starts:
        if start.node not in leading:
            continue
        parents: dict[Node, tuple[Node, int] | None] = {start.node: None}
        line = [start.node]
        for node in line:
            if node in wanted:
                ways.append((start, tuple(steps_to(node, parents))))
                break
            for at, callee in sorted(node.calls, key=lambda call: (call[0], node_order(call[1]))):
                if callee in leading and callee not in parents:
                    parents[callee] = (node, at)
                    line.append(callee)
    return sorted(
        ways, key=lambda w: (not w[0].explicit, len(w[1]), w[0].root.path, w[0].root.line, w[0].root.function)
    )


def _values(answer: Answer, probe: Probe) -> None:
    """What expressions held: in captured code where there is some, else on the host."""
    for expression in sorted(probe.values):
        held = probe.values[expression]
        captured = {v for v, where in held.items() if any(how & (CAPTURED | DOUBTED) for _, how in where)}
        if (answer.captured != "no" and not captured) or all(isinstance(v, (Ext, ModuleRef)) for v in held):
            continue  # that `torch.cuda` is torch.cuda goes without saying
        texts = sorted({in_words(v) for v in (captured if answer.captured != "no" else held)})
        answer.values.append(
            Known(
                expression.line,
                expression.column,
                expression.source,
                tuple(texts[:MAX_KINDS]),
                max(0, len(texts) - MAX_KINDS),
                probe.origins.get(expression, ""),
            )
        )


def _findings(
    answer: Answer, share: Any, starts: list[Start], settings: Settings, project: Any, by_path: dict[str, str]
) -> None:
    """The findings on the lines of the statement: those that a check shows, and the others with the reason."""
    judge = Judge(share.rules)
    reaches: Reaches = {}
    collect(starts, judge, reaches, share.owners())
    capture_sites(share.walker.all_nodes(), judge, reaches)
    here = os.path.abspath(answer.path)
    shown = findings_of(project, reaches, settings, by_path)
    answer.findings = [
        f for f in shown if os.path.abspath(f.path) == here and f.line <= answer.last and f.end_line >= answer.first
    ]
    told = {(f.code, f.line, f.column) for f in answer.findings}
    for spot in sorted(reaches):
        if spot.path != here or not answer.first <= spot.line <= answer.last:
            continue
        if (spot.code, spot.line, spot.column) in told:
            continue
        best = min(reaches[spot].values(), key=Reach.rank)
        confidence = Confidence(best.confidence).label
        answer.hidden.append(
            Hidden(spot.code, confidence, spot.column, best.message, _why_hidden(best, settings, told))
        )
    _seen(answer, share, judge, here)


def _why_hidden(reach: Reach, settings: Settings, told: set[tuple[str, int, int]]) -> str:
    if reach.confidence < settings.min_confidence:
        label = Confidence(reach.confidence).label
        return f"its confidence is {label}, and {settings.min_confidence.label} is asked for (--min-confidence {label})"
    if told:
        return "it is reported together with another finding of the same statement"
    return "it is suppressed, or lies outside of what is reported"


def _seen(answer: Answer, share: Any, judge: Judge, here: str) -> None:
    """Events on the line that became no finding."""
    from cgsafe.events import CompiledCall

    texts: set[str] = set()
    for node in share.walker.all_nodes():
        for event in node.events.values():
            place = event.place
            if place.path != here or not answer.first <= place.line <= answer.last:
                continue
            hits = [hit for e, _, hit in judge.of(node) if e is event]
            if not hits:
                texts.add(f"`{event.source}`: {type(event).__name__}, which no rule that is on minds here")
            elif isinstance(event, CompiledCall) and not answer.findings and not answer.hidden:
                texts.add(f"`{event.source}`: the host made the same call before the capture, so it is warm by then")
    answer.seen = sorted(texts)
