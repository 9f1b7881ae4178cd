"""Runs a check from paths to report: sources, index, walk, rules, findings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from cgsafe.findings import Confidence, Finding, Fix, Problem, Report, Root, Step
from cgsafe.index.project import Project
from cgsafe.rule import Rule
from cgsafe.settings import Settings
from cgsafe.source import STDIN, discover, known_files
from cgsafe.trace import Reach, Reaches, fingerprint

Progress = Callable[[str, int, int], None]


def check(
    paths: Sequence[str], settings: Settings, rules: Sequence[type[Rule]], progress: Progress | None = None
) -> Report:
    """Check the given files and folders; reports what lies in them and what roots in them run into elsewhere."""
    from cgsafe.run import analyse

    report, project, by_path = prepare(paths, settings, progress)
    if not by_path:
        return report
    outcome = analyse(project, settings, rules, progress)
    report.roots = outcome.root_count
    report.statistics.update(outcome.statistics)
    for code, message in sorted(outcome.rule_failures.items()):
        report.errors.append(Problem("", 0, f"rule {code} failed and was left out: {message}"))
    for (path, line), message in sorted(outcome.faults.items()):
        report.errors.append(Problem(by_path.get(path, path), line, message))
    for path, line in sorted(outcome.cuts):
        report.notes.append(f"{by_path.get(path, path)}:{line}: calls nest too deeply here to follow what lies below")
    _findings(report, project, outcome.reaches, settings, by_path)
    if settings.edits:
        from cgsafe.fixes import add_edits

        add_edits(report, settings)
    return report


def prepare(
    paths: Sequence[str], settings: Settings, progress: Progress | None = None
) -> tuple[Report, Project, dict[str, str]]:
    """Find and index the files: a report of what was wrong with them, their project, and how to show their paths."""
    from cgsafe.index.load import load_project

    report = Report()
    shown, problems = discover(paths, settings.exclude)
    report.errors.extend(problems)
    by_path = {_real(path): path for path in shown}
    everything = sorted({*known_files(paths, settings.exclude), *by_path})
    if not shown:
        return report, Project(), {}
    project, faults = load_project(everything, settings, progress)
    for fault in faults:
        if _real(fault.path) in by_path:
            report.errors.append(Problem(by_path[_real(fault.path)], fault.line, fault.message))
    for path, file in project.files.items():
        file.reported = path in by_path
    report.files_known = len(project.files)
    report.files_checked = sum(file.reported for file in project.files.values())
    return report, project, by_path


def _real(path: str) -> str:
    return path if path == STDIN else os.path.abspath(path)


def findings_of(project: Project, reaches: Reaches, settings: Settings, by_path: dict[str, str]) -> list[Finding]:
    """The findings that a check shows of what was reached."""
    report = Report()
    _findings(report, project, reaches, settings, by_path)
    return report.findings


def _findings(report: Report, project: Project, reaches: Reaches, settings: Settings, by_path: dict[str, str]) -> None:
    show = Shown(by_path)
    groups: dict[tuple[str, str, tuple[int, int]], int] = {}  # -> position among the findings
    ordinals: dict[tuple[str, str, str, str], int] = {}
    for spot in sorted(reaches):
        ways = list(reaches[spot].values())
        inside = project.files[spot.path].reported if spot.path in project.files else False
        if not inside:
            ways = [w for w in ways if _reported(project, w.root.path)]
            if not ways:
                continue
        ways = sorted(ways, key=Reach.rank)
        best = ways[0]
        file = project.files.get(spot.path)
        module = file.module if file is not None else spot.path
        key = (spot.code, module, best.function, best.source)
        ordinals[key] = ordinals.get(key, 0) + 1
        if best.confidence < settings.min_confidence:
            report.hidden += 1
            continue
        if best.group is not None and not best.accepted:
            held = groups.get((spot.code, spot.path, best.group))
            if held is not None:
                report.findings[held] = _widened(report.findings[held], best)
                continue
            groups[(spot.code, spot.path, best.group)] = len(report.findings)
        also: tuple[tuple[Root, tuple[Step, ...]], ...] = ()
        if settings.all_paths:
            also = tuple((show.root(w.root), show.steps(w.steps)) for w in ways[1:])
        (report.accepted if best.accepted else report.findings).append(
            Finding(
                code=spot.code,
                name=best.name,
                severity=best.severity,
                confidence=Confidence(best.confidence),
                message=best.message,
                path=show.path(spot.path),
                line=spot.line,
                column=spot.column,
                end_line=best.end[0],
                end_column=best.end[1],
                function=best.function,
                root=show.root(best.root),
                trace=show.steps(best.steps),
                root_count=len(ways),
                also=also,
                fix=_fix(ways),
                fingerprint=fingerprint(*key, ordinals[key]),
                outside=not inside,
                region=best.region,
                accepted=best.accepted,
            )
        )
    report.findings.sort(key=lambda f: (f.path, f.line, f.column, f.code))


def _fix(ways: list[Reach]) -> Fix | None:
    """The fix of the best way; where others come with other values, and propose another edit, it is by hand."""
    fix = ways[0].fix
    if fix is not None and fix.transform and any(w.fix is None or w.fix.transform != fix.transform for w in ways[1:]):
        return Fix(fix.description)
    return fix


def _widened(finding: Finding, other: Reach) -> Finding:
    """One finding for a statement of which a further operand is hazardous."""
    end = max((finding.end_line, finding.end_column), other.end)
    confidence = max(finding.confidence, Confidence(other.confidence))
    return replace(finding, end_line=end[0], end_column=end[1], confidence=confidence)


def _reported(project: Project, path: str) -> bool:
    file = project.files.get(path)
    return file is not None and file.reported


class Shown:
    """Paths as people gave them; others in the same manner, absolute or relative to the working directory."""

    def __init__(self, by_path: dict[str, str]):
        self.by_path = by_path
        self.absolute = bool(by_path) and all(os.path.isabs(shown) for shown in by_path.values())

    def path(self, path: str) -> str:
        shown = self.by_path.get(path)
        if shown is not None:
            return shown
        return path if self.absolute or path == STDIN else os.path.relpath(path)

    def root(self, root: Root) -> Root:
        return Root(root.kind, root.reason, self.path(root.path), root.line, root.function)

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(Step(self.path(s.path), s.line, s.function, s.note) for s in steps)
