"""The command line: `cgsafe check`, `cgsafe rules`, `cgsafe explain`; the other commands are in `cgsafe.commands`.

What only a check needs is imported inside the functions, so that `cgsafe --version` and shell completion stay instant.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from cgsafe import __version__, questions
from cgsafe.commands import options as common
from cgsafe.commands.common import (
    CLEAN,
    FAILED,
    FINDINGS,
    apply_baseline,
    baseline_for,
    changes_for,
    loaded_rules,
    narrow_to,
    not_empty,
    prepare,
    run_engine,
    say,
    tell,
    tell_faults,
    tell_problems,
    watch_files,
)

if TYPE_CHECKING:
    from cgsafe.baseline import Baseline
    from cgsafe.commands.common import Setup
    from cgsafe.findings import Report
    from cgsafe.report import Options
    from cgsafe.settings import Settings

INTERRUPTED = 130

# cgsafe.report.FORMATS, without importing it
FORMAT_NAMES = ("text", "concise", "grouped", "json", "json-lines", "sarif", "github", "gitlab", "junit", "html")

GROUP_EPILOG = "Start with `cgsafe check FOLDER`. `cgsafe COMMAND --help` tells the options of a command."

EPILOG = """\
\b
Exit codes:
  0    checked, nothing found
  1    checked, and there are findings
  2    not, or not completely, checked: a usage error, an internal error, no
       Python files, or a file that could not be read or understood. Findings
       in the other files are still reported.
  130  interrupted
"""


@click.group(
    cls=common.Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=GROUP_EPILOG,
)
@click.version_option(__version__, "-V", "--version", prog_name="cgsafe", message="%(prog)s %(version)s")
def cli() -> None:
    """Find CUDA-graph hazards in PyTorch code before a GPU is started."""


@cli.command(epilog=EPILOG, short_help="Check files and folders.")
@common.paths
@common.select
@common.extend_select
@common.ignore
@common.min_confidence("Leave out findings that are less sure than this.")
@common.exclude
@common.output_format(FORMAT_NAMES)
@click.option("-o", "--output", metavar="FILE", help="Write the findings to this file.  [default: standard output]")
@click.option("--fix", is_flag=True, help="Apply the safe fixes, then report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: those too that are to be reviewed.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@common.hot_path
@click.option("--all-paths", is_flag=True, help="Show one path from each capture root, not just the shortest of all.")
@common.jobs
@click.option(
    "--show-suppressed",
    is_flag=True,
    help="Also show findings that a comment, the configuration, the baseline or (with --hot-path) the code accepts.",
)
@click.option("--baseline", metavar="FILE", help="Leave out the findings that this file holds; see `cgsafe baseline`.")
@click.option("--no-baseline", is_flag=True, help="Do not use the baseline that the configuration names.")
@click.option(
    "--diff-base", metavar="REF", help="Only what changed since the branch left REF, or what that change causes."
)
@click.option("--staged", is_flag=True, help="Only what is staged for the next commit, or what that causes.")
@click.option(
    "--stdin-filename", metavar="FILE", help="Standard input (`-`) is what this file holds, or is going to hold."
)
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, until interrupted.")
@click.option("--add-ignore", is_flag=True, help="Write comments into the code that silence the findings there are.")
@click.option("--reason", metavar="TEXT", help="The reason that --add-ignore writes.")
@common.no_cache
@click.option("--statistics", is_flag=True, help="Also tell counts (standard error; part of JSON).")
@common.color
@common.quiet
@click.option("-v", "--verbose", is_flag=True, help="More about the run; tracebacks of internal errors.")
def check(**options: Any) -> int:
    """Check files and folders; `-` reads standard input. Without PATH: the current folder."""
    not_empty(options, "baseline", "diff_base", "output", "stdin_filename")
    _exclusive(options)
    setup = prepare(options)
    _writable(options["output"])
    if options["watch"]:
        return watch_files(setup, options)
    baseline = baseline_for(setup, options)
    if options["fix"] or options["diff"]:
        return _fix(setup, baseline, options)
    setup, changes = changes_for(setup, options)
    report = run_engine(setup, options)
    if report is None:
        return FAILED
    if baseline is not None:
        apply_baseline(report, baseline, setup)
    if changes is not None:
        narrow_to(changes, report, setup, options)
    if options["add_ignore"]:
        return _add_ignores(report, options)
    return _tell(report, setup, options)


def _exclusive(options: dict[str, Any]) -> None:
    """Refuse options that do not go together."""
    for one, others in (
        ("quiet", ("verbose",)),
        ("fix", ("diff",)),
        ("diff_base", ("staged",)),
        ("stdin_filename", ("diff_base", "staged", "fix", "diff", "add_ignore")),
        ("fix", ("diff_base", "staged", "add_ignore")),
        ("diff", ("diff_base", "staged", "add_ignore")),
        ("staged", ("add_ignore",)),
    ):
        for other in others:
            if options[one] and options[other]:
                raise click.UsageError(f"--{one.replace('_', '-')} and --{other.replace('_', '-')} exclude each other")
    if options["unsafe_fixes"] and not options["fix"] and not options["diff"]:
        raise click.UsageError("--unsafe-fixes needs --fix or --diff")
    if options["reason"] and not options["add_ignore"]:
        raise click.UsageError("--reason goes with --add-ignore")


def _fix(setup: Setup, baseline: Baseline | None, options: dict[str, Any]) -> int:
    """Apply the fixes, or show them; the exit code."""
    from dataclasses import replace

    from cgsafe.fixes.apply import Failed, fix
    from cgsafe.report import counted

    settings = setup.settings

    def again(changed: Settings) -> Report:
        report = run_engine(setup._replace(settings=changed), options)
        if report is None:
            raise Failed
        if baseline is not None:
            apply_baseline(report, baseline, setup)
        return report

    try:
        fixed = fix(again, settings, options["unsafe_fixes"], options["fix"])
    except Failed:
        _pass_on(settings.stdin, options)
        return FAILED
    count = f"{counted(fixed.count, 'finding')} in {counted(len(fixed.files), 'file')}"
    if options["diff"]:
        code = _tell(fixed.report, setup, options, fixed.diff())
        if not options["quiet"]:
            tell(f"Would fix {count}." if fixed.count else "Nothing to fix.")
        return FAILED if code == FAILED else FINDINGS if fixed.files else CLEAN
    after = fixed.stdin() or settings.stdin
    _pass_on(after, options)
    code = _tell(fixed.report, setup._replace(settings=replace(settings, stdin=after)), options)
    if not options["quiet"]:
        tell(f"Fixed {count}.")
    return code


def _pass_on(stdin: bytes | None, options: dict[str, Any]) -> None:
    """With --fix standard output gets the text of standard input, fixed or not: an editor puts it back into place."""
    from cgsafe.terminal import standard_output

    if stdin is not None and options["fix"]:
        with standard_output() as out:
            out.buffer.write(stdin)
            out.buffer.flush()


def _writable(output: str | None) -> None:
    """Refuse an output file that cannot be written before the work is done, not after it."""
    if not output or output == "-":
        return
    folder = os.path.dirname(os.path.realpath(output))
    if not os.path.isdir(folder) and not os.path.exists(output):
        raise click.UsageError(f"--output: there is no folder `{folder}`")
    if os.path.isdir(output):
        raise click.UsageError(f"--output: `{output}` is a folder")


def _tell(report: Report, setup: Setup, options: dict[str, Any], instead: str | None = None) -> int:
    """Write findings (or a text instead of them) and diagnostics; the exit code."""
    from cgsafe.report import Options, ordered_errors
    from cgsafe.report.style import escape
    from cgsafe.terminal import UNKNOWN_WIDTH, wants_color, width_of

    settings = setup.settings
    to_file = options["output"] not in (None, "-")
    color = options["color"] == "always" if to_file else wants_color(options["color"], sys.stdout)
    _write(
        report,
        Options(
            color=color,
            width=UNKNOWN_WIDTH if to_file else width_of(sys.stdout),
            quiet=options["quiet"],
            verbose=options["verbose"],
            statistics=options["statistics"],
            min_confidence=settings.min_confidence.label,
            stdin=settings.stdin,
            rules={rule.code: rule for rule in setup.rules},
            show_suppressed=options["show_suppressed"],
            contents=settings.contents,
        ),
        options,
        instead,
        sys.stderr if options["fix"] and settings.stdin is not None else sys.stdout,
    )
    if not options["quiet"]:
        for note in report.notes:
            say(note)
    tell_problems(ordered_errors(report))
    if options["statistics"] and options["output_format"] != "json":
        from cgsafe.report.statistics import lines

        for line in lines(report):
            tell(line)
    if not report.files_checked and not report.errors:
        say(f"nothing was checked: no Python files in {', '.join(map(escape, setup.paths))}")
        return FAILED
    if report.errors:
        return FAILED
    return FINDINGS if report.findings else CLEAN


def _add_ignores(report: Report, options: dict[str, Any]) -> int:
    """Silence the findings by comments in the code; the exit code."""
    from cgsafe.add_ignores import add_ignores
    from cgsafe.report import counted, ordered, ordered_errors

    found = [finding for finding in ordered(report) if not finding.outside and finding.trace]
    try:
        silenced, files, problems = add_ignores(found, options["reason"] or "")
    except ValueError as error:
        raise click.UsageError(f"--reason: {error}") from None
    tell_problems([*ordered_errors(report), *problems])
    if not options["quiet"]:
        left = len(report.findings) - silenced
        rest = f"; {counted(left, 'finding')} left as {'it is' if left == 1 else 'they are'}" if left else ""
        say(f"silenced {counted(silenced, 'finding')} in {counted(files, 'file')}{rest}")
    return FAILED if report.errors or problems else CLEAN


def _write(report: Report, rendering: Options, options: dict[str, Any], instead: str | None, stream: TextIO) -> None:
    from cgsafe.report import renderer
    from cgsafe.terminal import harmless, standard_output, write_file

    def render(out: TextIO) -> None:
        if instead is None:
            renderer(options["output_format"])(report, out, rendering)
        else:
            out.write(harmless(instead) if out.isatty() else instead)

    if options["output"] in (None, "-"):
        with standard_output(stream) as out:
            render(out)
        return
    buffer = io.StringIO()
    render(buffer)
    try:
        write_file(options["output"], buffer.getvalue())
    except OSError as error:
        raise click.UsageError(f"--output: cannot write `{options['output']}`: {error.strerror}") from None


@cli.command(short_help="List all rules.")
@common.output_format()
@common.color
def rules(output_format: str, color: str) -> int:
    """List all rules, also those of other packages."""
    from cgsafe.catalogue import rules_json, rules_table
    from cgsafe.terminal import standard_output, wants_color, width_of

    found, faults = loaded_rules()
    with standard_output() as out:
        if output_format == "json":
            out.write(rules_json(found))
        else:
            out.writelines(f"{line}\n" for line in rules_table(found, width_of(out), wants_color(color, out)))
    return tell_faults(faults)


@cli.command(short_help="Explain rules, with examples.")
@click.argument("codes", nargs=-1, required=True, metavar="CODE...", shell_complete=common.complete_code)
@click.option("--all-examples", is_flag=True, help="Show every example, not just one bad and one good one.")
@common.color
def explain(codes: tuple[str, ...], color: str, all_examples: bool) -> int:
    """Explain rules: why, what the GPU says, what to do, examples.

    CODE is the code of a rule (CG101), its name (tensor-truth-value), or a prefix of codes (CG1).
    """
    from cgsafe.catalogue import explanation
    from cgsafe.selection import find_rules, near_misses
    from cgsafe.terminal import standard_output, wants_color, width_of

    found, faults = loaded_rules()
    wanted = {code: find_rules(code, found) for code in codes}
    if unknown := [f"unknown rule `{code}`{near_misses(code, found)}" for code, some in wanted.items() if not some]:
        raise click.UsageError("; ".join(unknown))
    with standard_output() as out:
        for number, rule in enumerate(dict.fromkeys(rule for some in wanted.values() for rule in some)):
            out.write("\n" if number else "")
            out.writelines(
                f"{line}\n" for line in explanation(rule, width_of(out), wants_color(color, out), all_examples)
            )
    return tell_faults(faults)


def _register() -> None:
    """Add the commands that live in modules of their own."""
    from cgsafe.commands.baseline import baseline
    from cgsafe.commands.config import config
    from cgsafe.commands.server import server

    for command in (questions.why, questions.roots, baseline, config, server):
        cli.add_command(command)


_register()


def run() -> NoReturn:
    """The command `cgsafe`: ends the process at once, for taking millions of objects apart would take seconds."""
    code = FAILED
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        if sys.stdout is None:
            say("standard output is closed")
        else:
            code = main()
    except OSError as error:  # a full disk, a closed descriptor, wherever it shows
        with contextlib.suppress(OSError):
            say(_reason(error))
    except KeyboardInterrupt:
        code = INTERRUPTED
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            code = code or FAILED  # a closed pipe has been told already
        except ValueError:
            pass  # the language server has closed it
    os._exit(code)


def _reason(error: OSError) -> str:
    """What an error that nothing else has dealt with means."""
    try:
        os.getcwd()
    except OSError:
        return "the working directory does not exist any more"
    place = f"{error.filename}: " if error.filename else ""
    return f"cannot {'read or ' if error.filename else ''}write: {place}{error.strerror or error}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        code = cli.main(args=arguments, prog_name="cgsafe", standalone_mode=False)
    except click.UsageError as error:
        text = io.StringIO()
        error.show(text)
        tell(text.getvalue().rstrip("\n"))
        return FAILED
    except click.ClickException as error:
        say(error.format_message())
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    except SystemExit:  # click's answer to a reader of the help that has gone away
        return CLEAN
    return code if isinstance(code, int) else CLEAN
