"""`cgsafe why` and `cgsafe roots`: commands that ask what the walk does, instead of what is wrong."""

from __future__ import annotations

import sys
from typing import Any

import click

from cgsafe.commands import options as common


def _prepared(options: dict[str, Any]) -> tuple[Any, list[Any], list[Any]]:
    """Settings out of the configuration and the options, the rules that they choose, and faults of other rules."""
    from cgsafe import config as configuration
    from cgsafe.commands.common import check_config_codes, load_config, loaded_rules
    from cgsafe.findings import Confidence
    from cgsafe.selection import choose

    config = load_config()
    rules, faults = loaded_rules(config.plugins)
    check_config_codes(rules, config)
    level = options.get("min_confidence")
    settings = configuration.merge(
        config,
        exclude=options["exclude"],
        min_confidence=Confidence[level.upper()] if level else None,
        jobs=options.get("jobs", 0),
        cache=not options.get("no_cache", False),
        hot_path=options["hot_path"],
        show_accepted=options["hot_path"],
    )
    return settings, choose(rules, settings.select, settings.ignore, settings.extend_select), faults


def _bar() -> Any:
    from cgsafe.terminal import Bar

    return Bar(sys.stderr.isatty())


@click.command(short_help="Tell what is thought of one line, and why.")
@click.argument("place", metavar="PATH:LINE", type=click.Path())
@common.paths
@common.min_confidence("Which findings count as shown.")
@common.exclude
@common.output_format()
@common.hot_path
@click.option("--all-paths", is_flag=True, help="Show the path from each capture root, not just from the first ones.")
@common.color
def why(**options: Any) -> int:
    """Tell what is thought of one line: is it captured, by which path, with which values; if not, why not.

    Further paths say which code to analyse; without them it is what a check of the file would look at.
    """
    from cgsafe.commands.common import CLEAN, tell_faults
    from cgsafe.source import Source, read
    from cgsafe.terminal import standard_output, wants_color, width_of
    from cgsafe.why import QuestionError, question
    from cgsafe.why import why as answer_of
    from cgsafe.why.render import as_json, as_text

    settings, chosen, faults = _prepared(options)
    bar = _bar()
    try:
        path, line = question(options["place"])
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


@click.command(short_help="List where captured code starts, and why.")
@common.paths
@click.option("--all", "everything", is_flag=True, help="Also the modules whose forward is no root, and why.")
@common.min_confidence("Which findings are counted.")
@common.exclude
@common.output_format()
@common.hot_path
@common.jobs
@common.no_cache
@common.color
def roots(**options: Any) -> int:
    """List where captured code starts, why each place counts, and how many findings it runs into."""
    from cgsafe.commands.common import CLEAN, FAILED, say, tell_faults, tell_problems
    from cgsafe.inventory import as_json, as_text, inventory
    from cgsafe.report.style import escape
    from cgsafe.terminal import standard_output, wants_color, width_of

    paths = list(options["paths"]) or ["."]
    settings, chosen, faults = _prepared(options)
    bar = _bar()
    try:
        found = inventory(paths, settings, chosen, options["everything"], bar)
    finally:
        bar.close()
    with standard_output() as out:
        if options["output_format"] == "json":
            out.write(as_json(found, options["everything"]))
        else:
            color = wants_color(options["color"], out)
            out.writelines(f"{text}\n" for text in as_text(found, width_of(out), color, options["everything"]))
    tell_problems(found.errors)
    if not found.files and not found.errors:
        say(f"nothing was checked: no Python files in {', '.join(map(escape, paths))}")
        return FAILED
    return FAILED if found.errors else tell_faults(faults) or CLEAN
