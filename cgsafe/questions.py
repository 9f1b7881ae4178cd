"""`cgsafe why` and `cgsafe roots`: commands that ask what the walk does, instead of what is wrong."""

from __future__ import annotations

import sys
from typing import Any

import click


def _settings(options: dict[str, Any]) -> Any:
    """Settings out of the configuration and the options; only errors of the user's leave this as such."""
    from cgsafe import config as configuration
    from cgsafe.findings import Confidence

    level = options.get("min_confidence")
    try:
        config = configuration.load()
        return configuration.merge(
            config,
            exclude=options["exclude"],
            min_confidence=Confidence[level.upper()] if level else None,
            jobs=options.get("jobs", 0),
            cache=not options.get("no_cache", False),
            hot_path=options["hot_path"],
            show_accepted=options["hot_path"],
        )
    except configuration.ConfigError as error:
        from cgsafe.report.style import escape

        raise click.UsageError(escape(str(error))) from None


def _bar() -> Any:
    from cgsafe.terminal import Bar

    return Bar(sys.stderr.isatty())


@click.command()
@click.argument("place", metavar="PATH:LINE")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--output-format", type=click.Choice(["text", "json"], case_sensitive=False), default="text")
@click.option(
    "--min-confidence",
    type=click.Choice(["low", "medium", "high"], case_sensitive=False),
    help="Which findings count as shown.  [default: medium]",
)
@click.option("--hot-path", is_flag=True, help="Also what runs at every step outside of captures, by profile.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, as in a .gitignore. Repeatable.")
@click.option("--all-paths", is_flag=True, help="Show the path from each capture root, not just from the first ones.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def why(**options: Any) -> int:
    """Tell what is thought of one line: is it captured, by which path, with which values; if not, why not.

    Further paths say which code to analyse; without them it is what a check of the file would look at.
    """
    from cgsafe.cli import tell_faults
    from cgsafe.commands.common import CLEAN, loaded_rules
    from cgsafe.selection import choose
    from cgsafe.source import Source, read
    from cgsafe.terminal import standard_output, wants_color, width_of
    from cgsafe.why import QuestionError, question
    from cgsafe.why import why as answer_of
    from cgsafe.why.render import as_json, as_text

    rules, faults = loaded_rules()
    settings = _settings(options)
    bar = _bar()
    try:
        path, line = question(options["place"])
        chosen = choose(rules, settings.select, settings.ignore, settings.extend_select)
        answer = answer_of(path, line, list(options["paths"]), settings, chosen, bar)
    except QuestionError as error:
        raise click.UsageError(str(error)) from None
    finally:
        bar.close()
    with standard_output() as out:
        if options["output_format"] == "json":
            out.write(as_json(answer))
        else:
            source = read(path)
            lines = source.lines if isinstance(source, Source) else []
            color = wants_color(options["color"], out)
            out.writelines(f"{text}\n" for text in as_text(answer, lines, width_of(out), color, options["all_paths"]))
    return tell_faults(faults) or CLEAN


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--all", "everything", is_flag=True, help="Also the modules whose forward is no root, and why.")
@click.option("--output-format", type=click.Choice(["text", "json"], case_sensitive=False), default="text")
@click.option(
    "--min-confidence",
    type=click.Choice(["low", "medium", "high"], case_sensitive=False),
    help="Which findings are counted.  [default: medium]",
)
@click.option("--hot-path", is_flag=True, help="Also what runs at every step outside of captures, by profile.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files, as in a .gitignore. Repeatable.")
@click.option(
    "--jobs", "-j", type=click.IntRange(min=0), default=0, metavar="N", help="Processes; 0: one per processor.  [0]"
)
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
def roots(**options: Any) -> int:
    """List where captured code starts, why each place counts, and how many findings it runs into."""
    from cgsafe.cli import tell_faults
    from cgsafe.commands.common import CLEAN, FAILED, loaded_rules, say
    from cgsafe.inventory import as_json, as_text, inventory
    from cgsafe.report.style import escape
    from cgsafe.selection import choose
    from cgsafe.terminal import standard_output, wants_color, width_of

    paths = list(options["paths"]) or ["."]
    rules, faults = loaded_rules()
    settings = _settings(options)
    bar = _bar()
    try:
        chosen = choose(rules, settings.select, settings.ignore, settings.extend_select)
        found = inventory(paths, settings, chosen, options["everything"], bar)
    finally:
        bar.close()
    with standard_output() as out:
        if options["output_format"] == "json":
            out.write(as_json(found, options["everything"]))
        else:
            color = wants_color(options["color"], out)
            out.writelines(f"{text}\n" for text in as_text(found, width_of(out), color, options["everything"]))
    for problem in found.errors:
        place = f"{problem.path}:{problem.line}" if problem.line else problem.path
        say(f"{escape(place)}: {escape(problem.message)}")
    if not found.files and not found.errors:
        say(f"nothing was checked: no Python files in {', '.join(map(escape, paths))}")
        return FAILED
    return FAILED if found.errors else tell_faults(faults) or CLEAN
