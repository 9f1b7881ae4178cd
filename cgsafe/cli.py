"""The command line: `cgsafe check`, `cgsafe rules`, `cgsafe explain`.

What only a check needs is imported inside the functions, so that `cgsafe --version` and shell completion stay instant.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from cgsafe import __version__, questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cgsafe.findings import Problem, Report
    from cgsafe.report import Options
    from cgsafe.rule import Rule
    from cgsafe.settings import Settings

CLEAN, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130

FORMAT_NAMES = ("text", "concise", "json")  # cgsafe.report.FORMATS, without importing it

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
@click.option(
    "--show-suppressed", is_flag=True, help="With --hot-path: also waits in blocks in which the code accepts them."
)
@click.option("--all-paths", is_flag=True, help="Show one path from each capture root, not just the shortest of all.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=0), default=0, metavar="N", help="Processes; 0: one per processor.  [0]"
)
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@click.option("--statistics", is_flag=True, help="Also tell counts (standard error; part of JSON).")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="No summary and no progress.")
@click.option("-v", "--verbose", is_flag=True, help="More about the run; tracebacks of internal errors.")
def check(**options: Any) -> int:
    """Check files and folders; `-` reads standard input. Without PATH: the current folder."""
    from cgsafe import config as configuration
    from cgsafe.findings import Confidence
    from cgsafe.selection import split_codes

    if options["quiet"] and options["verbose"]:
        raise click.UsageError("--quiet and --verbose exclude each other")
    if options["fix"] and options["diff"]:
        raise click.UsageError("--fix and --diff exclude each other")
    if options["unsafe_fixes"] and not options["fix"] and not options["diff"]:
        raise click.UsageError("--unsafe-fixes needs --fix or --diff")
    paths = list(options["paths"]) or ["."]
    rules, faults = loaded_rules()
    select, ignore = split_codes(options["select"]), split_codes(options["ignore"])
    _known_codes(rules, select, ignore)
    try:
        config = configuration.load()
        _known_config_codes(rules, config)
    except configuration.ConfigError as error:
        from cgsafe.report.style import escape

        raise click.UsageError(escape(str(error))) from None
    settings = configuration.merge(
        config,
        select=select,
        ignore=ignore,
        exclude=options["exclude"],
        min_confidence=Confidence[options["min_confidence"].upper()] if options["min_confidence"] else None,
        all_paths=options["all_paths"],
        hot_path=options["hot_path"],
        show_accepted=options["show_suppressed"],
        jobs=options["jobs"],
        cache=not options["no_cache"],
        stdin=sys.stdin.buffer.read() if "-" in paths else None,
        edits=options["output_format"] == "json",
    )
    _writable(options["output"])
    if options["fix"] or options["diff"]:
        return _fix(paths, settings, rules, faults, options)
    report = _run(paths, settings, rules, options)
    if report is None:
        return FAILED
    report.errors.extend(faults)
    return _tell(report, paths, settings, rules, options)


def _fix(
    paths: list[str], settings: Settings, rules: list[type[Rule]], faults: list[Problem], options: dict[str, Any]
) -> int:
    """Apply the fixes, or show them; the exit code."""
    from dataclasses import replace

    from cgsafe.fixes.apply import Failed, fix
    from cgsafe.report import counted

    def again(changed: Settings) -> Report:
        report = _run(paths, changed, rules, options)
        if report is None:
            raise Failed
        return report

    try:
        fixed = fix(again, settings, options["unsafe_fixes"], options["fix"])
    except Failed:
        _pass_on(settings.stdin, options)
        return FAILED
    fixed.report.errors.extend(faults)
    count = f"{counted(fixed.count, 'finding')} in {counted(len(fixed.files), 'file')}"
    if options["diff"]:
        code = _tell(fixed.report, paths, settings, rules, options, fixed.diff())
        if not options["quiet"]:
            click.echo(f"Would fix {count}." if fixed.count else "Nothing to fix.", err=True)
        return FAILED if code == FAILED else FINDINGS if fixed.files else CLEAN
    after = fixed.stdin() or settings.stdin
    _pass_on(after, options)
    code = _tell(fixed.report, paths, replace(settings, stdin=after), rules, options)
    if not options["quiet"]:
        click.echo(f"Fixed {count}.", err=True)
    return code


def _pass_on(stdin: bytes | None, options: dict[str, Any]) -> None:
    """With --fix standard output gets the text of standard input, fixed or not: an editor puts it back into place."""
    from cgsafe.terminal import standard_output

    if stdin is not None and options["fix"]:
        with standard_output() as out:
            out.buffer.write(stdin)
            out.buffer.flush()


def loaded_rules() -> tuple[list[type[Rule]], list[Problem]]:
    """All rules, and what kept others from being loaded."""
    from cgsafe.findings import Problem
    from cgsafe.rule import load_rules

    rules, messages = load_rules()
    if not rules:
        raise click.ClickException("; ".join(messages) or "no rules are installed: is the installation complete?")
    return rules, [Problem("", 0, message) for message in messages]


def _known_codes(rules: Sequence[type[Rule]], select: Sequence[str], ignore: Sequence[str]) -> None:
    from cgsafe.selection import unknown_codes

    for option, codes in (("--select", select), ("--ignore", ignore)):
        if messages := unknown_codes(codes, rules):
            raise click.UsageError(f"{option}: {'; '.join(messages)}")


def _known_config_codes(rules: Sequence[type[Rule]], config: Any) -> None:
    from cgsafe.selection import unknown_codes

    for key in ("select", "ignore"):
        if messages := unknown_codes(getattr(config, key) or (), rules):
            raise config.error(key, "; ".join(messages))


def _writable(output: str | None) -> None:
    """Refuse an output file that cannot be written before the work is done, not after it."""
    import os

    if not output or output == "-":
        return
    folder = os.path.dirname(os.path.realpath(output))
    if not os.path.isdir(folder):
        raise click.UsageError(f"--output: there is no folder `{folder}`")
    if os.path.isdir(output):
        raise click.UsageError(f"--output: `{output}` is a folder")


def _run(paths: list[str], settings: Settings, rules: list[type[Rule]], options: dict[str, Any]) -> Report | None:
    """Let the engine check; None after an internal error, which has then been told."""
    from cgsafe.selection import choose
    from cgsafe.terminal import Bar

    chosen = choose(rules, settings.select, settings.ignore)
    if not chosen:
        raise click.UsageError("nothing was checked: no rule is left after --select and --ignore")
    bar = Bar(sys.stderr.isatty() and not options["quiet"])
    try:
        from cgsafe import engine

        return engine.check(paths, settings, chosen, bar)
    except Exception as error:  # the last line of defence: whatever it is, the exit code must not say "findings"
        bar.close()
        if options["verbose"]:
            import traceback

            click.echo(traceback.format_exc(), err=True)
        hint = "" if options["verbose"] else " (-v shows where)"
        say(f"internal error: {type(error).__name__}: {error}{hint}")
        return None
    finally:
        bar.close()


def _tell(
    report: Report,
    paths: list[str],
    settings: Settings,
    rules: list[type[Rule]],
    options: dict[str, Any],
    instead: str | None = None,
) -> int:
    """Write findings (or a text instead of them) and diagnostics; the exit code."""
    from cgsafe.report import Options, ordered_errors
    from cgsafe.report.style import escape
    from cgsafe.terminal import UNKNOWN_WIDTH, wants_color, width_of

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
            rules={rule.code: rule for rule in rules},
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
            click.echo(line, err=True)
    if not report.files_checked and not report.errors:
        say(f"nothing was checked: no Python files in {', '.join(map(escape, paths))}")
        return FAILED
    if report.errors:
        return FAILED
    return FINDINGS if report.findings else CLEAN


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
    import io

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


def say(message: str) -> None:
    """A diagnostic, on standard error. What checked files put into it cannot move the cursor or change colours."""
    from cgsafe.terminal import harmless

    click.echo(f"cgsafe: {harmless(message)}", err=True)


for _command in (questions.why, questions.roots):
    cli.add_command(_command)


def run() -> NoReturn:
    """The command `cgsafe`: ends the process at once, for taking millions of objects apart would take seconds."""
    try:
        code = main()
    except (OSError, AttributeError) as error:
        # A full disk or a closed descriptor, wherever it shows.
        if not isinstance(error, OSError) and sys.stdout is not None and sys.stderr is not None:
            raise
        if sys.stderr is not None:
            say(f"cannot write: {error}")
        os._exit(FAILED)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or FAILED  # a closed pipe has been told already
    os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    try:
        code = cli.main(args=arguments, prog_name="cgsafe", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return FAILED
    except click.ClickException as error:
        say(error.format_message())
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    return code if isinstance(code, int) else CLEAN
