"""Walks a project from its roots and collects what they reach."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cgsafe.findings import Problem
from cgsafe.index.project import Project
from cgsafe.roots import (
    Candidate,
    Start,
    explicit_starts,
    instantiated_names,
    module_candidates,
    site_candidates,
    start_module,
    walk_site,
)
from cgsafe.rule import RuleSet
from cgsafe.settings import Settings
from cgsafe.source import read
from cgsafe.trace import Judge, Reaches, capture_sites, collect
from cgsafe.walk.walker import Walker

Progress = Callable[[str, int, int], None]


@dataclass
class Outcome:
    """What walking a project, or a share of its roots, gave."""

    reaches: Reaches = field(default_factory=dict)
    roots: int = 0
    statistics: dict[str, int] = field(default_factory=dict)
    faults: dict[tuple[str, int], str] = field(default_factory=dict)
    rule_failures: dict[str, str] = field(default_factory=dict)


def analyse(project: Project, settings: Settings, rules: RuleSet, progress: Progress | None) -> Outcome:
    """Walk from all roots."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 12000))
    gc_was_on = gc.isenabled()
    gc.disable()
    try:
        return _analyse(project, settings, rules, progress)
    finally:
        if gc_was_on:
            gc.enable()


def _analyse(project: Project, settings: Settings, rules: RuleSet, progress: Progress | None) -> Outcome:
    walker = Walker(project, _Reader(settings))
    paths = sorted(project.files)
    for candidate in site_candidates(walker, paths):
        walk_site(walker, candidate)
    starts: list[Start] = explicit_starts(walker)
    names = instantiated_names(walker)
    modules = module_candidates(walker, paths)
    top = [c for c in modules if c.name.rpartition(".")[2] not in names]
    rest = [c for c in modules if c.name.rpartition(".")[2] in names]
    starts.extend(_walk(walker, top, progress))
    reached = {(d.file.path, d.qualname) for d in walker.reached}
    starts.extend(_walk(walker, [c for c in rest if (c.path, c.name) not in reached], progress))
    judge = Judge(rules)
    outcome = Outcome(roots=len(starts))
    collect(starts, judge, outcome.reaches)
    nodes: list[Any] = [*walker.nodes.values(), *walker.module_nodes.values(), *walker.capture_bodies.values()]
    capture_sites(nodes, judge, outcome.reaches)
    outcome.statistics = dict(walker.statistics)
    outcome.faults = walker.faults
    outcome.rule_failures = rules.failures
    return outcome


def _walk(walker: Walker, candidates: list[Candidate], progress: Progress | None) -> list[Start]:
    starts = []
    for number, candidate in enumerate(candidates):
        if progress is not None:
            progress("walking", number, len(candidates))
        start = start_module(walker, candidate)
        if start is not None:
            starts.append(start)
    return starts


class _Reader:
    """Texts of known files, read again when the walk wants to see a function."""

    def __init__(self, settings: Settings):
        self.settings = settings

    def __call__(self, path: str) -> str:
        source = read(path, self.settings.stdin)
        return "" if isinstance(source, Problem) else source.text
