"""Captures in the default error mode beside other threads, and on streams of another device."""

from __future__ import annotations

import ast
from typing import Any

from cgsafe.findings import Confidence
from cgsafe.site_events import StreamElsewhere, ThreadsBeside
from cgsafe.sites.captures import Capture, Site
from cgsafe.sites.code import Code, Function, Module, path_of, source
from cgsafe.sites.report import Log

_THREADS = ("threading.Thread", "threading.Timer")
_POOLS = ("concurrent.futures.ThreadPoolExecutor", "multiprocessing.pool.ThreadPool", "multiprocessing.dummy.Pool")
_LOADER = "torch.utils.data.DataLoader"
_CUDA_WORDS = (".cuda(", "torch.cuda.", "pin_memory", "non_blocking", ".to(", "device=", ".copy_(", "synchronize(")


def look(site: Site, log: Log) -> None:
    for capture in site.captures:
        if "capture_error_mode" not in capture.keywords and not capture.open_ended:
            _threads(site, capture, log)
        _device(site, capture, log)


def _threads(site: Site, capture: Capture, log: Log) -> None:
    """Report a capture that runs while a thread of the checked code may call CUDA."""
    function = capture.function
    found = None
    methods = function.cls.methods.values() if function.cls is not None else [function]
    for other in methods:
        found = found or _started(site.code, other, function, capture)
    found = found or _loaded(site, capture)
    if found is not None:
        where, node, kind = found
        log.state(
            ThreadsBeside,
            function,
            capture.call,
            Confidence.MEDIUM,
            source=source(capture.call.func),
            what=source(node),
            how=kind,
            line=node.lineno,
            where="" if where.module is site.module else where.module.file.module,
        )


def _started(code: Code, holder: Function, capturing: Function, capture: Capture) -> tuple[Function, Any, str] | None:
    """A thread that this function starts, whose work is seen to use CUDA."""
    if any(isinstance(n, ast.Attribute) and n.attr == "join" for s in capture.body for n in ast.walk(s)):
        return None  # the threads do what is captured
    for call in holder.calls():
        name = code.dotted(holder.module, call.func)
        target: ast.AST | None = None
        if name in _THREADS:
            target = next((k.value for k in call.keywords if k.arg == "target"), None)
            if target is None and name == "threading.Timer" and len(call.args) > 1:
                target = call.args[1]
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("submit", "map") and call.args:
            if _is_pool(code, holder, call.func.value):
                target = call.args[0]
        if target is None or not _uses_cuda(code, holder, target, capture):
            continue
        if holder is capturing and (call.lineno > capture.node.lineno or _joined(holder, call, capture)):
            continue
        return holder, call, "thread"
    return None


def _is_pool(code: Code, holder: Function, node: ast.AST) -> bool:
    path = path_of(node)
    if path is None:
        return isinstance(node, ast.Call) and code.dotted(holder.module, node.func) in _POOLS
    values = [v for _, v in holder.assigned.get(path, ())]
    if path.startswith("self.") and holder.cls is not None:
        values += [v for _, _, v in holder.cls.attributes.get(path[5:], ())]
    for node_ in holder.own:
        if isinstance(node_, ast.With):
            values += [i.context_expr for i in node_.items if i.optional_vars and path_of(i.optional_vars) == path]
    return any(isinstance(v, ast.Call) and code.dotted(holder.module, v.func) in _POOLS for v in values)


def _uses_cuda(code: Code, holder: Function, target: ast.AST, capture: Capture) -> bool:
    """The thread's work is at hand and touches the GPU; it is not the one that captures."""
    node: Any = target
    work: Function | None = None
    if isinstance(target, ast.Lambda):
        return _mentions_cuda(holder.module, target)
    if isinstance(target, ast.Attribute) and path_of(target.value) == "self" and holder.cls is not None:
        work = holder.cls.methods.get(target.attr)
    elif isinstance(target, ast.Attribute):
        owner = code.class_of(holder, target.value, target.lineno)
        work = owner.methods.get(target.attr) if owner is not None else None
    else:
        work = next(
            (f for f in (*holder.inner, *(holder.outer.inner if holder.outer else ())) if f.name == path_of(node)), None
        )
        if work is None:
            found = code.resolve(holder.module, target)
            work = found if isinstance(found, Function) else None
    if work is None or work is capture.function or capture.function in work.inner:
        return False
    called = {path_of(c.func) for c in work.calls()}
    if f"self.{capture.function.name}" in called or capture.function.name in called:
        return False  # this thread is the one that captures
    return _mentions_cuda(work.module, work.node)


def _mentions_cuda(module: Module, node: Any) -> bool:
    text = "\n".join(module.text.lines[node.lineno - 1 : node.end_lineno])
    return any(word in text for word in _CUDA_WORDS)


def _joined(holder: Function, call: ast.Call, capture: Capture) -> bool:
    """The thread is waited for before the capture."""
    return any(
        isinstance(c.func, ast.Attribute)
        and c.func.attr in ("join", "shutdown", "result")
        and call.lineno <= c.lineno < capture.node.lineno
        for c in holder.calls()
    ) or any(
        isinstance(n, ast.With)
        and n.lineno <= call.lineno <= (n.end_lineno or 0) < capture.node.lineno
        and any(_is_executor(holder, i) for i in n.items)
        for n in holder.own
    )


def _is_executor(holder: Function, item: ast.withitem) -> bool:
    return isinstance(item.context_expr, ast.Call) and "Pool" in (path_of(item.context_expr.func) or "")


# -- a loader's thread -------------------------------------------------------------------------------------------------


def _loaded(site: Site, capture: Capture) -> tuple[Function, Any, str] | None:
    """A loop over a pinning DataLoader, or a function that starts threads, which calls what captures on the way."""
    function = capture.function
    name = function.cls.name if function.cls is not None else function.name
    if not name:
        return None
    modules = [site.module]
    for file in site.code.importers(name):
        if file is not site.module.file:
            text = "\n".join(site.code.walker.text(file).lines)
            if ("pin_memory" in text and "DataLoader" in text) or "Thread" in text:
                other = site.code.module(file)
                if other is not None:
                    modules.append(other)
    for module in modules:
        for user in module.functions:
            found = _loop(site.code, user, name, function, capture)
            if found is not None:
                return user, found, "pin"
            if user is not function and (function.cls is None or user.cls is not function.cls):
                started = _beside(site.code, user, function, capture)
                if started is not None:
                    return started
    return None


def _beside(code: Code, user: Function, capturing: Function, capture: Capture) -> tuple[Function, Any, str] | None:
    """A function that starts a thread and then calls what captures."""
    started = _started(code, user, capturing, capture)
    if started is None:
        return None
    for call in user.calls():
        if call.lineno > started[1].lineno and code.callee(user, call) is capturing:
            ended = any(
                isinstance(c.func, ast.Attribute) and c.func.attr in ("join", "shutdown") and c.lineno < call.lineno
                for c in user.calls()
            )
            return None if ended else started
    return None


def _loop(code: Code, user: Function, name: str, capturing: Function, capture: Capture) -> ast.Call | None:
    for loop in user.own:
        if not isinstance(loop, ast.For):
            continue
        loader = _pinning(code, user, loop.iter)
        if loader is None:
            continue
        if user is capturing and loop.lineno < capture.node.lineno <= (loop.end_lineno or 0):
            return loader
        for call in (n for n in ast.walk(loop) if isinstance(n, ast.Call)):
            callee = code.callee(user, call)
            if callee is capturing and capturing.cls is None:
                return loader
            if callee is not None and capturing.cls is not None and callee.cls is capturing.cls:
                if callee is capturing or capturing.name in {
                    (path_of(c.func) or "").rpartition(".")[2] for c in callee.calls()
                }:
                    return loader
    return None


def _pinning(code: Code, user: Function, node: ast.AST, depth: int = 0) -> ast.Call | None:
    """The DataLoader(pin_memory=True) that an expression iterates over."""
    if depth > 6:
        return None
    if isinstance(node, ast.Call):
        if code.dotted(user.module, node.func) == _LOADER:
            pinned = next((k.value for k in node.keywords if k.arg == "pin_memory"), None)
            return node if isinstance(pinned, ast.Constant) and pinned.value is True else None
        if isinstance(node.func, ast.Name) and node.func.id in ("enumerate", "iter", "tqdm", "zip") and node.args:
            return next((f for f in (_pinning(code, user, a, depth + 1) for a in node.args) if f is not None), None)
        maker = code.resolve(user.module, node.func)
        if isinstance(maker, Function):
            for returned in (n for n in maker.own if isinstance(n, ast.Return)):
                found = _pinning(code, maker, returned.value, depth + 1) if returned.value is not None else None
                if found is not None:
                    return found
        return None
    path = path_of(node)
    if path is None:
        return None
    rows: list[Any] = [(user, v) for _, v in user.assigned.get(path, ()) if v is not None]
    if path.startswith("self.") and user.cls is not None:
        rows += [(m, v) for m, _, v in user.cls.attributes.get(path[5:], ()) if m is not None and v is not None]
    for holder, value in rows:
        if isinstance(value, ast.Call):
            found = _pinning(code, holder, value, depth + 1)
            if found is not None:
                return found
    return None


# -- devices -----------------------------------------------------------------------------------------------------------


def _device(site: Site, capture: Capture, log: Log) -> None:
    """The capture's stream is made on the current device, and what it records lives on one with a number."""
    code, function = site.code, capture.function
    text = "\n".join(site.module.text.lines)
    if "set_device" in text or "cuda.device(" in text or "device_index" in text or "set_current" in text:
        return
    stream = capture.keywords.get("stream")
    made = _made_stream(code, function, stream) if stream is not None else None
    if made is None:
        return
    holder, node = made
    holders = function.cls.methods.values() if function.cls is not None else [function]
    for other in holders:
        for candidate in other.own:
            if (
                isinstance(candidate, ast.expr)
                and _numbered(code, other.module, candidate)
                and _is_used(other, candidate)
            ):
                log.state(
                    StreamElsewhere,
                    holder,
                    node,
                    Confidence.MEDIUM,
                    device=source(candidate),
                    line=candidate.lineno,
                )
                return


def _made_stream(code: Code, function: Function, node: ast.AST, depth: int = 0) -> tuple[Function, ast.Call] | None:
    """The `torch.cuda.Stream()` without a device that an expression stands for."""
    if isinstance(node, ast.Call):
        if code.dotted(function.module, node.func) in ("torch.cuda.Stream", "torch.cuda.streams.Stream"):
            placed = node.args or any(k.arg in ("device", None) for k in node.keywords)
            return None if placed else (function, node)
        return None
    path = path_of(node)
    if path is None or depth > 3:
        return None
    row = function.value_before(path, node.lineno)  # type: ignore[attr-defined]
    if row is not None:
        return _made_stream(code, function, row[1], depth + 1) if row[1] is not None else None
    if path.startswith("self.") and function.cls is not None:
        for method, _, value in function.cls.attributes.get(path[5:], ()):
            if method is not None and value is not None:
                return _made_stream(code, method, value, depth + 1)
    return None


def _numbered(code: Code, module: Module, node: ast.expr) -> bool:
    """`torch.device("cuda", rank)`, `f"cuda:{rank}"`, `"cuda:1"`: a device that need not be the current one."""
    if isinstance(node, ast.Call) and code.dotted(module, node.func) == "torch.device":
        kinds = [a for a in node.args if isinstance(a, ast.Constant) and a.value == "cuda"]
        index = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "index"), None)
        return bool(kinds) and index is not None and not (isinstance(index, ast.Constant) and index.value in (0, None))
    if isinstance(node, ast.JoinedStr) and node.values:
        head = node.values[0]
        return isinstance(head, ast.Constant) and head.value == "cuda:" and len(node.values) > 1
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("cuda:")
        and node.value[5:].isdigit()
        and node.value != "cuda:0"
    )


def _is_used(function: Function, node: ast.expr) -> bool:
    """It places something: assigned, or given to a call."""
    return any(isinstance(p, (ast.Call, ast.Assign, ast.AnnAssign, ast.keyword)) for p in function.parents(node))
