"""What commands have in common: options and configuration merged, a run of the engine, exit codes, diagnostics."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cgsafe.baseline import Baseline
    from cgsafe.changes import Changes
    from cgsafe.config import Config
    from cgsafe.findings import Problem, Report
    from cgsafe.rule import Rule
    from cgsafe.settings import Settings

CLEAN, FINDINGS, FAILED = 0, 1, 2


class Setup(NamedTuple):
    """What a run is made of: the command line and the configuration, merged."""

    paths: list[str]
    settings: Settings
    config: Config
    rules: list[type[Rule]]
    faults: list[Problem]

    @property
    def chosen(self) -> list[type[Rule]]:
        from cgsafe.selection import choose

        return choose(self.rules, self.settings.select, self.settings.ignore, self.settings.extend_select)


def prepare(options: dict[str, Any]) -> Setup:
    """Read the configuration, and merge the options of a command into it; those that a command lacks are left out."""
    from cgsafe import config as configuration
    from cgsafe.findings import Confidence
    from cgsafe.selection import split_codes

    paths = list(options["paths"]) or ["."]
    config = load_config()
    rules, faults = loaded_rules(config.plugins)
    codes = {key: split_codes(options.get(key, ())) for key in ("select", "extend_select", "ignore")}
    _known_codes(rules, codes)
    check_config_codes(rules, config)
    if "-" in paths and sys.stdin is None:
        raise click.UsageError("`-`: standard input is closed")
    stdin = sys.stdin.buffer.read() if "-" in paths else None
    contents: dict[str, bytes | None] | None = None
    if name := options.get("stdin_filename"):
        if stdin is None:
            raise click.UsageError("--stdin-filename goes with the path `-`")
        paths = [name if path == "-" else path for path in paths]
        contents, stdin = {os.path.abspath(name): stdin}, None
    level = options.get("min_confidence")
    settings = configuration.merge(
        config,
        **codes,
        exclude=options.get("exclude", ()),
        min_confidence=Confidence[level.upper()] if level else None,
        all_paths=options.get("all_paths", False),
        hot_path=options.get("hot_path", False),
        show_accepted=options.get("show_suppressed", False),
        edits=options.get("output_format") in ("json", "json-lines", "sarif"),
        jobs=options.get("jobs", 0),
        cache=not options.get("no_cache", False),
        stdin=stdin,
        contents=contents,
    )
    return Setup(paths, settings, config, rules, faults)


def not_empty(options: dict[str, Any], *names: str) -> None:
    """Refuse an option that was given without a value, as by a script whose variable is not set."""
    for name in names:
        if options[name] == "":
            raise click.UsageError(f"--{name.replace('_', '-')}: the value is empty")


def load_config() -> Config:
    """The configuration; one that cannot be used is a usage error."""
    from cgsafe import config as configuration

    try:
        return configuration.load()
    except configuration.ConfigError as error:
        from cgsafe.report.style import escape

        raise click.UsageError(escape(str(error))) from None


def loaded_rules(plugins: Collection[str] | None = None) -> tuple[list[type[Rule]], list[Problem]]:
    """All rules, and what kept others from being loaded."""
    from cgsafe.findings import Problem
    from cgsafe.rule import load_rules

    rules, messages = load_rules() if plugins is None else load_rules(plugins)
    if not rules:
        raise click.ClickException("; ".join(messages) or "no rules are installed: is the installation complete?")
    return rules, [Problem("", 0, message) for message in messages]


def _known_codes(rules: Sequence[type[Rule]], codes: dict[str, tuple[str, ...]]) -> None:
    from cgsafe.selection import unknown_codes

    for key, some in codes.items():
        if messages := unknown_codes(some, rules):
            raise click.UsageError(f"--{key.replace('_', '-')}: {'; '.join(messages)}")


def check_config_codes(rules: Sequence[type[Rule]], config: Config) -> None:
    """Refuse a configuration that names codes which no rule has."""
    from cgsafe.report.style import escape
    from cgsafe.selection import unknown_codes

    for key, codes in config.codes():
        if messages := unknown_codes(codes, rules):
            raise click.UsageError(escape(str(config.error(key, "; ".join(messages)))))


def run_engine(setup: Setup, options: dict[str, Any]) -> Report | None:
    """Let the engine check; None after an internal error, which has then been told."""
    from cgsafe.terminal import Bar

    chosen = setup.chosen
    if not chosen:
        raise click.UsageError("nothing was checked: no rule is left after --select and --ignore")
    bar = Bar(sys.stderr.isatty() and not options["quiet"])
    try:
        from cgsafe import engine

        report = engine.check(setup.paths, setup.settings, chosen, bar)
        report.errors.extend(setup.faults)
        return report
    except Exception as error:  # the last line of defence: whatever it is, the exit code must not say "findings"
        bar.close()
        if options.get("verbose"):
            import traceback

            tell(traceback.format_exc())
        hint = "" if options.get("verbose") else " (-v shows where)"
        say(f"internal error: {type(error).__name__}: {error}{hint}")
        return None
    finally:
        bar.close()


def baseline_for(setup: Setup, options: dict[str, Any]) -> Baseline | None:
    """The baseline that the command line or the configuration names."""
    from cgsafe import baseline
    from cgsafe.config import baseline_of

    path = options.get("baseline") or (None if options.get("no_baseline") else baseline_of(setup.config))
    if path is None:
        return None
    try:
        return baseline.load(path)
    except baseline.BaselineError as error:
        raise click.UsageError(str(error)) from None


def apply_baseline(report: Report, baseline: Baseline, setup: Setup) -> None:
    """Leave out what is known; tell what of the baseline is not true any more."""
    from cgsafe.baseline import apply
    from cgsafe.report import counted
    from cgsafe.report.style import escape

    outcome = apply(report, baseline, report.checked, {rule.code for rule in setup.chosen}, setup.paths)
    report.stale = len(outcome.stale) if not report.errors else 0
    shown = escape(baseline.path)
    if baseline.conflicts:
        lines = ", ".join(map(str, baseline.conflicts))
        report.notes.append(f"{shown}: marks of a merge conflict on lines {lines}; the entries of all sides count")
    if report.stale:
        which = counted(report.stale, "entry").replace("entrys", "entries")
        report.notes.append(f"{shown}: {which} no longer found; `cgsafe baseline --prune -o {shown}` removes them")


def changes_for(setup: Setup, options: dict[str, Any]) -> tuple[Setup, Changes | None]:
    """The change that the findings are narrowed to, and what is then to be checked."""
    if not options["diff_base"] and not options["staged"]:
        return setup, None
    from dataclasses import replace

    from cgsafe import changes
    from cgsafe.report.style import escape

    try:
        if options["staged"]:
            found = changes.staged(setup.paths, setup.settings.exclude)
        else:
            found = changes.since(options["diff_base"], setup.paths, setup.settings.exclude)
    except changes.GitError as error:
        option = "--staged" if options["staged"] else "--diff-base"
        raise click.UsageError(f"{option}: {escape(str(error))}") from None
    if found.contents:
        setup = setup._replace(settings=replace(setup.settings, contents=found.contents))
    return setup, found


def narrow_to(changes: Changes, report: Report, setup: Setup, options: dict[str, Any]) -> None:
    """Leave out the findings that have nothing to do with a change."""
    from cgsafe.changes import narrow

    narrow(report, changes, setup.settings, lambda settings: run_engine(setup._replace(settings=settings), options))


def watch_files(setup: Setup, options: dict[str, Any]) -> int:
    """Check again whenever a file changes, each time in a process of its own; ends when it is interrupted."""
    import subprocess

    from cgsafe.watch import looker, watch

    if setup.settings.stdin is not None or setup.settings.contents:
        raise click.UsageError("--watch cannot look at standard input")
    command = [sys.executable, "-m", "cgsafe", *(word for word in sys.argv[1:] if word != "--watch")]

    def run() -> None:
        if sys.stdout.isatty():
            click.clear()
        sys.stdout.flush()
        subprocess.run(command, check=False)
        if not options["quiet"]:
            say("waiting for changes; Ctrl-C ends")

    watch(run, looker(setup.paths, setup.settings.exclude))
    return CLEAN


def say(message: str) -> None:
    """A diagnostic, on standard error. What checked files put into it cannot move the cursor or change colours."""
    from cgsafe.terminal import harmless

    tell(f"cgsafe: {harmless(message)}")


def tell(text: str) -> None:
    """A line on standard error. Where nobody reads it any more, the exit code has to do."""
    from cgsafe.terminal import standard_output

    with standard_output(sys.stderr) as out:
        out.write(f"{text}\n")


def tell_problems(problems: Iterable[Problem]) -> None:
    """Tell what could not be checked, and where."""
    from cgsafe.report.style import escape

    for problem in problems:
        place = f"{escape(problem.path)}{f':{problem.line}' if problem.line else ''}: " if problem.path else ""
        say(f"{place}{escape(problem.message)}")


def tell_faults(faults: Sequence[Problem]) -> int:
    """Tell which rules could not be loaded; the exit code."""
    tell_problems(faults)
    return FAILED if faults else CLEAN
