"""What the language server knows and says, without the protocol: checks of open documents, texts, edits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING

from cgsafe.add_ignores import with_ignores
from cgsafe.findings import Edit, Finding
from cgsafe.report.style import escape

if TYPE_CHECKING:
    from cgsafe.config import Config

Check = Callable[[Sequence[str], Mapping[str, bytes]], "Answer"]


@dataclass
class Answer:
    """The outcome of a check of some documents."""

    findings: dict[str, list[Finding]] = field(default_factory=dict)  # by absolute path
    problems: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # code -> what the GPU says
    unread: set[str] = field(default_factory=set)  # absolute paths of documents that are not Python at the moment


def check(paths: Sequence[str], contents: Mapping[str, bytes]) -> Answer:
    """Check documents as they are in the editor, in a process of its own: a walk leaves much memory behind."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(check_here, list(paths), dict(contents)).result()


def check_here(paths: Sequence[str], contents: Mapping[str, bytes]) -> Answer:
    """Check documents in this process. Whatever goes wrong becomes a problem, for an editor must not lose its server.

    Each document is checked by the configuration of its own folder; those that share one are checked together.
    """
    from cgsafe import config

    answer = Answer()
    together: dict[str, tuple[config.Config, list[str]]] = {}
    for path in paths:
        try:
            found = config.load(os.path.dirname(path))
            together.setdefault(found.path, (found, []))[1].append(path)
        except Exception as error:
            answer.problems.append(f"{type(error).__name__}: {error}")
    for found, some in together.values():
        _check_by(found, some, contents, answer)
    answer.problems = list(dict.fromkeys(answer.problems))
    return answer


def _check_by(found: Config, paths: Sequence[str], contents: Mapping[str, bytes], answer: Answer) -> None:
    """Check documents by one configuration."""
    from cgsafe import config, engine
    from cgsafe.rule import load_rules
    from cgsafe.selection import choose

    try:
        settings = config.merge(found, contents=dict(contents), jobs=1, edits=True)
        rules, problems = load_rules(found.plugins)
        chosen = choose(rules, settings.select, settings.ignore, settings.extend_select)
        report = engine.check(paths, settings, chosen)
        if (known := config.baseline_of(found)) is not None:
            from cgsafe.baseline import apply, load

            apply(report, load(known), report.checked, {rule.code for rule in chosen}, paths)
    except Exception as error:
        answer.problems.append(f"{type(error).__name__}: {error}")
        return
    for finding in report.findings:
        answer.findings.setdefault(os.path.abspath(finding.path), []).append(finding)
    answer.unread |= {os.path.abspath(p.path) for p in report.errors if p.line} - set(
        map(os.path.abspath, report.checked)
    )
    answer.problems += [*problems, *(f"{p.path}:{p.line}: {p.message}" for p in report.errors)]
    answer.texts.update({rule.code: rule.error for rule in rules if rule.error})


def explanation(finding: Finding, error: str = "") -> str:
    """What is shown where the pointer rests on a finding: what, the path that leads there, what to do."""
    lines = [f"{finding.code} {finding.name} ({finding.severity.value}, {finding.confidence.label} confidence)"]
    lines += ["", finding.message]
    if finding.trace:
        root = finding.root
        lines += ["", "path:", f"  {root.path}:{root.line} {root.function}: {root.reason}"]
        lines += [f"  {step.path}:{step.line} {step.function} {step.note}".rstrip() for step in finding.trace]
    if finding.fix is not None:
        lines += ["", f"fix: {finding.fix.description}"]
    if error:
        lines += ["", f"the GPU says: {' '.join(error.split())}"]
    return "\n".join(escape(line) for line in lines)


def at(findings: Sequence[Finding], line: int, column: int) -> list[Finding]:
    """The findings at a place (from 1)."""
    return [f for f in findings if (f.line, f.column) <= (line, column) <= (f.end_line, f.end_column)]


def overlapping(findings: Sequence[Finding], first: int, last: int) -> list[Finding]:
    """The findings on some lines (from 1)."""
    return [f for f in findings if f.line <= last and f.end_line >= first]


def ignoring(path: str, text: str, finding: Finding) -> Edit | None:
    """The edit that silences a finding by a comment."""
    changed = with_ignores(text, [(finding.line, finding.code)])
    old, new = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = next((n for n, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
    if first is None:
        return None
    if len(new) > len(old):
        return Edit(path, first + 1, 1, first + 1, 1, new[first])
    return Edit(path, first + 1, 1, first + 1, len(old[first].rstrip("\r\n")) + 1, new[first].rstrip("\r\n"))
