"""What a graph reads must live as long as the graph, and what an asynchronous copy reads until it has run."""

from __future__ import annotations

import ast
from typing import Any

from cgsafe.findings import Confidence
from cgsafe.site_events import HostOverwritten, InputDies, PoolOutlives
from cgsafe.sites.captures import Capture, Site, captured_calls
from cgsafe.sites.code import Function, Klass, path_of, source
from cgsafe.sites.report import Log

_POOL = ("torch.cuda.graph_pool_handle", "torch.cuda.graphs.graph_pool_handle")


def look(site: Site, log: Log) -> None:
    for capture in site.captures:
        _locals(site, capture, log)
    _pools(site, log)
    for klass in site.module.classes.values():
        _staging(site, klass, log)


# -- inputs that only locals hold --------------------------------------------------------------------------------------


def _locals(site: Site, capture: Capture, log: Log) -> None:
    function = capture.function
    if not function.name:
        return
    kept = _graph_kept(site, capture)
    if not kept:
        return
    runs = {path_of(c.func) for c in captured_calls(site, capture)}
    for call in captured_calls(site, capture):
        for argument in (*call.args, *(k.value for k in call.keywords)):
            if not isinstance(argument, ast.Name) or argument.id in function.parameters:
                continue
            row = function.value_before(argument.id, capture.node.lineno)
            if row is None or row[1] is None or not _on_device(site, function, row[1]):
                continue
            if any(isinstance(t, (ast.Attribute, ast.Subscript)) for t in getattr(row[0], "targets", ())):
                continue  # `x = self.inputs[n] = ...`
            trace = _escapes(function, argument.id, runs)
            if trace is None:
                continue
            log.state(
                InputDies,
                function,
                call,
                Confidence.MEDIUM,
                name=argument.id,
                made=row[0].lineno,
                kept=kept,
                trace=trace,
            )
            return


def _graph_kept(site: Site, capture: Capture) -> str:
    """How the graph outlives the function: "self.graph", "returned", or "" where it does not."""
    function, graph = capture.function, capture.graph
    if graph.startswith("self."):
        return graph
    if not graph.isidentifier() or graph in function.parameters:
        return ""
    for node in function.own:
        if isinstance(node, ast.Return) and node.value is not None and _bare(node.value, graph):
            return "returned"
        if isinstance(node, ast.Assign) and _bare(node.value, graph):
            for target in node.targets:
                if isinstance(target, (ast.Attribute, ast.Subscript)):
                    return source(target)
    return ""


def _bare(value: ast.AST, name: str) -> bool:
    """The value is, or holds, what the name stands for."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(_bare(e, name) for e in value.elts)
    if isinstance(value, ast.Dict):
        return any(_bare(e, name) for e in value.values)
    if isinstance(value, ast.Call):
        return any(_bare(a, name) for a in (*value.args, *(k.value for k in value.keywords)))
    return isinstance(value, ast.Name) and value.id == name


def _on_device(site: Site, function: Function, value: ast.expr) -> bool:
    """A new tensor on the GPU: a factory with a device, or a copy."""
    if not isinstance(value, ast.Call):
        return False
    name = site.code.dotted(function.module, value.func)
    if name.startswith("torch.") and site.code.is_tensor(function, value):
        device = next((k.value for k in value.keywords if k.arg == "device"), None)
        if device is not None:
            return not (isinstance(device, ast.Constant) and str(device.value).startswith("cpu"))
        return name.endswith("_like")
    if isinstance(value.func, ast.Attribute):
        if value.func.attr in ("clone", "new_zeros", "new_empty", "new_full", "new_ones"):
            return site.code.is_tensor(function, value)
        if value.func.attr == "cuda":
            return site.code.is_tensor(function, value.func.value)
    return False


def _escapes(function: Function, name: str, runs: set[str | None]) -> str | None:
    """None where something keeps the tensor; else what is kept in its place ("" where nothing is)."""
    for inner in function.inner:
        if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(inner.node)):
            return None
    trace = ""
    for node in function.own:
        if isinstance(node, (ast.Lambda, ast.ClassDef)) and any(
            isinstance(n, ast.Name) and n.id == name for n in ast.walk(node)
        ):
            return None
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        use = _use(function, node, runs)
        if use is None:
            return None
        trace = use or trace
    return trace


def _use(function: Function, node: ast.Name, runs: set[str | None]) -> str | None:
    """What one use of a tensor keeps: None the tensor itself, "" nothing, else a trace of it, as source."""
    before: ast.AST = node
    for parent in function.parents(node):
        if isinstance(parent, ast.Attribute):
            call = next(iter(function.parents(parent)), None)
            if parent.attr == "data_ptr":
                return source(call) if isinstance(call, ast.Call) else ""
            if parent.attr in (
                "shape",
                "dtype",
                "device",
                "size",
                "numel",
                "copy_",
                "fill_",
                "zero_",
                "normal_",
                "item",
            ):
                return ""
        elif isinstance(parent, ast.Call):
            path = path_of(parent.func) or ""
            if path.startswith("weakref.") or path in ("ref", "WeakSet", "proxy"):
                return source(parent)
            if path in runs or path.startswith("torch."):
                return ""
            if before is not parent.func:
                return None  # somebody else has it now
        elif isinstance(parent, ast.stmt):
            if isinstance(parent, (ast.Return, ast.Assign, ast.AnnAssign)):
                return None
            return "" if isinstance(parent, (ast.Expr, ast.With, ast.If, ast.Assert, ast.For, ast.AugAssign)) else None
        before = parent
    return None


# -- pools --------------------------------------------------------------------------------------------------------------


def _pools(site: Site, log: Log) -> None:
    """`pool = torch.cuda.graph_pool_handle()` in a class body or at the top, and graphs that are reset."""
    module = site.module
    if not site.captures:
        return
    for klass in module.classes.values():
        for name, rows in klass.attributes.items():
            for method, statement, value in rows:
                if method is None and _is_pool(site, value):
                    reset = _reset(list(klass.methods.values()))
                    used = any(path_of(c.keywords["pool"]) in (f"self.{name}", f"cls.{name}", f"{klass.name}.{name}")
                               for c in site.captures if "pool" in c.keywords)  # fmt: skip
                    if reset and used:
                        log.state(
                            PoolOutlives, module.body, statement, Confidence.MEDIUM, name=f"{klass.name}.{name}",
                            scope="class", reset=reset,
                        )  # fmt: skip
    for name, bindings in module.body.assigned.items():
        for statement, value in bindings:
            if _is_pool(site, value):
                used = any(path_of(c.keywords["pool"]) == name for c in site.captures if "pool" in c.keywords)
                reset = _reset([f for f in module.functions if f.name])
                if used and reset:
                    log.state(
                        PoolOutlives, module.body, statement, Confidence.MEDIUM, name=name, scope="module", reset=reset
                    )


def _is_pool(site: Site, value: Any) -> bool:
    return isinstance(value, ast.Call) and site.code.dotted(site.module, value.func) in _POOL


def _reset(functions: list[Function]) -> int:
    """The line where graphs are given up."""
    for function in functions:
        for node in function.own:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                base = (path_of(node.func.value) or "").lower()
                if node.func.attr in ("reset", "clear") and "graph" in base and not node.args:
                    return node.lineno
    return 0


# -- staging buffers ------------------------------------------------------------------------------------------------------

_SYNCS = frozenset(("synchronize", "wait", "item", "tolist", "cpu", "numpy", "query", "record_event"))


def _staging(site: Site, klass: Klass, log: Log) -> None:
    """An asynchronous copy from a pinned buffer of a class, which is written again after a replay, before any wait."""
    for attribute, rows in klass.attributes.items():
        if not any(v is not None and _pinned(v) for _, _, v in rows):
            continue
        path = f"self.{attribute}"
        copies = [(m, c) for m in klass.methods.values() for c in m.calls() if _asynchronous(c, path)]
        for method, copy in copies:
            if _read_back(method, copy, path):
                continue  # captured code that writes back: stated by the walk
            written = _written_after(site, klass, method, copy, path)
            if written is not None:
                writer, line = written
                log.state(
                    HostOverwritten, method, copy, Confidence.MEDIUM, buffer=path, written=line, writer=writer.qualname
                )


def _pinned(value: ast.AST) -> bool:
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr == "pin_memory":
        return True
    return any(
        k.arg == "pin_memory" and isinstance(k.value, ast.Constant) and k.value.value is True for k in value.keywords
    )


def _asynchronous(call: ast.Call, path: str) -> bool:
    """`dst.copy_(self.host[:n], non_blocking=True)`, `self.host.to(device, non_blocking=True)`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    free = any(
        k.arg == "non_blocking" and isinstance(k.value, ast.Constant) and k.value.value is True for k in call.keywords
    )
    if not free:
        return False
    if call.func.attr == "copy_" and call.args:
        return _base(call.args[0]) == path
    return call.func.attr in ("to", "cuda") and _base(call.func.value) == path


def _read_back(method: Function, copy: ast.Call, path: str) -> bool:
    """A later copy from the device into the buffer that the same function has copied from: both go into one graph."""
    for call in method.calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr == "copy_" and call.lineno > copy.lineno:
            free = any(k.arg == "non_blocking" for k in call.keywords)
            if free and _base(call.func.value) == path:
                return True
    return False


def _base(node: ast.AST) -> str | None:
    while isinstance(node, ast.Subscript):
        node = node.value
    return path_of(node)


def _writes(function: Function, path: str) -> list[int]:
    """Lines on which a function writes into a buffer."""
    found = []
    for node in function.own:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Subscript) and _base(target) == path:
                    found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("copy_", "fill_", "zero_") and _base(node.func.value) == path:
                found.append(node.lineno)
    return found


def _waits(function: Function, first: int, last: int) -> bool:
    return any(
        isinstance(c.func, ast.Attribute) and c.func.attr in _SYNCS and first < c.lineno < last
        for c in function.calls()
    )


def _written_after(
    site: Site, klass: Klass, method: Function, copy: ast.Call, path: str
) -> tuple[Function, int] | None:
    for line in _writes(method, path):
        if line > copy.lineno and not _waits(method, copy.lineno, line):
            return method, line
    writers = {
        m.name: (m, lines[0])
        for m in klass.methods.values()
        if m is not method
        for lines in [_writes(m, path)]
        if lines
    }
    for function, replay in site.replays:
        started = [
            c for c in function.calls() if _called(site, function, c, klass) == method.name and c.lineno < replay.lineno
        ]
        if function is method and replay.lineno > copy.lineno:
            started = [copy]
        if not started:
            continue
        for call in function.calls():
            name = _called(site, function, call, klass)
            if name in writers and call.lineno > replay.lineno:
                writer, line = writers[name]
                if not _waits(function, started[-1].lineno, call.lineno) and not _waits(writer, 0, line):
                    return writer, line
        if function.cls is klass:
            later = [line for line in _writes(function, path) if line > replay.lineno]
            if later and not _waits(function, started[-1].lineno, later[0]):
                return function, later[0]
    return None


def _called(site: Site, function: Function, call: ast.Call, klass: Klass) -> str:
    """The method of a class that a call runs, by name."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in klass.methods:
        return ""
    owner = site.code.class_of(function, call.func.value, call.lineno)
    return call.func.attr if owner is klass else ""
