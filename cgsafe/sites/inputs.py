"""What a graph reads, and what later code does to it: replaced instead of filled, or filled in part only."""

from __future__ import annotations

import ast
from typing import Any

from cgsafe.findings import Confidence
from cgsafe.site_events import InputReplaced, PaddingKept
from cgsafe.sites.captures import Capture, Site, captured_calls
from cgsafe.sites.code import Code, Function, Klass, makes_tensor, names_tensor, path_of, paths_in, source
from cgsafe.sites.report import Log


def look(site: Site, log: Log) -> None:
    for capture in site.captures:
        reads = _reads(site, capture)
        _rebound_here(site, capture, reads, log)
        if capture.function.cls is not None:
            _rebound_in_class(site, capture, reads, log)
        _parameters(site, capture, log)
        _built(site, capture, log)
    for function in site.module.functions:
        _padding(site, function, log)


def _reads(site: Site, capture: Capture) -> set[str]:
    """Names and paths that a capture's body reads."""
    nodes: list[ast.AST] = [n for statement in capture.body for n in ast.walk(statement)]
    owner = capture.function.cls
    done: set[str] = set()
    while owner is not None:  # methods of the same object that the body calls, and that these call
        called = {path_of(n.func) or "" for n in nodes if isinstance(n, ast.Call)}
        new = (
            {p[5:] for p in called if p.startswith("self.") and p[5:] in owner.methods} - done - {capture.function.name}
        )
        if not new:
            break
        done |= new
        for name in sorted(new):
            nodes.extend(owner.methods[name].own)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            path = path_of(node)
            if path is not None and (path.startswith("self.") or capture.contains(node)):
                found.add(path)
    return found


def _writes(capture: Capture) -> set[str]:
    """Names and paths that a capture's body binds: outputs and temporaries."""
    found: set[str] = set()
    for statement in capture.body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                path = path_of(node)
                if path is not None:
                    found.add(path)
    return found


def _outside(site: Site, function: Function, node: Any) -> bool:
    return not any(c.contains(node) for c in site.captures_of(function))


# -- in the function of the capture, and in functions nested there -----------------------------------------------------


def _rebound_here(site: Site, capture: Capture, reads: set[str], log: Log) -> None:
    code, function = site.code, capture.function
    inputs = reads - _writes(capture)
    for holder in [function, *function.inner]:
        for replay in site.replays_of(holder):
            if holder is function and replay.lineno < capture.end:
                continue
            loop = holder.loop_of(replay)
            first = capture.end if holder is function else 0
            if loop is not None and holder is function and loop.lineno <= capture.node.lineno:
                continue  # captured anew in each turn
            if path_of(replay.func.value) != capture.graph:  # type: ignore[attr-defined]
                continue
            for path, rows in holder.assigned.items():
                for statement, value in rows:
                    if value is None:
                        value = statement.iter if isinstance(statement, ast.For) and path in inputs else None
                        if value is None:
                            continue
                    if not (first < statement.lineno < replay.lineno) and not (
                        loop is not None and loop.lineno <= statement.lineno <= (loop.end_lineno or 0)
                    ):
                        continue
                    if holder is not function and path in holder.parameters:
                        continue
                    if holder is not function and "." not in path and not _nonlocal(holder, path):
                        continue
                    how = _how(code, function, capture, path, inputs, value, holder)
                    if how:
                        _state(log, holder, statement, path, how, capture, replay.lineno)
            _items(site, holder, inputs, capture, first, replay.lineno, loop, log)


def _nonlocal(holder: Function, name: str) -> bool:
    return any(isinstance(n, (ast.Nonlocal, ast.Global)) and name in n.names for n in holder.own)


def _how(
    code: Code, function: Function, capture: Capture, path: str, inputs: set[str], value: ast.expr, holder: Function
) -> str:
    """How an assignment replaces something that the capture read: "rebound", "field", or "" where it does not."""
    if isinstance(value, ast.Constant):
        return ""
    if path in inputs:
        if "." in path and not path.startswith("self."):
            return "field" if code.is_tensor(holder, value, value.lineno) else ""
        known = _tensor_at(code, function, path, capture.node.lineno)
        return "rebound" if known and not _same(function, holder, value, path) else ""
    base, _, attribute = path.rpartition(".")
    if base and base != "self" and base in inputs:
        owner = code.class_of(function, _expression(base), capture.node.lineno)
        annotated = owner is not None and names_tensor(owner.annotations.get(attribute))
        if annotated or code.is_tensor(holder, value, value.lineno):
            return "" if owner is not None and _is_module(code, owner) and not annotated else "field"
    return ""


def _expression(path: str) -> ast.expr:
    return ast.parse(path, mode="eval").body


def _tensor_at(code: Code, function: Function, path: str, line: int) -> bool:
    """What a name or an attribute of self was at the capture is a tensor."""
    return code.is_tensor(function, _expression(path), line)


def _same(function: Function, holder: Function, value: ast.expr, path: str) -> bool:
    """The new value is the old tensor, or an in-place result of it."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr.endswith("_") and path_of(value.func.value) == path:
            return True
    return path_of(value) == path


def _is_module(code: Code, owner: Klass) -> bool:
    return any(code.dotted(owner.module, b).endswith("Module") for b in owner.node.bases)


def _items(
    site: Site, holder: Function, inputs: set[str], capture: Capture, first: int, replay: int, loop: Any, log: Log
) -> None:
    """`inputs["ids"] = fresh`, where the capture read the dictionary."""
    for node in holder.own:
        if not isinstance(node, ast.Assign) or not _outside(site, holder, node):
            continue
        near = first < node.lineno < replay or (
            loop is not None and loop.lineno <= node.lineno <= (loop.end_lineno or 0)
        )
        for target in node.targets:
            if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Constant):
                continue
            base = path_of(target.value)
            if near and base in inputs and isinstance(target.slice.value, str):
                if _is_dict(holder, capture.function, base) and not isinstance(node.value, ast.Constant):
                    _state(log, holder, node, source(target), "item", capture, replay)


def _is_dict(holder: Function, function: Function, path: str | None) -> bool:
    if path is None:
        return False
    rows = [v for _, v in function.assigned.get(path, ())]
    if path.startswith("self.") and function.cls is not None:
        rows += [v for _, _, v in function.cls.attributes.get(path[5:], ())]
    return any(
        isinstance(v, (ast.Dict, ast.DictComp)) or (isinstance(v, ast.Call) and path_of(v.func) == "dict") for v in rows
    )


def _state(
    log: Log, holder: Function, node: Any, name: str, how: str, capture: Capture, replay: int, **details: Any
) -> None:
    log.state(
        InputReplaced,
        holder,
        node,
        Confidence.MEDIUM,
        name=name,
        how=how,
        captured=capture.node.lineno,
        replay=replay,
        **details,
    )


# -- in other methods of the class ---------------------------------------------------------------------------------------


def _rebound_in_class(site: Site, capture: Capture, reads: set[str], log: Log) -> None:
    code, function = site.code, capture.function
    owner = function.cls
    assert owner is not None
    inputs = {p for p in reads - _writes(capture) if p.startswith("self.")}
    for method, replay in _replaying(site, owner):
        if method is function and replay < capture.end:
            continue
        if method.name == "__init__":
            continue
        for path, rows in method.assigned.items():
            for statement, value in rows:
                if value is None or not path.startswith("self.") or not _outside(site, method, statement):
                    continue
                if method is function and statement.lineno < capture.end:
                    continue
                if replay and statement.lineno > replay and method.loop_of(statement) is None:
                    pass  # what is bound after this replay is there at the next
                how = _how(code, function, capture, path, inputs, value, method)
                if how and not _recaptures(method, function):
                    _state(log, method, statement, path, how, capture, replay)
        if not _recaptures(method, function) and method is not function:
            _items(site, method, inputs, capture, 0, replay or 1 << 30, None, log)


def _replaying(site: Site, owner: Klass) -> list[tuple[Function, int]]:
    """(method, line of the replay) of methods that replay, and of those that these call on the way."""
    found = [(f, call.lineno) for f, call in site.replays if f.cls is owner]
    for method, _ in list(found):
        for call in method.calls():
            path = path_of(call.func) or ""
            if path.startswith("self.") and path.count(".") == 1:
                helper = owner.methods.get(path[5:])
                if helper is not None and all(helper is not m for m, _ in found) and not site.captures_of(helper):
                    found.append((helper, 0))
    return found


def _recaptures(method: Function, capturing: Function) -> bool:
    """The method sees to it that the graph is recorded anew."""
    for call in method.calls():
        path = path_of(call.func) or ""
        last = path.rpartition(".")[2]
        if method is not capturing and last == capturing.name and capturing.name != "__call__":
            return True
        if last in ("reset", "clear") or "capture" in last.lower() or "invalidate" in last.lower():
            return True
    for path, rows in method.assigned.items():
        if "graph" in path.lower() and any(isinstance(v, ast.Constant) and v.value is None for _, v in rows):
            return True
        if "graph" in path.lower() and any(isinstance(v, (ast.Dict, ast.List)) for _, v in rows):
            return True
    return any(isinstance(n, ast.Delete) for n in method.own)


# -- parameters ---------------------------------------------------------------------------------------------------------

_CASTS = ("bfloat16", "cpu", "double", "float", "half", "to_empty")


def _parameters(site: Site, capture: Capture, log: Log) -> None:
    """Weights that are replaced after the capture: the graph goes on to read the old ones."""
    function = capture.function
    modules = {p for call in captured_calls(site, capture) for p in [path_of(call.func)] if p is not None}
    holders: list[tuple[Function, int]] = [(function, capture.end)]
    if function.cls is not None:
        modules = {m for m in modules if m.startswith("self.")} | {m for m in modules if "." not in m}
        holders += [(m, 0) for m in function.cls.methods.values() if m is not function and m.name != "__init__"]
    for holder, first in holders:
        known = modules if holder is function else {m for m in modules if m.startswith("self.")}
        if holder is not function and (_recaptures(holder, function) or site.captures_of(holder)):
            continue
        iterated = _iterated(holder, known)
        for node in holder.own:
            if getattr(node, "lineno", 0) <= first:
                continue
            if holder is function and not any(r.lineno > node.lineno for r in site.replays_of(holder)):
                if site.replays_of(holder) or not isinstance(node, (ast.Call, ast.Assign)):
                    continue
                if not any(f in function.inner for f, _ in site.replays):
                    continue
            how = _replaces(site.code, holder, node, known, iterated)
            if how:
                later = [r.lineno for r in site.replays_of(holder) if r.lineno > node.lineno]
                _state(log, holder, node, how[1], how[0], capture, later[0] if later else 0)


def _iterated(holder: Function, modules: set[str]) -> set[str]:
    """Loop variables over the parameters of a captured module."""
    found: set[str] = set()
    for node in holder.own:
        if isinstance(node, ast.For):
            for call in (n for n in ast.walk(node.iter) if isinstance(n, ast.Call)):
                if isinstance(call.func, ast.Attribute) and call.func.attr in (
                    "parameters",
                    "named_parameters",
                    "buffers",
                ):
                    if path_of(call.func.value) in modules:
                        found |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    return found


def _replaces(code: Code, holder: Function, node: Any, modules: set[str], iterated: set[str]) -> tuple[str, str] | None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            path = path_of(target)
            if path is None:
                continue
            base, _, attribute = path.rpartition(".")
            if attribute == "data" and (base in iterated or any(base.startswith(m + ".") for m in modules)):
                return "data", path
            if isinstance(node.value, ast.Call) and any(base == m or base.startswith(m + ".") for m in modules):
                if code.dotted(holder.module, node.value.func).endswith("nn.Parameter"):
                    return "data", path
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        receiver = path_of(node.func.value)
        if receiver is None or not any(receiver == m or receiver.startswith(m + ".") for m in modules):
            return None
        if node.func.attr == "load_state_dict":
            assign = next((k.value for k in node.keywords if k.arg == "assign"), None)
            if isinstance(assign, ast.Constant) and assign.value is True:
                return "load", receiver
        if node.func.attr in _CASTS and not node.args:
            return "moved", receiver
        if node.func.attr == "to" and any(
            (isinstance(a, ast.Constant) and a.value == "cpu") or code.dotted(holder.module, a) in _DTYPES
            for a in (*node.args, *(k.value for k in node.keywords))
        ):
            return "moved", receiver
    return None


_DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32", "torch.half")


# -- builders -----------------------------------------------------------------------------------------------------------


def _built(site: Site, capture: Capture, log: Log) -> None:
    """What a builder returned was captured; it is called again before each replay, and returns fresh tensors."""
    code, function = site.code, capture.function
    arguments = {
        p
        for c in captured_calls(site, capture)
        for a in (*c.args, *(k.value for k in c.keywords))
        for p in [path_of(a)]
        if p
    }
    for name in sorted(arguments):
        row = function.value_before(name, capture.node.lineno)
        if row is None or not isinstance(row[1], ast.Call):
            continue
        builder = code.callee(function, row[1])
        called = path_of(row[1].func)
        if builder is None or called is None or builder.name in ("__init__", "forward", "__call__"):
            continue
        for holder, replay in _later(site, capture):
            again = [
                c
                for c in holder.calls()
                if path_of(c.func) == called
                and c.lineno < replay
                and (holder is not function or c.lineno > capture.end)
            ]
            if not again or _copied(holder, again[-1], replay):
                continue
            fresh = fresh_result(code, builder)
            if fresh is not None:
                node, text = fresh
                log.state(
                    InputReplaced,
                    builder,
                    node,
                    Confidence.MEDIUM,
                    name=name,
                    how="built",
                    captured=capture.node.lineno,
                    replay=replay,
                    builder=called,
                    fresh=text,
                )
            break


def _later(site: Site, capture: Capture) -> list[tuple[Function, int]]:
    """Where the graph is replayed: (function, line)."""
    function = capture.function
    found = []
    for holder, call in site.replays:
        here = holder is function and call.lineno > capture.end
        if (
            here
            or holder in function.inner
            or (function.cls is not None and holder.cls is function.cls and holder is not function)
        ):
            found.append((holder, call.lineno))
    return found


def _copied(holder: Function, call: ast.Call, replay: int) -> bool:
    """What the builder gave is used before the replay: copied into place, or handed on."""
    statement = holder.statement(call)
    names = {p for p, rows in holder.assigned.items() if any(s is statement for s, _ in rows)}
    if not names:
        return not isinstance(statement, ast.Expr) or statement.value is not call
    for node in holder.own:
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            if path_of(node) in names and statement.lineno < node.lineno <= replay:
                return True
    return False


def fresh_result(code: Code, builder: Function) -> tuple[Any, str] | None:
    """The return statement by which a builder hands out a tensor that it has just made, and that tensor's source."""
    for node in builder.own:
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        values: list[ast.expr] = [node.value]
        if isinstance(node.value, ast.Call) and code.callee(builder, node.value) is None:
            name = code.dotted(builder.module, node.value.func)
            if not name.startswith("torch."):
                values = [*node.value.args, *(k.value for k in node.value.keywords)]
        elif isinstance(node.value, ast.Dict):
            values = list(node.value.values)
        elif isinstance(node.value, ast.Tuple):
            values = list(node.value.elts)
        for value in values:
            if _fresh(code, builder, value, node.lineno):
                return node, source(value)
    return None


def _fresh(code: Code, builder: Function, value: ast.AST, line: int, depth: int = 0) -> bool:
    """A tensor that is computed here, rather than one that the object holds."""
    if depth > 6:
        return False
    if isinstance(value, ast.BinOp):
        return code.is_tensor(builder, value, line)
    if isinstance(value, ast.Call):
        name = code.dotted(builder.module, value.func)
        if name.startswith("torch."):
            return makes_tensor(name)
        if isinstance(value.func, ast.Attribute):
            if value.func.attr in ("clone", "cumsum", "float", "long", "int", "to", "sum", "sub", "add", "new_zeros"):
                return code.is_tensor(builder, value, line)
        return False
    if isinstance(value, ast.Subscript):
        return _fresh(code, builder, value.value, line, depth + 1)
    if isinstance(value, ast.Name):
        rows = [row for row in builder.assigned.get(value.id, ()) if row[0].lineno < line]
        return bool(rows) and all(v is not None and _fresh(code, builder, v, s.lineno, depth + 1) for s, v in rows)
    return False


# -- padding ------------------------------------------------------------------------------------------------------------


def _padding(site: Site, function: Function, log: Log) -> None:
    """`buf[:n].copy_(x)` before a replay, and nothing that resets `buf[n:]`."""
    replays = _replays_after(site, function)
    if not replays:
        return
    copies: list[tuple[ast.Call, str, str]] = []
    resets: dict[str, int] = {}
    keys: set[str] = set()
    for node in function.own:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            base = node.func.value
            if node.func.attr == "copy_" and isinstance(base, ast.Subscript):
                part, buffer = _upper(base.slice), path_of(base.value)
                if part is not None and buffer is not None:
                    copies.append((node, buffer, source(part)))
            elif node.func.attr in ("zero_", "fill_"):
                inner = base.value if isinstance(base, ast.Subscript) else base
                if path_of(inner) is not None:
                    resets.setdefault(str(path_of(inner)), node.lineno)
            elif node.func.attr == "replay":
                keys |= paths_in(node.func.value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and path_of(target.value) is not None:
                    part = _upper(target.slice)
                    if part is not None and isinstance(node.value, (ast.Name, ast.Attribute, ast.Call)):
                        continue
                    resets.setdefault(str(path_of(target.value)), node.lineno)
    _arithmetic(site, function, {b for _, b, _ in copies}, replays[0], log)
    read = {p for c in site.captures for p in _reads(site, c)}
    for call, buffer, bound in copies:
        if buffer in resets or bound in keys or bound.isdigit():
            continue
        if not (buffer in read or any(p.startswith(buffer + ".") for p in read)) and site.captures:
            continue
        siblings = [b for b in resets if any(b == other for _, other, _ in copies)]
        kinds = {b: _indexes(site, function, b) for _, b, _ in copies if b not in resets}
        # One of several that was forgotten; where more of them are left alone, that is on purpose.
        exact = bool(siblings) and kinds[buffer] is True and sum(k is not False for k in kinds.values()) == 1
        log.state(
            PaddingKept,
            function,
            call,
            Confidence.MEDIUM if exact else Confidence.LOW,
            buffer=buffer,
            bound=bound,
            sibling=siblings[0] if siblings else "",
            replay=replays[0],
        )


def _replays_after(site: Site, function: Function) -> list[int]:
    found = [c.lineno for c in site.replays_of(function)]
    if not found and function.cls is not None:
        for method, call in site.replays:
            if method.cls is function.cls and any(path_of(c.func) == f"self.{function.name}" for c in method.calls()):
                found.append(call.lineno)
    return found


def _upper(index: ast.expr) -> ast.expr | None:
    """n of `[:n]` or `[:n, ...]`."""
    if isinstance(index, ast.Tuple) and index.elts:
        index = index.elts[0]
    if isinstance(index, ast.Slice) and index.lower is None and index.step is None:
        return index.upper
    return None


def _indexes(site: Site, function: Function, buffer: str) -> bool | None:
    """A buffer of integers or truth values: stale rows of it are addresses, lengths or masks. None: unknown."""
    if not buffer.startswith("self.") or function.cls is None:
        rows = [v for _, v in function.assigned.get(buffer, ())]
    else:
        rows = [v for _, _, v in function.cls.attributes.get(buffer[5:], ())]
    for value in rows:
        if isinstance(value, ast.Call):
            kind = next((k.value for k in value.keywords if k.arg == "dtype"), None)
            if kind is not None and site.code.dotted(function.module, kind) in _INDEX_TYPES:
                return True
            if kind is None or site.code.dotted(function.module, kind).startswith("torch."):
                return False
    return None


_INDEX_TYPES = ("torch.int32", "torch.int64", "torch.long", "torch.int", "torch.bool", "torch.int16", "torch.uint8")


def _arithmetic(site: Site, function: Function, filled: set[str], replay: int, log: Log) -> None:
    """`buf += k` on all rows of a buffer of which only the live ones are filled anew."""
    for node in function.own:
        buffer = None
        if isinstance(node, ast.AugAssign):
            buffer = path_of(node.target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("add_", "sub_", "mul_", "div_"):
                buffer = path_of(node.func.value)
        if buffer is not None and buffer in filled:
            log.state(
                PaddingKept, function, node, Confidence.MEDIUM, buffer=buffer, bound="", how="arithmetic", replay=replay
            )
