"""Options that several commands have: one name, one type and one text for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

paths: Decorator = click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(allow_dash=True))
select: Decorator = click.option(
    "--select",
    multiple=True,
    metavar="CODES",
    help="Only these rules: codes or prefixes (CG1), comma lists. Repeatable.",
)
extend_select: Decorator = click.option(
    "--extend-select", multiple=True, metavar="CODES", help="These too, on top of those otherwise selected. Repeatable."
)
ignore: Decorator = click.option(
    "--ignore",
    multiple=True,
    metavar="CODES",
    help="Not these rules. The longer prefix wins over --select. Repeatable.",
)
exclude: Decorator = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out files, as in a .gitignore. Repeatable."
)
hot_path: Decorator = click.option(
    "--hot-path", is_flag=True, help="Also code that runs at every step outside of captures, by profile."
)
jobs: Decorator = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Processes; 0, the default: one per processor.",
)
no_cache: Decorator = click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
color: Decorator = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"], case_sensitive=False),
    default="auto",
    show_default=True,
    help="Colours; `auto` follows the terminal, NO_COLOR and FORCE_COLOR.",
)
quiet: Decorator = click.option("-q", "--quiet", is_flag=True, help="No summary and no progress.")


def min_confidence(help_text: str) -> Decorator:
    """How sure a finding must be; the configuration tells where the option does not."""
    return click.option(
        "--min-confidence",
        type=click.Choice(["low", "medium", "high"], case_sensitive=False),
        help=f"{help_text}  [default: that of the configuration, else medium]",
    )


def output_format(names: Sequence[str] = ("text", "json")) -> Decorator:
    """How the result is written."""
    return click.option(
        "--output-format",
        type=click.Choice(names, case_sensitive=False),
        default="text",
        show_default=True,
        help="How the result is written.",
    )


def complete_code(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """The codes and names of rules that begin so, for the shell."""
    from click.shell_completion import CompletionItem

    from cgsafe.catalogue import summary
    from cgsafe.rule import load_rules

    found = load_rules()[0]
    items = [CompletionItem(rule.code, help=summary(rule)) for rule in found if rule.code.startswith(begun.upper())]
    return items or [CompletionItem(rule.name, help=summary(rule)) for rule in found if rule.name.startswith(begun)]


class Group(click.Group):
    """The commands; a name that is none is answered by what was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"no such command `{name}`{self._meant(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> str:
        import difflib
        import os

        if near := difflib.get_close_matches(name.lower(), self.list_commands(ctx), n=1):
            return f"; did you mean `{near[0]}`?"
        if os.path.exists(name):
            return f"; to check it: cgsafe check {name}"
        return f"; there are {', '.join(self.list_commands(ctx))}"
