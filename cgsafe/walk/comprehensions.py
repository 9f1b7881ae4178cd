"""Comprehensions and generator expressions, which are run once for any item or item by item."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.values import STR, Const, Dict, Seq, Value

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

MAX_ITEMS = 24  # of a sequence that is run item by item: about as many as a call passes on as `*args`


class Comprehensions:
    """Mixin of Frame: evaluates comprehensions."""

    def _comprehension(self: Frame, node: Any, elements: list[ast.expr]) -> list[Value] | None:
        """The values of the elements; None where it is certainly empty."""
        before = self.env
        self.env = dict(before)
        self.branches += 1
        try:
            for generator in node.generators:
                iterable = self.eval(generator.iter)
                if isinstance(iterable, Seq) and iterable.items == ():
                    return None
                self.assign(generator.target, self.element_of(iterable, generator.iter))
                for test in generator.ifs:
                    outcome, when_true, _ = self.condition(test, "comprehension", test)
                    if outcome is False:
                        return None
                    self.refine(when_true)
            return [self.eval(e) for e in elements]
        finally:
            self.leave_comprehension(node, before)
            self.branches -= 1

    def ev_listcomp(self: Frame, node: Any) -> Value:
        kind = "set" if isinstance(node, ast.SetComp) else "list"
        if len(node.generators) == 1 and not node.generators[0].ifs:
            items = self._unrolled(node)
            if items is not None:
                return Seq(kind, tuple(items))
        values = self._comprehension(node, [node.elt])
        return Seq(kind, ()) if values is None else Seq(kind, None, values[0])

    def _unrolled(self: Frame, node: Any) -> list[Value] | None:
        """A comprehension over a short known sequence, item by item."""
        generator = node.generators[0]
        if not isinstance(generator.iter, (ast.Tuple, ast.List, ast.Name, ast.Call)):
            return None
        iterable = self.eval(generator.iter)
        if not isinstance(iterable, Seq) or iterable.items is None or len(iterable.items) > MAX_ITEMS:
            return None
        if self.unrolled >= 2:
            return None  # each level would double the work
        before = self.env
        self.env = dict(before)
        self.unrolled += 1
        results: list[Value] = []
        try:
            for item in iterable.items:
                self.assign(generator.target, item)
                results.append(self.eval(node.elt))
        finally:
            self.leave_comprehension(node, before)
            self.unrolled -= 1
        return results

    def leave_comprehension(self: Frame, node: Any, before: dict[str, Value]) -> None:
        """Its variables are gone; what a walrus bound in it stays."""
        inside, self.env = self.env, before
        names = getattr(node, "walrus_names", None)
        if names is None:
            names = [n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            node.walrus_names = names
        for name in names:
            if name in inside:
                self.bind_name(name, inside[name])

    def ev_dictcomp(self: Frame, node: ast.DictComp) -> Value:
        picked = self._picked(node)
        if picked is not None:
            return picked
        values = self._comprehension(node, [node.key, node.value])
        return Dict({}) if values is None else Dict({}, values[1])

    def _picked(self: Frame, node: ast.DictComp) -> Value | None:
        """`{k: ... for k, v in mapping.items() if ...}`: the keys stay the mapping's own."""
        generator = node.generators[0]
        pair, source = generator.target, generator.iter
        if len(node.generators) > 1 or not isinstance(pair, ast.Tuple) or not isinstance(source, ast.Call):
            return None
        if not (isinstance(source.func, ast.Attribute) and source.func.attr == "items" and len(pair.elts) == 2):
            return None
        if not (
            isinstance(node.key, ast.Name) and isinstance(pair.elts[0], ast.Name) and node.key.id == pair.elts[0].id
        ):
            return None
        mapping = self.eval(source.func.value)
        if not isinstance(mapping, Dict):
            return None
        before = self.env
        self.branches += 1

        def one(key: Value, value: Value) -> Value | None:
            self.env = dict(before)
            self.assign(pair, Seq("tuple", (key, value)))
            for test in generator.ifs:
                outcome, when_true, _ = self.condition(test, "comprehension", test)
                if outcome is False:
                    return None
                self.refine(when_true)
            return self.eval(node.value)

        try:
            results = {key: one(Const(key), value) for key, value in mapping.items}
            other = one(STR, mapping.other) if mapping.other is not None else None
        finally:
            self.env = before
            self.branches -= 1
        return Dict({key: value for key, value in results.items() if value is not None}, other)
