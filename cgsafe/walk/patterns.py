"""Match statements and their patterns."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.values import UNKNOWN, Dict, Seq, Value

if TYPE_CHECKING:
    from cgsafe.walk.frame import Env, Frame


class Patterns:
    """Mixin of Frame: runs match statements."""

    def do_match(self: Frame, node: ast.Match) -> bool:
        subject = self.eval(node.subject)
        before = self.env
        result: Env | None = None
        exhaustive = False
        self.branches += 1
        for case in node.cases:
            self.env = dict(before)
            self.match_pattern(case.pattern, subject, node.subject)
            if case.guard is not None:
                outcome, when_true, _ = self.condition(case.guard, "guard", case.guard)
                if outcome is False:
                    continue
                self.refine(when_true)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                exhaustive = True
            if self.block(case.body):
                result = self.merge(result, self.env)
        self.branches -= 1
        if not exhaustive:
            result = self.merge(result, before)
        self.env = result if result is not None else before
        return result is not None

    def match_pattern(self: Frame, pattern: Any, subject: Value, node: ast.expr) -> None:
        if isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None:
                self.match_pattern(pattern.pattern, subject, node)
            if pattern.name:
                self.bind_name(pattern.name, subject)
        elif isinstance(pattern, ast.MatchOr):
            for option in pattern.patterns:
                self.match_pattern(option, subject, node)
        elif isinstance(pattern, ast.MatchValue):
            compared = self.compare(ast.Eq(), subject, self.eval(pattern.value), pattern.value)
            self.test(compared, pattern.value, "match", pattern.value)
        elif isinstance(pattern, ast.MatchSequence):
            element = self.element_of(subject, node)
            for index, option in enumerate(pattern.patterns):
                item = element
                if isinstance(subject, Seq) and subject.items is not None and index < len(subject.items):
                    item = subject.items[index]
                self.match_pattern(option, item, node)
        elif isinstance(pattern, ast.MatchStar):
            if pattern.name:
                self.bind_name(pattern.name, Seq("list", None, self.element_of(subject, node)))
        elif isinstance(pattern, ast.MatchMapping):
            for option in pattern.patterns:
                self.match_pattern(option, UNKNOWN, node)
            if pattern.rest:
                self.bind_name(pattern.rest, Dict({}, UNKNOWN))
        elif isinstance(pattern, ast.MatchClass):
            narrowed = self.instance_narrowed(subject, self.eval(pattern.cls))[0]
            for option in pattern.patterns:
                self.match_pattern(option, UNKNOWN, node)
            for name, option in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
                self.match_pattern(option, self.attribute(narrowed, name, None), node)
