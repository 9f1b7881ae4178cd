"""The command line: `cgsafe check`, `cgsafe rules`, `cgsafe explain`.

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
    watch_files,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cgsafe.baseline import Baseline
    from cgsafe.commands.common import Setup
    from cgsafe.findings import Problem, Report
    from cgsafe.report import Options
    from cgsafe.settings import Settings

INTERRUPTED = 130

# cgsafe.report.FORMATS, without importing it
FORMAT_NAMES = ("text", "concise", "grouped", "json", "json-lines", "sarif", "github", "gitlab", "junit", "html")

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


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cgsafe", message="%(prog)s %(version)s")
def cli() -> None:
    """Find CUDA-graph hazards in PyTorch code before a GPU is started."""


@cli.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--select", multiple=True, metavar="CODES", help="Only these rules: codes or prefixes (CG1), comma lists."
)
@click.option("--extend-select", multiple=True, metavar="CODES", help="These too, on top of those otherwise selected.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these rules. The longer prefix wins over --select.")
@click.option(
    "--min-confidence",
    type=click.Choice(["low", "medium", "high"], case_sensitive=False),
    help="Leave out findings that are less sure than this.  [default: medium]",
)
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, as in a .gitignore. Repeatable.")
@click.option(
    "--output-format", type=click.Choice(FORMAT_NAMES, case_sensitive=False), default="text", show_default=True
)
@click.option("--output", metavar="FILE", help="Write the findings to a file instead of standard output.")
@click.option("--fix", is_flag=True, help="Apply the safe fixes, then report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: those too that are to be reviewed.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option(
    "--hot-path", is_flag=True, help="Also warn of waits in code that runs at every step outside of captures."
)
@click.option("--all-paths", is_flag=True, help="Show one path from each capture root, not just the shortest of all.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=0), default=0, metavar="N", help="Processes; 0: one per processor.  [0]"
)
@click.option(
    "--show-suppressed",
    is_flag=True,
    help="Also show findings that a comment, the configuration, the baseline or (with --hot-path) the code accepts.",
)
@click.option("--baseline", metavar="FILE", help="Leave out the findings that this file holds; see `cgsafe baseline`.")
@click.option("--no-baseline", is_flag=True, help="Not even the baseline that the configuration names.")
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
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@click.option("--statistics", is_flag=True, help="Also tell counts (standard error; part of JSON).")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="No summary and no progress.")
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
    for problem in ordered_errors(report):
        place = f"{escape(problem.path)}:{problem.line}: " if problem.line else f"{escape(problem.path)}: "
        say(f"{place if problem.path else ''}{escape(problem.message)}")
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
    from cgsafe.report.style import escape

    found = [finding for finding in ordered(report) if not finding.outside and finding.trace]
    try:
        silenced, files, problems = add_ignores(found, options["reason"] or "")
    except ValueError as error:
        raise click.UsageError(f"--reason: {error}") from None
    for problem in [*ordered_errors(report), *problems]:
        say(f"{escape(problem.path)}{f':{problem.line}' if problem.line else ''}: {escape(problem.message)}")
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


@cli.command()
@click.option("--output-format", type=click.Choice(["text", "json"], case_sensitive=False), default="text")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
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


@cli.command()
@click.argument("codes", nargs=-1, required=True, metavar="CODE...")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("--all-examples", is_flag=True, help="Show every example, not just the first bad and the first good one.")
def explain(codes: tuple[str, ...], color: str, all_examples: bool) -> int:
    """Explain rules, by code or by name: why, what the GPU says, what to do, examples."""
    from cgsafe.catalogue import explanation
    from cgsafe.selection import find_rule, near_misses
    from cgsafe.terminal import standard_output, wants_color, width_of

    found, faults = loaded_rules()
    wanted = [(code, find_rule(code, found)) for code in codes]
    if unknown := [f"unknown rule `{code}`{near_misses(code, found)}" for code, rule in wanted if rule is None]:
        raise click.UsageError("; ".join(unknown))
    with standard_output() as out:
        for number, (_, rule) in enumerate(wanted):
            assert rule is not None
            out.write("\n" if number else "")
            out.writelines(
                f"{line}\n" for line in explanation(rule, width_of(out), wants_color(color, out), all_examples)
            )
    return tell_faults(faults)


def tell_faults(faults: Sequence[Problem]) -> int:
    """Tell which rules could not be loaded; the exit code."""
    for fault in faults:
        say(fault.message)
    return FAILED if faults else CLEAN


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
