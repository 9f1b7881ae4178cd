"""Loops: their bodies are run until the environment no longer changes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cgsafe.values import NONE, Const, Seq, Value
from cgsafe.walk.comprehensions import MAX_ITEMS

if TYPE_CHECKING:
    from cgsafe.walk.frame import Env, Frame

MAX_LOOP_RUNS = 3


class Loops:
    """Mixin of Frame: runs loops."""

    def do_for(self: Frame, node: ast.For) -> bool:
        iterable = self.eval(node.iter)
        if isinstance(iterable, Seq) and iterable.items and _stores_by(node) and _are_names(iterable.items):
            # Which keys are set matters: any other would stay as it is.
            for item in iterable.items:
                self.assign(node.target, item)
                if not self.block(node.body):
                    return False
            return True
        element = self.element_of(iterable, node.iter)
        known_empty = iterable is NONE or (isinstance(iterable, Seq) and iterable.items == ())
        return self._loop(node, lambda: self.assign(node.target, element), None, known_empty)

    def do_while(self: Frame, node: ast.While) -> bool:
        return self._loop(node, None, node.test, False)

    def _loop(self: Frame, node: Any, start: Callable[[], None] | None, test: ast.expr | None, never: bool) -> bool:
        if never:
            return self.block(node.orelse)
        breaks: list[Env] = []
        exits: Env | None = self.env if test is None else None
        self.branches += 1
        endless = False
        for _ in range(MAX_LOOP_RUNS):
            before = dict(self.env)
            continues: list[Env] = []
            self.loops.append((breaks, continues))
            outcome: bool | None = None
            if start is not None:
                start()
            when_false: list[tuple[str, Value]] = []
            if test is not None:
                outcome, when_true, when_false = self.condition(test, "while", node)
                if outcome is not True:
                    env = self.env
                    self.env = dict(env)
                    self.refine(when_false)
                    exits = self.merge(exits, self.env)
                    self.env = env
                self.refine(when_true)
                endless = outcome is True
            falls = outcome is not False and self.block(node.body)
            self.loops.pop()
            after: Env | None = self.env if falls else None
            for env in continues:
                after = self.merge(after, env)
            merged = self.merge(before, after)
            assert merged is not None
            if test is None:
                exits = merged
            self.env = merged
            if merged == before:
                break
        self.branches -= 1
        if test is not None and not endless:
            exits = self.merge(exits, self.env)
        falls_out = False
        if exits is not None and not endless:
            self.env = exits
            falls_out = self.block(node.orelse)
        result: Env | None = self.env if falls_out else None
        for env in breaks:
            result = self.merge(result, env)
        if result is None:
            return False
        self.env = result
        return True

    def do_break(self: Frame, node: ast.Break) -> bool:
        if self.loops:
            self.loops[-1][0].append(self.env)
        return False

    def do_continue(self: Frame, node: ast.Continue) -> bool:
        if self.loops:
            self.loops[-1][1].append(self.env)
        return False


def _are_names(items: tuple[Value, ...]) -> bool:
    return len(items) <= MAX_ITEMS and all(isinstance(i, Const) and isinstance(i.value, str) for i in items)


def _stores_by(node: ast.For) -> bool:
    """`for name in (...): table[name] = narrowed(table[name])`, with a body that always runs to its end."""
    if node.orelse or not isinstance(node.target, ast.Name):
        return False
    found = False
    for inner in (n for statement in node.body for n in ast.walk(statement)):
        if isinstance(inner, (ast.Break, ast.Continue, ast.Return, ast.For, ast.While, ast.Yield, ast.Await)):
            return False
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Subscript):
            item = inner.targets[0]
            if isinstance(item.slice, ast.Name) and item.slice.id == node.target.id:
                own = ast.unparse(item)
                found = found or any(
                    isinstance(n, ast.Subscript) and ast.unparse(n) == own for n in ast.walk(inner.value)
                )
    return found
