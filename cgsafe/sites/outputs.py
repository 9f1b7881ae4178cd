"""What is done with the static outputs of graphs, and what compiled functions that record graphs are called with."""

from __future__ import annotations

import ast
import itertools
from typing import Any

from cgsafe.findings import Confidence
from cgsafe.site_events import GrowingArgument, OutputKept
from cgsafe.sites.captures import Site, graphing
from cgsafe.sites.code import Code, Function, path_of, source, targets
from cgsafe.sites.report import Log

# Methods whose result has memory of its own, or none on the device.
_VIEWS = frozenset(
    (
        "detach", "expand", "flatten", "narrow", "permute", "reshape", "select", "squeeze", "split", "chunk", "t", "to",
        "transpose", "unbind", "unsqueeze", "values", "view", "contiguous", "float",
    )
)  # fmt: skip
_CASTING = frozenset(("to", "float", "contiguous", "reshape", "flatten"))


def look(site: Site, log: Log) -> None:
    aliases = _aliasing(site)
    for function in site.module.functions:
        runs = _runs(site, function, aliases)
        if runs:
            _two_runs(site, function, runs, log)
            _collected(site, function, runs, log)
            _gradients(site, function, runs, log)
            _growing(site, function, runs, log)
    _replayed(site, log)
    _returned(site, aliases, log)


Run = tuple[ast.Call, str, str]  # the call, of what ("compiled", "graphed", "graph"), the callee as source


def _runs(site: Site, function: Function, aliases: dict[int, tuple[Function, str]]) -> list[Run]:
    """Calls that run a graph and give its static outputs."""
    found: list[Run] = []
    captured = site.captures_of(function)
    if not aliases and not _records(site):
        return found
    for call in function.calls():
        if any(c.contains(call) for c in captured):
            continue
        path = path_of(call.func)
        if path is None:
            continue
        if not path.startswith(("torch.", "nn.", "F.")):
            kind = graphing(site.code, function, call.func, call.lineno)
            if kind:
                found.append((call, kind, path))
                continue
        callee = _local_callee(site, function, call) if aliases else None
        if callee is not None and id(callee) in aliases:
            found.append((call, "graph", path))
    return found


def _records(site: Site) -> bool:
    """Something in the file, or in what it imports, may be a callable that records graphs."""
    if site.records is None:
        text = "\n".join(site.module.text.lines)
        site.records = any(word in text for word in _RECORDING) or any(
            target is not None and "around" in target.index["triggers"]
            for name, attribute, level in site.module.imports.values()
            if attribute
            for target in [site.code.project.find_module(
                site.code.project.absolute(site.module.file, name, level), site.module.file)]
        )  # fmt: skip
    return site.records


_RECORDING = ("reduce-overhead", "max-autotune", "cudagraphs", "make_graphed_callables")


def _local_callee(site: Site, function: Function, call: ast.Call) -> Function | None:
    own = next((f for f in function.inner if isinstance(call.func, ast.Name) and f.name == call.func.id), None)
    return own or site.code.callee(function, call)


# -- results of two runs ---------------------------------------------------------------------------------------------


def _two_runs(site: Site, function: Function, runs: list[Run], log: Log) -> None:
    """`a = f(x); b = f(y)` and then a use of `a`."""
    for call, kind, callee in runs:
        statement = function.statement(call)
        for name in _names_bound(function, statement, call):
            again = [
                c
                for c, _, other in runs
                if other == callee and c.lineno > (statement.end_lineno or 0) and _follows(function, call, c)
            ]
            if not again:
                continue
            second = again[0]
            if any(
                statement.lineno < s.lineno <= second.lineno and s is not function.statement(second)
                for s, _ in function.assigned.get(name, ())
            ):
                continue
            rebound = [s.lineno for s, _ in function.assigned.get(name, ()) if s.lineno > statement.lineno]
            stop = min(rebound) if rebound else 1 << 30
            use = next(
                (n for n in _uses(function, name) if (function.statement(second).end_lineno or 0) < n.lineno <= stop),
                None,
            )
            if use is not None:
                holder = function.statement(use)
                node = holder if not hasattr(holder, "body") else use
                log.state(
                    OutputKept,
                    function,
                    node,
                    Confidence.MEDIUM,
                    name=name,
                    of=kind,
                    how="used",
                    producer=callee,
                    line=second.lineno,
                )


def _follows(function: Function, first: ast.AST, second: ast.AST) -> bool:
    """Not in two branches of one `if`."""
    branches = {}
    for node, other in ((first, 0), (second, 1)):
        inside: Any = node
        for parent in function.parents(node):
            if isinstance(parent, (ast.If, ast.Try)):
                part = next(
                    (
                        f
                        for f in ("body", "orelse", "handlers", "finalbody")
                        if inside in (getattr(parent, f, None) or ())
                    ),
                    "",
                )
                if other == 0:
                    branches[id(parent)] = part
                elif branches.get(id(parent), part) != part:
                    return False
            inside = parent
    returned = any(isinstance(p, ast.Return) for p in function.parents(first))
    return not returned


def _names_bound(function: Function, statement: Any, call: ast.Call) -> list[str]:
    """Names that a statement binds to the result of a call, or to a view of it."""
    found = []
    for target, value in targets(statement):
        name = path_of(target)
        if name is None:
            continue
        unpacked = value is None and isinstance(statement, ast.Assign) and statement.value is call
        if unpacked or (value is not None and _is_view_of(value, call)):
            found.append(name)
    return found


def _is_view_of(value: ast.AST, call: ast.AST) -> bool:
    while True:
        if value is call:
            return True
        if isinstance(value, (ast.Subscript, ast.Attribute)):
            value = value.value
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr in _VIEWS - _CASTING
        ):
            value = value.func.value
        else:
            return False


def _uses(function: Function, name: str) -> list[Any]:
    return [
        n
        for n in function.own
        if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and path_of(n) == name
    ]


# -- results that are collected -------------------------------------------------------------------------------------


def _collected(site: Site, function: Function, runs: list[Run], log: Log) -> None:
    """`outs.append(f(x))` in a loop, `[f(x) for x in xs]`."""
    for call, kind, callee in runs:
        details = {"of": kind, "producer": callee, "line": call.lineno}
        for parent in function.parents(call):
            if isinstance(parent, (ast.ListComp, ast.DictComp)):
                element = parent.elt if isinstance(parent, ast.ListComp) else parent.value
                if _is_view_of(element, call) or _holds(element, call):
                    log.state(
                        OutputKept, function, call, Confidence.MEDIUM, name=source(call), how="collected", **details
                    )
                break
            if isinstance(parent, ast.stmt):
                break
        loop = function.loop_of(call)
        if loop is None:
            continue
        statement = function.statement(call)
        names = set(_names_bound(function, statement, call))
        walked: list[Any] = list(ast.walk(loop))
        for node in walked:
            kept = _kept(node)
            if kept is None or not _outlives(function, loop, node):
                continue
            if _is_view_of(kept, call) or _holds(kept, call):
                log.state(OutputKept, function, node, Confidence.MEDIUM, name=source(call), how="collected", **details)
            else:
                name = _kept_name(kept, names)
                if name is not None and not _cloned(function, name, statement.lineno, node.lineno):
                    log.state(OutputKept, function, node, Confidence.MEDIUM, name=name, how="collected", **details)


def _kept(node: ast.AST) -> ast.expr | None:
    """What `outs.append(x)` or `outs[i] = x` keeps."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("append", "add", "appendleft", "put") and len(node.args) == 1:
            return node.args[0]
        if node.func.attr == "setdefault" and len(node.args) == 2:
            return node.args[1]
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        if not isinstance(node.targets[0].slice, (ast.Slice, ast.Tuple)):
            return node.value
    return None


def _outlives(function: Function, loop: Any, node: ast.AST) -> bool:
    """The container is made outside of the loop, and is no tensor that the value is copied into."""
    holder: Any = node.func if isinstance(node, ast.Call) else node.targets[0]  # type: ignore[attr-defined]
    base = path_of(holder.value)
    if base is None:
        return False
    rows = function.assigned.get(base, ())
    if any(loop.lineno <= s.lineno <= (loop.end_lineno or 0) for s, _ in rows):
        return False
    if isinstance(node, ast.Assign):
        values = [v for _, v in rows]
        if base.startswith("self.") and function.cls is not None:
            values += [v for _, _, v in function.cls.attributes.get(base[5:], ())]
        return any(
            isinstance(v, (ast.List, ast.Dict, ast.ListComp, ast.DictComp))
            or (isinstance(v, ast.BinOp) and isinstance(v.left, ast.List))
            or (isinstance(v, ast.Call) and path_of(v.func) in ("list", "dict", "defaultdict"))
            for v in values
        )
    return True


def _holds(value: ast.AST, call: ast.AST) -> bool:
    """A tuple or list with the value in it."""
    return isinstance(value, (ast.Tuple, ast.List)) and any(_is_view_of(e, call) for e in value.elts)


def _kept_name(value: ast.AST, names: set[str]) -> str | None:
    if isinstance(value, (ast.Tuple, ast.List)):
        return next((n for n in (_kept_name(e, names) for e in value.elts) if n is not None), None)
    while isinstance(value, (ast.Subscript, ast.Attribute, ast.Call)):
        if isinstance(value, ast.Call):
            if not isinstance(value.func, ast.Attribute) or value.func.attr not in _VIEWS - _CASTING:
                return None
            value = value.func.value
        else:
            path = path_of(value)
            if path in names:
                return path
            value = value.value
    return value.id if isinstance(value, ast.Name) and value.id in names else None


def _cloned(function: Function, name: str, first: int, last: int) -> bool:
    """Between the two lines the name is bound to something else."""
    return any(first < s.lineno <= last for s, _ in function.assigned.get(name, ()))


# -- gradients ----------------------------------------------------------------------------------------------------------


def _gradients(site: Site, function: Function, runs: list[Run], log: Log) -> None:
    """Gradients of a graphed callable are its static buffers: kept, or added up over several backward passes."""
    code = site.code
    for call, kind, callee in runs:
        loop = function.loop_of(call)
        if kind != "graphed" or loop is None:
            continue
        inside: list[Any] = list(ast.walk(loop))
        for node in inside:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                if code.dotted(function.module, node.value.func) == "torch.autograd.grad":
                    names = {path_of(t) or "" for t, _ in targets(node)}
                    for other in inside:
                        kept = _kept(other)
                        if kept is None or not _outlives(function, loop, other):
                            continue
                        name = _kept_name(kept, names)
                        if name is not None and not _cloned(function, name, node.lineno, other.lineno):
                            log.state(
                                OutputKept, function, other, Confidence.MEDIUM, name=name, of="gradients",
                                how="collected", producer=callee, line=call.lineno,
                            )  # fmt: skip
        backward = [
            n
            for n in inside
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "backward"
        ]
        cleared = any(
            (isinstance(n, ast.Attribute) and n.attr in ("zero_grad", "grad"))
            or (isinstance(n, ast.Constant) and n.value == "grad")
            for n in inside
        )
        if backward and not cleared:
            log.state(
                OutputKept, function, backward[0], Confidence.MEDIUM, name="the gradients", of="gradients",
                how="accumulated", producer=callee, line=call.lineno,
            )  # fmt: skip


# -- raw graphs ----------------------------------------------------------------------------------------------------------


def _static_outputs(site: Site, function: Function) -> set[str]:
    """Names and attributes that captures bind, as a function sees them."""
    found: set[str] = set()
    for capture in site.captures:
        same = capture.function is function
        related = function.cls is not None and capture.function.cls is function.cls
        nested = function.outer is capture.function
        for statement in capture.body:
            for target, value in targets(statement):
                path = path_of(target)
                if path is None or (value is not None and _copies(value)):
                    continue
                if same or nested or (related and path.startswith("self.")):
                    found.add(path)
    return found


def _copies(value: ast.AST) -> bool:
    """Its result is a number or the like, no tensor of the graph."""
    return isinstance(value, ast.Constant)


def _replayed(site: Site, log: Log) -> None:
    """`graph.replay(); outs.append(out)` in a loop."""
    for function in site.module.functions:
        outputs = _static_outputs(site, function)
        for replay in site.replays_of(function):
            loop = function.loop_of(replay)
            if loop is None or not outputs:
                continue
            if any(loop.lineno <= c.node.lineno <= (loop.end_lineno or 0) for c in site.captures_of(function)):
                continue
            graph = source(replay.func.value)  # type: ignore[attr-defined]
            walked: list[Any] = list(ast.walk(loop))
            for node in walked:
                kept = _kept(node)
                if kept is None or not _outlives(function, loop, node):
                    continue
                name = _kept_name(kept, outputs)
                if name is not None and not _cloned(function, name, loop.lineno, node.lineno):
                    log.state(
                        OutputKept, function, node, Confidence.MEDIUM, name=name, of="graph", how="collected",
                        producer=f"{graph}.replay", line=replay.lineno,
                    )  # fmt: skip
        _two_replays(site, function, outputs, log)


def _two_replays(site: Site, function: Function, outputs: set[str], log: Log) -> None:
    """`g.replay(); a = out; ...; g.replay()` and then a use of `a`."""
    replays = site.replays_of(function)
    for first, second in itertools.pairwise(replays):
        if source(first.func) != source(second.func) or not _follows(function, first, second):
            continue
        for path, rows in function.assigned.items():
            for statement, value in rows:
                if not first.lineno < statement.lineno < second.lineno or value is None:
                    continue
                if _kept_name(value, outputs) is None:
                    continue
                use = next((n for n in _uses(function, path) if n.lineno > second.lineno), None)
                if use is not None and not _cloned(function, path, statement.lineno, use.lineno):
                    log.state(
                        OutputKept, function, function.statement(use), Confidence.MEDIUM, name=path, of="graph", how="used",
                        producer=source(first.func), line=second.lineno,
                    )  # fmt: skip


def _aliasing(site: Site) -> dict[int, tuple[Function, str]]:
    """Functions that replay a graph and return its static output as it is."""
    found: dict[int, tuple[Function, str]] = {}
    for function in site.module.functions:
        replays = site.replays_of(function)
        outputs = _static_outputs(site, function)
        if not replays or not outputs:
            continue
        for node in function.own:
            if isinstance(node, ast.Return) and node.value is not None and node.lineno > replays[0].lineno:
                name = _kept_name(node.value, outputs)
                if name is not None and not _cloned(function, name, _last_capture(site, function), node.lineno):
                    found[id(function)] = (function, name)
    return found


def _last_capture(site: Site, function: Function) -> int:
    return max([c.end for c in site.captures_of(function)], default=0)


def _returned(site: Site, aliases: dict[int, tuple[Function, str]], log: Log) -> None:
    for function, name in aliases.values():
        for node in function.own:
            if isinstance(node, ast.Return) and node.value is not None and _kept_name(node.value, {name}):
                replay = site.replays_of(function)[0]
                log.state(
                    OutputKept, function, node, Confidence.LOW, name=name, of="graph", how="returned",
                    producer=source(replay.func), line=replay.lineno,
                )  # fmt: skip


# -- arguments that grow -------------------------------------------------------------------------------------------------


def _growing(site: Site, function: Function, runs: list[Run], log: Log) -> None:
    """A compiled function that records graphs gets an argument of another shape in each turn of a loop."""
    for call, kind, callee in runs:
        loop = function.loop_of(call)
        if kind != "compiled" or loop is None:
            continue
        counters = (
            {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} if isinstance(loop, ast.For) else set()
        )
        for argument in (*call.args, *(k.value for k in call.keywords)):
            grown = _grows(site.code, function, loop, argument, counters)
            if grown is not None:
                name, how, line = grown
                log.state(
                    GrowingArgument, function, call, Confidence.MEDIUM, callee=callee, name=name, grows=how, line=line
                )
                break


_JOINS = (
    "torch.cat",
    "torch.concat",
    "torch.concatenate",
    "torch.hstack",
    "torch.vstack",
    "torch.nn.functional.pad",
    "torch.stack",
)


def _grows(
    code: Code, function: Function, loop: Any, argument: ast.AST, counters: set[str]
) -> tuple[str, str, int] | None:
    name = path_of(argument)
    if name is not None:
        for statement, value in function.assigned.get(name, ()):
            if not loop.lineno <= statement.lineno <= (loop.end_lineno or 0) or value is None:
                continue
            if isinstance(value, ast.Call) and code.dotted(function.module, value.func) in _JOINS and value.args:
                if name in {path_of(n) for n in ast.walk(value.args[0])}:
                    return name, source(value), statement.lineno
            if statement.lineno < argument.lineno:  # type: ignore[attr-defined]
                found = _grows(code, function, loop, value, counters) if path_of(value) is None else None
                if found is not None:
                    return name, found[1], statement.lineno
        return None
    if isinstance(argument, ast.Subscript):
        index = argument.slice
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            if isinstance(part, ast.Slice):
                lower = (
                    {n.id for n in ast.walk(part.lower) if isinstance(n, ast.Name)} if part.lower is not None else set()
                )
                upper = (
                    {n.id for n in ast.walk(part.upper) if isinstance(n, ast.Name)} if part.upper is not None else set()
                )
                if bool(lower & counters) != bool(upper & counters):
                    return source(argument), source(argument), argument.lineno
        return None
    if isinstance(argument, ast.Call) and code.dotted(function.module, argument.func) in _JOINS and argument.args:
        base = path_of(argument.args[0])
        if base is not None and any(
            isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and n.func.attr in ("append", "extend")
            and path_of(n.func.value) == base
            for n in ast.walk(loop)
        ):
            return base, f"{base}.append(...)", argument.lineno
    return None
