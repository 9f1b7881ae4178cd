"""`cgsafe roots`: where captured code starts, what it runs into, and what was considered and left out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cgsafe import __version__
from cgsafe.engine import Shown, prepare
from cgsafe.findings import Problem
from cgsafe.index.project import Project
from cgsafe.report import counted
from cgsafe.report.style import Style, escape
from cgsafe.roots import NO_MODULE, folder_refusal, instantiated_names, module_refusal
from cgsafe.rule import Rule
from cgsafe.run import Outcome, Reader, analyse
from cgsafe.settings import Settings
from cgsafe.walk.walker import Walker

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Listed:
    """A root, with how many findings lie on its paths (each counts for every root that reaches it)."""

    path: str
    line: int
    function: str
    kind: str
    reason: str
    findings: int


@dataclass(frozen=True)
class Refused:
    """A module class whose forward is no root of its own."""

    path: str
    line: int
    name: str
    reason: str


@dataclass
class Inventory:
    """All roots of some paths."""

    roots: list[Listed] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    files: int = 0


def inventory(
    paths: Sequence[str],
    settings: Settings,
    rules: Sequence[type[Rule]],
    everything: bool,
    progress: Progress | None = None,
) -> Inventory:
    """The roots in the given paths; with `everything` also the module classes there that are none, and why."""
    report, project, by_path = prepare(paths, settings, progress)
    result = Inventory(errors=report.errors, files=report.files_checked)
    if not by_path:
        return result
    outcome = analyse(project, settings, rules, progress)
    show = Shown(by_path)
    counts: dict[Any, int] = {}
    for ways in outcome.reaches.values():
        for key, reach in ways.items():
            counts[key] = counts.get(key, 0) + (reach.confidence >= settings.min_confidence)
    for key, reason in sorted(outcome.roots.items()):
        path, line, function, kind = key
        if path in by_path:
            result.roots.append(Listed(show.path(path), line, function, kind, reason, counts.get(key, 0)))
    if everything:
        result.refused = list(_refused(project, settings, outcome, by_path, show))
    return result


def _refused(
    project: Project, settings: Settings, outcome: Outcome, by_path: dict[str, str], show: Shown
) -> Iterator[Refused]:
    walker = Walker(project, Reader(settings), settings.profile)
    made = instantiated_names(walker)
    for path in sorted(by_path):
        file = project.files.get(path)
        if file is None:
            continue
        for qualified in file.index["classes"]:
            definition = walker.definitions.class_(file, qualified)
            reason = module_refusal(walker, definition)
            if reason == NO_MODULE:
                continue
            reason = (
                reason
                or folder_refusal(walker, file)
                or walker.by_package.of(file.module).not_captured_by(file.module, definition.name)
                or _called(outcome, path, qualified, definition.name in made)
            )
            if reason:
                yield Refused(show.path(path), definition.line, qualified, reason)


def _called(outcome: Outcome, path: str, qualified: str, made: bool) -> str:
    reached = made and (path, qualified) in outcome.reached
    return "another module makes and calls it, so it is walked from there" if reached else ""


def as_text(found: Inventory, width: int, color: bool, everything: bool) -> Iterator[str]:
    """The inventory for a terminal."""
    style = Style(color)
    width = min(max(width, 60), 120)
    for root in found.roots:
        count = f"{root.findings} finding{'s' * (root.findings != 1)}"
        place = style(f"{escape(root.path)}:{root.line}", "bold")
        yield f"{place}  {escape(root.function)}  {style(root.kind, 'cyan')}  {count}"
        yield from textwrap.wrap(escape(root.reason), width, initial_indent="    ", subsequent_indent="    ")
    if everything and found.refused:
        yield ""
        yield style("Modules whose forward is no root of its own:", "bold")
        for refused in found.refused:
            yield f"{style(f'{escape(refused.path)}:{refused.line}', 'bold')}  {escape(refused.name)}"
            yield from textwrap.wrap(escape(refused.reason), width, initial_indent="    ", subsequent_indent="    ")
    kinds: dict[str, int] = {}
    for root in found.roots:
        kinds[root.kind] = kinds.get(root.kind, 0) + 1
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    others = f"; {counted(len(found.refused), 'module')} left out" if everything else ""
    yield f"{len(found.roots)} root{'s' * (len(found.roots) != 1)}{f' ({told})' if told else ''}{others}."


def as_json(found: Inventory, everything: bool) -> str:
    """The inventory for programs; keys are only ever added."""
    data: dict[str, Any] = {
        "version": 1,
        "tool": {"name": "cgsafe", "version": __version__},
        "roots": [asdict(r) for r in found.roots],
        "errors": [asdict(e) for e in found.errors],
    }
    if everything:
        data["refused"] = [asdict(r) for r in found.refused]
    return json.dumps(data, indent=2, ensure_ascii=True) + "\n"
