"""Graphs that are kept under a key, or once for all: does the key hold what the captured call depends on?"""

from __future__ import annotations

import ast

from cgsafe.findings import Confidence
from cgsafe.site_events import KeyLacks
from cgsafe.sites.captures import Capture, Site, captured_calls
from cgsafe.sites.code import Function, names_host, path_of, source
from cgsafe.sites.report import Log
from cgsafe.sites.warmups import bound


def look(site: Site, log: Log) -> None:
    for capture in site.captures:
        function = capture.function
        lazy = _lazy(function, capture.node, capture.end)
        if lazy is not None:
            if any(r.lineno > capture.end for r in site.replays_of(function)):
                _judge(site, capture, function, None, lazy, log)
            continue
        if function.cls is None or function.name == "__init__":
            continue
        for method in function.cls.methods.values():
            for call in method.calls():
                if path_of(call.func) != f"self.{function.name}" or not site.replays_of(method):
                    continue
                lazy = _lazy(method, call, call.end_lineno or call.lineno)
                if lazy is not None:
                    _judge(site, capture, method, call, lazy, log)


def _judge(
    site: Site,
    capture: Capture,
    holder: Function,
    through: ast.Call | None,
    lazy: tuple[ast.If, ast.expr | None],
    log: Log,
) -> None:
    """State what the captured calls depend on and the key does not hold; `through` is the call that leads there."""
    test, key = lazy
    line = (through or capture.node).lineno
    held = _sources(holder, key, line) if key is not None else set()
    held |= _guards(holder, line, test)
    passed = bound(through, capture.function) if through is not None else {}
    if passed is None:
        return
    if through is not None:
        held |= _guards_inside(capture)
    for node, expressions in _depends(site, capture):
        for expression in expressions:
            for inner in sorted(_sources(capture.function, expression, capture.node.lineno)):
                if through is None:
                    outer = {inner}
                elif inner in held:
                    continue
                else:
                    argument = passed.get(inner.removesuffix(".shape"))
                    outer = _sources(holder, argument, line) if argument is not None else set()
                    if inner.endswith(".shape"):
                        outer = {o if o.endswith(".shape") else f"{o}.shape" for o in outer}
                for parameter in sorted(outer):
                    base = parameter.removesuffix(".shape")
                    if parameter in held or base in held:
                        continue
                    host = names_host(holder.parameters[base].annotation, holder.defaults().get(base))
                    if (parameter.endswith(".shape") and key is None) or (host and parameter == base):
                        log.state(
                            KeyLacks,
                            capture.function,
                            node,
                            Confidence.MEDIUM,
                            parameter=parameter,
                            argument=source(expression),
                            key=source(key) if key is not None else "",
                        )
                        return


def _depends(site: Site, capture: Capture) -> list[tuple[ast.expr, list[ast.expr]]]:
    """Captured calls with their arguments, then tests inside the capture."""
    calls = captured_calls(site, capture)
    found: list[tuple[ast.expr, list[ast.expr]]] = [(c, [*c.args, *(k.value for k in c.keywords)]) for c in calls]
    for statement in capture.body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.If, ast.IfExp, ast.While)):
                found.append((node.test, [node.test]))
    return found


def _guards_inside(capture: Capture) -> set[str]:
    """Parameters of the capturing function that it checks before it captures."""
    found: set[str] = set()
    for node in capture.function.own:
        if isinstance(node, ast.Assert) and node.lineno < capture.node.lineno:
            found |= _sources(capture.function, node.test, capture.node.lineno)
    return found


def _lazy(function: Function, node: ast.AST, end: int) -> tuple[ast.If, ast.expr | None] | None:
    """The test under which a capture is made, and the key that it asks for (None: one graph for all calls)."""
    for holder in function.parents(node):
        if isinstance(holder, ast.If):
            if end > (holder.body[-1].end_lineno or 0):
                continue  # in the other branch
            test = holder.test
            if isinstance(test, ast.Compare) and len(test.ops) == 1:
                if isinstance(test.ops[0], ast.NotIn):
                    return holder, test.left
                if isinstance(test.ops[0], ast.Is) and _is_none(test.comparators[0]):
                    path = path_of(test.left)
                    if path is None:
                        return None
                    row = function.value_before(path, holder.lineno)
                    if row is not None and row[1] is not None:
                        return _looked_up(holder, row[1])
                    return (holder, None) if path.startswith("self.") else None
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and path_of(test.operand):
                path = str(path_of(test.operand))
                return (holder, None) if path.startswith("self.") else None
    return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _looked_up(holder: ast.If, value: ast.expr) -> tuple[ast.If, ast.expr | None] | None:
    """`graph = self.graphs.get(key)`."""
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "get"
        and value.args
    ):
        return holder, value.args[0]
    if isinstance(value, ast.Attribute):
        return holder, None
    return None


def _sources(function: Function, node: ast.AST, line: int, seen: frozenset[str] = frozenset()) -> set[str]:
    """The parameters that an expression depends on; `x.shape` where only the shape of one counts."""
    found: set[str] = set()
    skip: set[int] = set()
    for n in ast.walk(node):
        if id(n) in skip:
            continue
        shaped = _shape_of(n)
        if shaped is not None:
            skip.update(id(inner) for inner in ast.walk(n))
            if shaped in function.parameters:
                found.add(f"{shaped}.shape")
            continue
        if isinstance(n, ast.Name) and n.id != "self":
            rows = [(s, v) for s, v in function.assigned.get(n.id, ()) if s.lineno < line]
            if rows and n.id not in seen:
                for _, value in rows:
                    if value is not None:
                        found |= _sources(function, value, line, seen | {n.id})
                if any(v is None for _, v in rows):
                    found.discard(n.id)
            elif n.id in function.parameters:
                found.add(n.id)
    return found


def _shape_of(node: ast.AST) -> str | None:
    """The name whose shape an expression reads: `x.shape`, `x.size(0)`, `len(x)`."""
    if isinstance(node, ast.Attribute) and node.attr == "shape" and isinstance(node.value, ast.Name):
        return node.value.id
    if isinstance(node, ast.Call):
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in ("size", "numel")
            and isinstance(node.func.value, ast.Name)
        ):
            return node.func.value.id
        if (
            isinstance(node.func, ast.Name)
            and node.func.id == "len"
            and node.args
            and isinstance(node.args[0], ast.Name)
        ):
            return node.args[0].id
    return None


def _guards(function: Function, line: int, lazy: ast.If) -> set[str]:
    """Parameters that an earlier test decides about: another way is taken for other values."""
    found: set[str] = set()
    for node in function.own:
        if isinstance(node, (ast.If, ast.Assert, ast.IfExp)) and node is not lazy and node.lineno <= lazy.lineno:
            found |= _sources(function, node.test, line)
    found |= _sources(function, lazy.test, line)
    return found
