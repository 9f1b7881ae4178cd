"""Which rules a run uses: codes and code prefixes, checked against the rules that exist."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cgsafe.findings import Severity, Suppression
from cgsafe.ignores import Excludes

if TYPE_CHECKING:
    from cgsafe.rule import Rule


def split_codes(values: Iterable[str]) -> tuple[str, ...]:
    """`CG1,cg201` and repeated values as one tuple of codes, in the order given."""
    codes = (code.strip().upper() for value in values for code in value.split(","))
    return tuple(dict.fromkeys(code for code in codes if code))


def unknown_codes(codes: Iterable[str], rules: Sequence[type[Rule]]) -> list[str]:
    """One message for each code that is neither a rule's code nor the start of one."""
    return [
        f"unknown code `{code}`{near_misses(code, rules)}"
        for code in codes
        if not any(rule.code.startswith(code) for rule in rules)
    ]


def near_misses(text: str, rules: Sequence[type[Rule]]) -> str:
    """What may have been meant by `text`, as the end of a message."""
    import difflib

    by_word = {rule.code.lower(): rule for rule in rules} | {rule.name.lower(): rule for rule in rules}
    found = difflib.get_close_matches(text.lower(), list(by_word), n=3, cutoff=0.6)
    close = dict.fromkeys(by_word[word] for word in found)
    if not close:
        return "; `cgsafe rules` lists all"
    return "; did you mean " + " or ".join(f"{rule.code} ({rule.name})" for rule in close) + "?"


def find_rules(text: str, rules: Sequence[type[Rule]]) -> list[type[Rule]]:
    """The rule with this code or name, or else those whose codes start so."""
    wanted = text.strip().lower()
    exact = [rule for rule in rules if wanted in (rule.code.lower(), rule.name.lower())]
    return exact or [rule for rule in rules if wanted and rule.code.lower().startswith(wanted)]


def choose(
    rules: Sequence[type[Rule]], select: Sequence[str], ignore: Sequence[str], extend: Sequence[str] = ()
) -> list[type[Rule]]:
    """The rules that `select`, `extend` and `ignore` leave; without `select` all are selected.

    The longer prefix wins, so `--select CG1 --ignore CG101` and `--ignore CG1 --select CG101` both mean what they say;
    of equals, `ignore` wins.
    """

    def longest(prefixes: Sequence[str], code: str) -> int:
        return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=-1)

    chosen = []
    for rule in rules:
        selected = max(longest(select, rule.code) if select else 0, longest(extend, rule.code))
        if selected > longest(ignore, rule.code):
            chosen.append(rule)
    return chosen


def severity_of(code: str, severities: Mapping[str, Severity]) -> Severity | None:
    """The severity that the configuration gives to a code; its longest prefix counts."""
    prefix = max((p for p in severities if code.startswith(p)), key=len, default=None)
    return None if prefix is None else severities[prefix]


class PerFileIgnores:
    """Which rules do not count in which files."""

    def __init__(self, entries: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        self._entries = [(pattern, Excludes([pattern]), codes) for pattern, codes in entries]

    def find(self, path: str, code: str) -> Suppression | None:
        """What silences a code in a file."""
        for pattern, matcher, codes in self._entries:
            if code.startswith(codes) and matcher.match(os.path.abspath(path), False):
                return Suppression("per-file-ignores", 0, pattern)
        return None
