"""What a rule is, and how rules are found: through the entry-point group `cgsafe.rules`, built-in ones too."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from cgsafe.findings import Confidence, Fix, Severity

BUILT_IN = "builtin"  # the entry point of the rules that come with the tool


@dataclass(frozen=True)
class Hit:
    """A rule's verdict on one event; the engine adds the place, the root and the path."""

    message: str
    fix: Fix | None = None
    severity: Severity | None = None  # None: the rule's own
    confidence: Confidence | None = None  # an upper bound, on top of what root and values allow
    at: tuple[str, int, int, int, int] | None = None  # a place other than the event's: path, line, column, ends
    function: str = ""  # the function there
    unless_warmed: bool = False  # no hit where the host made the very same call before the capture
    group: tuple[int, int] | None = None  # hits of one rule with the same group in a file are reported as one


class Rule:
    """Base of all rules.

    A subclass names itself, documents itself (the docstring: what and why; `instead`: what to do; `error`: the measured
    error text) and has handlers: methods whose name starts with `on_` and whose one argument is annotated with the
    event type (`cgsafe.events`) that it wants. A handler returns a Hit or None.
    """

    code: ClassVar[str] = ""
    name: ClassVar[str] = ""
    severity: ClassVar[Severity] = Severity.ERROR
    implicit: ClassVar[Confidence] = Confidence.MEDIUM  # an upper bound where no capture was seen to reach the code
    instead: ClassVar[str] = ""
    error: ClassVar[str] = ""  # what the GPU says, as measured
    measured: ClassVar[str] = ""  # release and device of that, where no table of evidence tells
    allowed: ClassVar[str] = ""  # when the pattern is all right

    @classmethod
    def handlers(cls) -> Iterable[tuple[type, str]]:
        """Yield (event type, method name) for each handler."""
        for attribute in sorted(dir(cls)):
            if not attribute.startswith("on_"):
                continue
            hints = typing.get_type_hints(getattr(cls, attribute))
            hints.pop("return", None)
            if len(hints) != 1:
                raise TypeError(f"{cls.__name__}.{attribute} must annotate exactly one argument, its event type")
            yield next(iter(hints.values())), attribute


class RuleSet:
    """The rules of one run, dispatched by event type. A rule that fails is reported once and then left out."""

    def __init__(self, rules: Iterable[type[Rule]]):
        self.rules = sorted((rule() for rule in rules), key=lambda rule: rule.code)
        self.failures: dict[str, str] = {}
        self._table: dict[type, list[tuple[Rule, Callable[[Any], Hit | None]]]] = {}
        for rule in self.rules:
            for event_type, method in rule.handlers():
                self._table.setdefault(event_type, []).append((rule, getattr(rule, method)))

    def judge(self, event: Any) -> list[tuple[Rule, Hit]]:
        """All hits on one event."""
        hits = []
        for rule, handler in self._table.get(type(event), ()):
            if rule.code in self.failures:
                continue
            try:
                hit = handler(event)
            except Exception as error:  # a faulty rule must not take the run down with it
                self.failures[rule.code] = f"{type(error).__name__}: {error}"
                continue
            if hit is not None:
                hits.append((rule, hit))
        return hits


def load_rules(plugins: Collection[str] | None = None) -> tuple[list[type[Rule]], list[str]]:
    """All rule classes behind the entry points, sorted by code, and a message for each entry point that failed.

    `plugins` names the entry points that count, besides the built-in one; None: all that are installed.
    """
    from importlib.metadata import entry_points

    found: dict[str, type[Rule]] = {}
    problems: list[str] = []
    entries = sorted(entry_points(group="cgsafe.rules"), key=lambda e: e.name)
    names = [entry.name for entry in entries]
    for name in plugins or ():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"installed are {', '.join(names) or 'none'}"
            problems.append(f"the plugin `{name}` is not installed; {hint}")
    for entry in entries:
        if plugins is not None and entry.name != BUILT_IN and entry.name not in plugins:
            continue
        try:
            loaded = entry.load()
            classes: Iterable[type[Rule]] = loaded() if not isinstance(loaded, type) else (loaded,)
            for rule in classes:
                if rule.code in found and found[rule.code] is not rule:
                    raise ValueError(f"the code {rule.code} is taken by {found[rule.code].__module__}")
                list(rule.handlers())
                found[rule.code] = rule
        except Exception as error:
            problems.append(
                f"rules from `{entry.name}` ({entry.value}) could not be loaded: {type(error).__name__}: {error}"
            )
    return [found[code] for code in sorted(found)], problems
