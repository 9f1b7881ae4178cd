"""Where a file captures, warms up and replays."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from cgsafe.sites.code import Code, Function, Module, path_of, source

_OWN_GRAPHS = ("reduce-overhead", "max-autotune")


@dataclass
class Capture:
    """One `with torch.cuda.graph(...)`, or the statements between `capture_begin()` and `capture_end()`."""

    function: Function
    node: Any  # the statement
    call: ast.Call
    body: list[ast.stmt]
    graph: str  # the graph, as source
    keywords: dict[str, ast.expr] = field(default_factory=dict)
    open_ended: bool = False  # `**kwargs` or `*args` in the call

    @property
    def end(self) -> int:
        return self.body[-1].end_lineno or self.body[-1].lineno

    def contains(self, node: Any) -> bool:
        return bool(self.body[0].lineno <= node.lineno <= self.end)


@dataclass
class Site:
    """Everything of one file."""

    code: Code
    module: Module
    captures: list[Capture] = field(default_factory=list)
    replays: list[tuple[Function, ast.Call]] = field(default_factory=list)
    records: bool | None = None  # whether callables that record graphs may occur; None: not looked yet

    def captures_of(self, function: Function) -> list[Capture]:
        return [c for c in self.captures if c.function is function]

    def replays_of(self, function: Function) -> list[ast.Call]:
        return [call for f, call in self.replays if f is function]


def survey(code: Code, module: Module) -> Site:
    site = Site(code, module)
    for function in module.functions:
        for node in function.own:
            if isinstance(node, (ast.With, ast.AsyncWith)):
                for item in node.items:
                    call = item.context_expr
                    if isinstance(call, ast.Call) and code.dotted(module, call.func) in code.tables.capture_contexts:
                        site.captures.append(_capture(function, node, call, node.body))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr == "replay" and not node.args:
                    site.replays.append((function, node))
                elif node.func.attr == "capture_begin":
                    body = _until_end(function, node)
                    if body:
                        graph = source(node.func.value)
                        site.captures.append(Capture(function, function.statement(node), node, body, graph))
    return site


def _capture(function: Function, node: Any, call: ast.Call, body: list[ast.stmt]) -> Capture:
    keywords = {k.arg: k.value for k in call.keywords if k.arg is not None}
    for name, value in zip(("cuda_graph", "pool", "stream", "capture_error_mode"), call.args, strict=False):
        keywords.setdefault(name, value)
    graph = source(keywords["cuda_graph"]) if "cuda_graph" in keywords else ""
    starred = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
    return Capture(function, node, call, body, graph, keywords, starred)


def _until_end(function: Function, begin: ast.Call) -> list[ast.stmt]:
    """The statements after `capture_begin()` in its block, up to `capture_end()`."""
    statement = function.statement(begin)
    holder = next(iter(function.parents(statement)), None)
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(holder, block, None)
        if isinstance(statements, list) and statement in statements:
            rest = statements[statements.index(statement) + 1 :]
            for number, other in enumerate(rest):
                if any(isinstance(n, ast.Attribute) and n.attr == "capture_end" for n in ast.walk(other)):
                    return list(rest[:number])
    return []


def captured_calls(site: Site, capture: Capture) -> list[ast.Call]:
    """Calls of a capture's body that run checked or unknown code, not torch's own functions or tensor methods."""
    found = []
    for statement in capture.body:
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            path = path_of(node.func)
            if path is None or site.code.dotted(site.module, node.func).startswith(("torch.", "builtins.")):
                continue
            if isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
                continue
            if isinstance(node.func, ast.Attribute) and site.code.is_tensor(capture.function, node.func.value):
                continue
            found.append(node)
    return found


_BUILTINS = frozenset(("print", "len", "range", "zip", "enumerate", "tuple", "list", "dict", "getattr", "isinstance"))


# -- callables that record graphs of their own -----------------------------------------------------------------------


def graphing(code: Code, function: Function, node: ast.AST | None, line: int = 1 << 30, depth: int = 0) -> str:
    """ "compiled" for a callable under torch.compile that records graphs, "graphed" for make_graphed_callables, else ""."""
    if node is None or depth > 6:
        return ""
    module = function.module
    if isinstance(node, ast.Call):
        name = code.dotted(module, node.func)
        if name == "torch.compile":
            return "compiled" if _records(node) else ""
        if name in code.tables.graph_makers:
            return "graphed"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("cuda", "eval", "to", "train"):
            return graphing(code, function, node.func.value, line, depth + 1)
        maker = code.resolve(module, node.func, records=True)
        if isinstance(maker, Function):
            results = [n.value for n in maker.own if isinstance(n, ast.Return) and n.value is not None]
            kinds = {graphing(code, maker, r, r.lineno, depth + 1) for r in results}
            return kinds.pop() if len(kinds) == 1 else ""
        return ""
    path = path_of(node)
    if path is None:
        return ""
    row = function.value_before(path, line)
    if row is not None:
        return graphing(code, function, row[1], row[0].lineno, depth + 1)
    if isinstance(node, ast.Name):
        if node.id in function.parameters:
            return ""
        if function.outer is not None:
            return graphing(code, function.outer, node, 1 << 30, depth + 1)
        if function.name:
            found = graphing(code, module.body, node, 1 << 30, depth + 1)
            if found:
                return found
        target = code.resolve(module, node, records=True)
        if isinstance(target, Function):
            for decorator in target.node.decorator_list:
                if isinstance(decorator, ast.Call) and code.dotted(target.module, decorator.func) == "torch.compile":
                    return "compiled" if _records(decorator) else ""
                if isinstance(decorator, ast.Call) and decorator.args:  # functools.partial(torch.compile, mode=...)
                    inner = code.dotted(target.module, decorator.args[0])
                    if inner == "torch.compile":
                        return "compiled" if _records(decorator) else ""
        return ""
    if path.startswith("self.") and path.count(".") == 1 and function.cls is not None:
        rows = function.cls.attributes.get(path[5:], ())
        kinds = {graphing(code, m, v, s.lineno, depth + 1) for m, s, v in rows if m is not None and v is not None}
        return kinds.pop() if len(kinds) == 1 else ""
    return ""


def _records(call: ast.Call) -> bool:
    """torch.compile(...) whose result records CUDA graphs."""
    for keyword in call.keywords:
        if keyword.arg == "mode" and isinstance(keyword.value, ast.Constant):
            if keyword.value.value in _OWN_GRAPHS:
                return True
        elif keyword.arg == "backend" and isinstance(keyword.value, ast.Constant):
            if keyword.value.value == "cudagraphs":
                return True
        elif keyword.arg == "options" and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "triton.cudagraphs":
                    return isinstance(value, ast.Constant) and value.value is True
    return False
