"""`cgsafe baseline`: writes the findings there are into a file, or takes those out of it that are fixed."""

from __future__ import annotations

from typing import Any

import click

from cgsafe.commands import options as common
from cgsafe.commands.common import CLEAN, FAILED, not_empty, prepare, run_engine, say, tell_problems


@click.command(short_help="Write known findings into a file that `check` leaves out.")
@common.paths
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The baseline; `-`: standard output.  [default: that of the configuration, else cgsafe-baseline.tsv]",
)
@click.option(
    "--prune", "--update", is_flag=True, help="Only take out what is fixed, and follow what has moved; add nothing."
)
@common.select
@common.extend_select
@common.ignore
@common.min_confidence("Leave out findings that are less sure than this.")
@common.exclude
@common.hot_path
@common.jobs
@common.no_cache
@common.quiet
def baseline(**options: Any) -> int:
    """Write the findings there are into a baseline, which `cgsafe check --baseline` then leaves out.

    An existing baseline is brought up to date: its entries for files that are not checked stay.
    """
    import os

    from cgsafe.baseline import DEFAULT, Baseline, BaselineError, apply, entry_of, load, text_of
    from cgsafe.config import baseline_of
    from cgsafe.report import ordered_errors
    from cgsafe.report.style import escape
    from cgsafe.terminal import standard_output, write_file

    not_empty(options, "output")
    setup = prepare(options)
    path = options["output"] or baseline_of(setup.config) or DEFAULT
    try:
        # What goes to a pipe, or to standard output (`-`), has nothing to bring up to date.
        is_old = path != "-" and (os.path.isfile(path) or os.path.isdir(path))
        old = load(path) if options["prune"] or is_old else Baseline(path)
    except BaselineError as error:
        raise click.UsageError(str(error)) from None
    report = run_engine(setup, options)
    if report is None:
        return FAILED
    tell_problems(ordered_errors(report))
    if report.errors:
        say(f"{escape(path)} stays as it is, since the check was not complete")
        return FAILED
    if not report.files_checked:
        say(f"nothing was checked: no Python files in {', '.join(map(escape, setup.paths))}")
        return FAILED
    outcome = apply(report, old, report.checked, {rule.code for rule in setup.chosen}, setup.paths)
    added = [] if options["prune"] else [entry_of(finding, path) for finding in report.findings]
    entries = {*outcome.known, *outcome.unchecked, *added}
    try:
        if path == "-":
            with standard_output() as out:
                out.write(text_of(entries))
        else:
            write_file(path, text_of(entries))
    except OSError as error:
        raise click.UsageError(f"--output: cannot write `{escape(path)}`: {error.strerror}") from None
    if not options["quiet"]:
        say(f"{escape(path)}: {len(entries)} known ({len(added)} added, {len(outcome.stale)} taken out)")
    return CLEAN
