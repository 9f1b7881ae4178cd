"""Whether the warm-up before a capture ran what the capture records."""

from __future__ import annotations

import ast
from typing import Any

from cgsafe.findings import Confidence
from cgsafe.site_events import CapturesInLoop, NoWarmup, OutputOmitted, WarmupDiffers, WarmupFills
from cgsafe.sites.captures import Capture, Site, captured_calls
from cgsafe.sites.code import Code, Function, Klass, names_in, path_of, source, targets
from cgsafe.sites.report import Log


def look(site: Site, log: Log) -> None:
    for capture in site.captures:
        calls = captured_calls(site, capture)
        for call in calls:
            before = _calls_before(site, capture, call)
            if before:
                _arguments(site, capture, call, before, log)
                _shared(site, capture, call, before, log)
            _omitted(site, capture, call, log)
        _cold(site, capture, calls, log)
        _collector(site, capture, log)


def _calls_before(site: Site, capture: Capture, call: ast.Call) -> list[ast.Call]:
    """Calls of the same callee above a capture in its function, outside of other captures."""
    name = path_of(call.func)
    others = site.captures_of(capture.function)
    return [
        c
        for c in capture.function.calls()
        if c.lineno < capture.node.lineno and path_of(c.func) == name and not any(o.contains(c) for o in others)
    ]


# -- arguments ---------------------------------------------------------------------------------------------------------


def _arguments(site: Site, capture: Capture, call: ast.Call, before: list[ast.Call], log: Log) -> None:
    code, function = site.code, capture.function
    target = code.callee(function, call)
    given = bound(call, target)
    if given is None:
        return
    found: tuple[ast.Call, str, str, str] | None = None
    for other in before:
        warmed = bound(other, target)
        if warmed is None:
            return
        difference = _difference(code, function, target, given, warmed)
        if difference is None:
            return  # this one warms up the very call
        found = (other, *difference)
    if found is not None:
        other, parameter, captured, warm = found
        if target is None or not starts_kernels(code, target, {parameter}):
            return
        log.state(
            WarmupDiffers,
            function,
            call,
            Confidence.MEDIUM,
            callee=source(call.func),
            parameter=parameter,
            captured=captured,
            warmed=warm,
            line=other.lineno,
        )


def starts_kernels(code: Code, function: Function, names: set[str], depth: int = 0) -> bool:
    """Which kernels a function starts, of those that are set up at their first use, depends on one of these names."""
    if depth > 4:
        return False
    known = set(names)
    for _ in range(2):
        for path, rows in function.assigned.items():
            if any(v is not None and names_in(v) & known for _, v in rows):
                known.add(path)
    decided = 1 << 30  # from this line on everything depends on a test that has returned already
    for node in function.own:
        if (
            isinstance(node, ast.If)
            and names_in(node.test) & known
            and isinstance(node.body[-1], (ast.Return, ast.Raise))
        ):
            decided = min(decided, node.body[-1].end_lineno or decided)
    for call in function.calls():
        tested = call.lineno > decided or any(
            isinstance(p, (ast.If, ast.IfExp)) and names_in(p.test) & known for p in function.parents(call)
        )
        arguments = [*call.args, *(k.value for k in call.keywords)]
        if not tested and not any(names_in(a) & known for a in arguments):
            continue
        if isinstance(call.func, ast.Subscript) and _is_kernel(code, function, call.func.value):
            return True
        target = code.callee(function, call)
        if target is None or target is function:
            continue
        if tested:
            passed = set(target.parameters)
            if _starts_any(code, target, depth + 1):
                return True
        else:
            given = bound(call, target) or {}
            passed = {n for n, a in given.items() if names_in(a) & known}
        if passed and starts_kernels(code, target, passed, depth + 1):
            return True
    return False


def _starts_any(code: Code, function: Function, depth: int) -> bool:
    if depth > 4:
        return False
    for call in function.calls():
        if isinstance(call.func, ast.Subscript) and _is_kernel(code, function, call.func.value):
            return True
        target = code.callee(function, call)
        if target is not None and target is not function and _starts_any(code, target, depth + 1):
            return True
    return False


def _is_kernel(code: Code, function: Function, node: ast.AST) -> bool:
    """`kernel[grid](...)` of a function that Triton compiles at its first call."""
    found = code.resolve(function.module, node)
    if not isinstance(found, Function):
        return False
    return any(
        code.dotted(found.module, d.func if isinstance(d, ast.Call) else d).startswith("triton.")
        for d in found.node.decorator_list
    )


def bound(call: ast.Call, target: Function | None) -> dict[str, ast.expr] | None:
    """Parameter, or position, -> argument; None where `*args` or `**kwargs` hide some."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    names: list[str] = []
    if target is not None:
        args = target.node.args
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        if names[:1] in (["self"], ["cls"]):
            names = names[1:]
    found = {names[n] if n < len(names) else str(n): a for n, a in enumerate(call.args)}
    found.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    return found


def _difference(
    code: Code,
    function: Function,
    target: Function | None,
    given: dict[str, ast.expr],
    warmed: dict[str, ast.expr],
) -> tuple[str, str, str] | None:
    """(parameter, captured, warmed) of the first argument of another kind."""
    defaults = target.defaults() if target is not None else {}
    for name in (*given, *(n for n in warmed if n not in given)):
        one, two = given.get(name, defaults.get(name)), warmed.get(name, defaults.get(name))
        if _kind(code, function, one) != _kind(code, function, two):
            if None in (one, two) and target is not None and name not in defaults:
                continue
            return (
                name,
                source(given[name]) if name in given else "",
                source(warmed[name]) if name in warmed else "",
            )
    return None


def _kind(code: Code, function: Function, node: ast.expr | None) -> Any:
    """What decides about the path that a callee takes: a flag's value, or that there is no value at all."""
    if node is None:
        return "nothing"
    if isinstance(node, ast.Constant):
        if node.value is None:
            return "nothing"
        if isinstance(node.value, (bool, str)):
            return node.value
    return "something"


# -- objects that both share ---------------------------------------------------------------------------------------------


def _shared(site: Site, capture: Capture, call: ast.Call, before: list[ast.Call], log: Log) -> None:
    """An argument whose class computes a part of itself at its first use, which the warm-up was."""
    code, function = site.code, capture.function
    for argument in (*call.args, *(k.value for k in call.keywords)):
        name = path_of(argument)
        if name is None:
            continue
        warm = [c for c in before if name in {path_of(a) for a in (*c.args, *(k.value for k in c.keywords))}]
        if not warm:
            continue
        last = warm[-1]
        owner = code.class_of(function, argument, capture.node.lineno)
        if owner is None or _is_module(code, owner):
            continue
        fresh = [s for s, _ in function.assigned.get(name, ()) if last.lineno < s.lineno <= call.lineno]
        if fresh or _touched(function, name, last.lineno, call.lineno, call):
            continue
        filled = filled_once(code, owner)
        if filled is None:
            continue
        attribute, line = filled
        log.state(
            WarmupFills,
            function,
            call,
            Confidence.MEDIUM,
            name=name,
            cls=owner.name,
            attribute=attribute,
            line=line,
            warmed=last.lineno,
        )
        return


def _touched(function: Function, name: str, first: int, last: int, call: ast.Call) -> bool:
    """Something between the two calls may reset the object: a method of it, or a function that is given it."""
    for other in function.calls():
        if first < other.lineno < last and other is not call:
            path = path_of(other.func) or ""
            if path.startswith(name + ".") or any(path_of(a) == name for a in other.args):
                return True
    return any(
        first < s.lineno < last and p.startswith(name + ".") for p, rows in function.assigned.items() for s, _ in rows
    )


def _is_module(code: Code, owner: Klass) -> bool:
    return any(code.dotted(owner.module, b).endswith(("Module", "Layer", "Model")) for b in owner.node.bases)


def filled_once(code: Code, owner: Klass) -> tuple[str, int] | None:
    """(attribute, line) of a part that a class computes at its first use, from what it holds."""
    for name, method in sorted(owner.methods.items(), key=lambda kv: kv[1].node.lineno):
        decorators = {code.dotted(owner.module, d).rpartition(".")[2] for d in method.node.decorator_list}
        if "cached_property" in decorators:
            returned = [n.value for n in method.own if isinstance(n, ast.Return)]
            if any(_is_device_work(code, method, v) for v in returned):
                return name, method.node.lineno
        if name == "__init__":
            continue
        for node in method.own:
            if isinstance(node, ast.If):
                attribute = _asks_for(node.test)
                if attribute is None:
                    continue
                for statement in node.body:
                    for target, value in targets(statement):
                        if path_of(target) == f"self.{attribute}" and _is_device_work(code, method, value):
                            return attribute, statement.lineno
    return None


def _asks_for(test: ast.expr) -> str | None:
    """The attribute of self that a test finds unset: `self.x is None`, `not hasattr(self, "x")`, `not self.x`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is):
        path = path_of(test.left)
        right = test.comparators[0]
        if path and path.startswith("self.") and isinstance(right, ast.Constant) and right.value is None:
            return path[5:]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, ast.Call):
        call = test.operand
        if path_of(call.func) == "hasattr" and len(call.args) == 2 and path_of(call.args[0]) == "self":
            name = call.args[1]
            return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return None


def _is_device_work(code: Code, method: Function, value: Any) -> bool:
    """A tensor that is computed from what the object holds or is given, not a constant one."""
    if value is None or not code.is_tensor(method, value, value.lineno):
        return False
    return any(
        isinstance(n, (ast.Attribute, ast.Name)) and code.is_tensor(method, n, value.lineno) for n in ast.walk(value)
    )


# -- an optional output ----------------------------------------------------------------------------------------------


def _omitted(site: Site, capture: Capture, call: ast.Call, log: Log) -> None:
    """The eager path beside the replay passes an output that the capture lacks: it is not filled on replay."""
    code, function = site.code, capture.function
    owner = function.cls
    if owner is None:
        return
    target = code.callee(function, call)
    given = bound(call, target)
    if target is None or given is None:
        return
    defaults = target.defaults()
    for method in owner.methods.values():
        if not site.replays_of(method):
            continue
        for other in method.calls():
            if path_of(other.func) != path_of(call.func) or any(c.contains(other) for c in site.captures_of(method)):
                continue
            passed = bound(other, target)
            for name, value in (passed or {}).items():
                default = defaults.get(name)
                absent = isinstance(default, ast.Constant) and default.value is None and name not in given
                nothing = isinstance(value, ast.Constant) and value.value is None
                if absent and not nothing and writes_into(target, name):
                    log.state(
                        OutputOmitted,
                        function,
                        call,
                        Confidence.MEDIUM,
                        callee=source(call.func),
                        parameter=name,
                        value=source(value),
                        line=other.lineno,
                    )
                    return


def writes_into(target: Function, name: str) -> bool:
    """True where a function fills the tensor that it is given as `name`."""
    for node in target.own:
        if isinstance(node, ast.Call):
            if (
                isinstance(node.func, ast.Attribute)
                and node.func.attr.endswith("_")
                and not node.func.attr.endswith("__")
            ):
                base = node.func.value
                while isinstance(base, ast.Subscript):
                    base = base.value
                if path_of(base) == name:
                    return True
            if any(k.arg == "out" and path_of(k.value) == name for k in node.keywords):
                return True
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            for item in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(item, ast.Subscript) and path_of(item.value) == name:
                    return True
    return False


# -- none at all -------------------------------------------------------------------------------------------------------


def _cold(site: Site, capture: Capture, calls: list[ast.Call], log: Log) -> None:
    if not calls:
        return
    names = {path_of(c.func) for c in calls}
    last_parts = {(n or "").rpartition(".")[2] for n in names}
    for function in site.module.functions:
        for call in function.calls():
            inside = any(c.contains(call) for c in site.captures_of(function))
            if not inside and (path_of(call.func) or "").rpartition(".")[2] in last_parts:
                return
            if "warm" in (path_of(call.func) or "").lower():
                return
    log.state(NoWarmup, capture.function, capture.call, Confidence.LOW, callee=source(calls[0].func))


def _collector(site: Site, capture: Capture, log: Log) -> None:
    if capture.function.loop_of(capture.node) is None:
        return
    if any(local == "gc" for local in site.module.imports):
        return
    log.state(CapturesInLoop, capture.function, capture.call, Confidence.LOW)
