"""Runs a check from paths to report: sources, index, walk, rules, findings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from cgsafe.events import Comment
from cgsafe.findings import Confidence, Finding, Fix, Problem, Report, Root, Step, Suppression
from cgsafe.index.project import File, Project
from cgsafe.rule import Hit, Rule, RuleSet, load_rules
from cgsafe.selection import PerFileIgnores, severity_of
from cgsafe.settings import Settings
from cgsafe.source import STDIN, Source, discover, known_files, read
from cgsafe.suppressions import Suppressions, about_comments
from cgsafe.trace import Reach, Reaches, Spot, fingerprint

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
    _Findings(report, project, settings, rules, by_path).collect(outcome.reaches)
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
    shown, everything, problems = _files(paths, settings)
    report.errors.extend(problems)
    by_path = {_real(path): path for path in shown}
    if not shown:
        return report, Project(), {}
    project, faults = load_project(everything, settings, progress)
    for fault in faults:
        if _real(fault.path) in by_path:
            report.errors.append(Problem(by_path[_real(fault.path)], fault.line, fault.message))
    for path, file in project.files.items():
        file.reported = path in by_path
    report.checked = sorted(path for real, path in by_path.items() if real in project.files)
    report.files_known = len(project.files)
    report.files_checked = sum(file.reported for file in project.files.values())
    return report, project, by_path


def _files(paths: Sequence[str], settings: Settings) -> tuple[list[str], list[str], list[Problem]]:
    """The files to report on, as they were given; all files to know of, absolute; and what was wrong with the paths."""
    contents = settings.contents or {}
    virtual = [p for p in paths if contents.get(_real(p)) is not None and not os.path.exists(p)]
    shown, problems = discover([p for p in paths if p not in virtual], settings.exclude)
    known = {*known_files(paths, settings.exclude), *map(_real, shown)}
    if contents:
        gone = {path for path, text in contents.items() if text is None}
        shown = [path for path in shown if _real(path) not in gone]
        more = {path for path, text in contents.items() if text is not None}
        known = (known - gone) | more
        virtual += [path for path in _below(paths, more - set(map(_real, shown))) if not os.path.exists(path)]
    return sorted({*shown, *virtual}), sorted(known), problems


def _below(paths: Sequence[str], files: Iterable[str]) -> list[str]:
    """Those of some absolute files that lie in the given folders, named as these are."""
    found = []
    for file in sorted(files):
        for path in paths:
            inside = os.path.relpath(file, path) if path != STDIN else ".."
            if inside != "." and not inside.startswith(".."):
                found.append(os.path.normpath(os.path.join(path, inside)))
                break
    return found


def _real(path: str) -> str:
    return path if path == STDIN else os.path.abspath(path)


def findings_of(project: Project, reaches: Reaches, settings: Settings, by_path: dict[str, str]) -> list[Finding]:
    """The findings that a check shows of what was reached."""
    report = Report()
    _Findings(report, project, settings, (), by_path).collect(reaches)
    return report.findings


class _Findings:
    """Makes findings of what the roots reach, and sorts out those that are not to be reported."""

    def __init__(
        self,
        report: Report,
        project: Project,
        settings: Settings,
        rules: Sequence[type[Rule]],
        by_path: dict[str, str],
    ):
        self.report = report
        self.project = project
        self.settings = settings
        self.rules = rules
        self.show = Shown(by_path)
        self.suppressions = Suppressions(self._text)
        self.per_file = PerFileIgnores(settings.per_file_ignores)

    def collect(self, reaches: Reaches) -> None:
        """Fill the report."""
        report = self.report
        groups: dict[tuple[str, str, tuple[int, int], bool], int] = {}  # -> position among the findings
        ordinals: dict[tuple[str, str, str, str], int] = {}
        for spot in sorted(reaches):
            ways = list(reaches[spot].values())
            file = self.project.files.get(spot.path)
            inside = file.reported if file is not None else False
            if not inside:
                ways = [w for w in ways if _reported(self.project, w.root.path)]
                if not ways:
                    continue
            ways = sorted(ways, key=Reach.rank)
            best = ways[0]
            module = file.module if file is not None else spot.path
            key = (spot.code, module, best.function, best.source)
            ordinals[key] = ordinals.get(key, 0) + 1
            finding = self._finding(spot, ways, fingerprint(*key, ordinals[key]), not inside)
            suppression = self._suppression(spot, file)
            if best.confidence < self.settings.min_confidence:
                if suppression is None:
                    report.unsure.append(finding)
                continue
            silenced = suppression is not None
            found = report.suppressed if silenced else report.accepted if best.accepted else report.findings
            if best.group is not None and not best.accepted:
                group = (spot.code, spot.path, best.group, silenced)
                held = groups.get(group)
                if held is not None:
                    found[held] = _widened(found[held], best)
                    continue
                groups[group] = len(found)
            found.append(replace(finding, suppression=suppression))
        self._comments()
        report.hidden = len(report.unsure)
        for findings in (report.findings, report.accepted, report.suppressed, report.unsure):
            findings.sort(key=lambda f: (f.path, f.line, f.column, f.code))

    def _finding(self, spot: Spot, ways: list[Reach], name: str, outside: bool) -> Finding:
        best, show = ways[0], self.show
        also: tuple[tuple[Root, tuple[Step, ...]], ...] = ()
        if self.settings.all_paths:
            also = tuple((show.root(w.root), show.steps(w.steps)) for w in ways[1:])
        return Finding(
            code=spot.code,
            name=best.name,
            severity=severity_of(spot.code, self.settings.severity) or best.severity,
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
            fix=show.fix(_fix(ways)),
            fingerprint=name,
            outside=outside,
            region=best.region,
            accepted=best.accepted,
            source=best.source,
        )

    def _suppression(self, spot: Spot, file: File | None) -> Suppression | None:
        """What silences a spot."""
        if file is None:
            return None
        if file.index.get("commented"):
            found = self.suppressions.find(spot.path, spot.code, spot.line)
            if found is not None:
                return found
        return self.per_file.find(spot.path, spot.code)

    def _text(self, path: str) -> str:
        source = read(path, self.settings.stdin, self.settings.contents)
        return source.text if isinstance(source, Source) else ""

    def _comments(self) -> None:
        """Findings about the comments themselves, in the given files."""
        own = [rule for rule in self.rules if about_comments(rule)]
        files = sorted(p for p, f in self.project.files.items() if f.reported and f.index.get("commented"))
        if not own or not files:
            return
        judges = RuleSet(own)
        every = load_rules()[0] or list(self.rules)
        ran = set() if self.report.errors else {rule.code for rule in self.rules}
        for path in files:
            comments = self.suppressions.of(path)
            if comments is None:
                continue
            looked_for = ran - {rule.code for rule in self.rules if self.per_file.find(path, rule.code)}
            for event in comments.events(looked_for, every, self.settings.require_reason):
                for rule, hit in judges.judge(event):
                    finding = self._about_comment(event, rule, hit)
                    suppression = comments.find(finding.code, finding.line, True) or self.per_file.find(
                        path, finding.code
                    )
                    if suppression is None:
                        self.report.findings.append(finding)
                    else:
                        self.report.suppressed.append(replace(finding, suppression=suppression))
        for code, message in sorted(judges.failures.items()):
            self.report.errors.append(Problem("", 0, f"rule {code} failed and was left out: {message}"))

    def _about_comment(self, event: Comment, rule: Rule, hit: Hit) -> Finding:
        place = event.place
        path = self.show.path(place.path)
        file = self.project.files[place.path]
        return Finding(
            code=rule.code,
            name=rule.name,
            severity=severity_of(rule.code, self.settings.severity) or hit.severity or rule.severity,
            confidence=event.confidence,
            message=hit.message,
            path=path,
            line=place.line,
            column=place.column,
            end_line=place.end_line,
            end_column=place.end_column,
            function="",
            root=Root("comment", "a comment of the checked code", path, place.line, ""),
            trace=(),
            fix=self.show.fix(hit.fix),
            fingerprint=fingerprint(rule.code, file.module, hit.message, event.source, 1),
            source=event.source,
        )


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

    def fix(self, fix: Fix | None) -> Fix | None:
        if fix is None or not fix.edits:
            return fix
        return replace(fix, edits=tuple(replace(edit, path=self.path(edit.path)) for edit in fix.edits))

    def steps(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(Step(self.path(s.path), s.line, s.function, s.note) for s in steps)
