"""torch.compile and custom operators: code that compiles on its own, and code that a compile cannot see into."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cgsafe.events import Place, varied
from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    NONE,
    UNKNOWN,
    Bound,
    Class,
    Compiled,
    Const,
    Ext,
    ExtInstance,
    Func,
    Instance,
    Partial,
    Union,
    Value,
    join_all,
    parts_of,
)
from cgsafe.walk.arguments import Arguments

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

# Modes in which torch.compile itself records CUDA graphs.
CAPTURING_MODES = frozenset(("reduce-overhead", "max-autotune"))


class CompileSite:
    """One place where torch.compile is applied. Compared by identity; one object per place."""

    __slots__ = ("as_decorator", "captures", "label", "mode", "options", "place", "unless")

    def __init__(
        self,
        place: Place,
        options: tuple[tuple[str, str], ...],
        mode: str,
        as_decorator: bool,
        unless: tuple[str, ...] = (),
    ):
        self.unless = unless  # settings that decide: conditions under which nothing is compiled here
        self.place = place
        self.options = options
        self.mode = mode
        self.captures = mode in CAPTURING_MODES
        self.as_decorator = as_decorator
        self.label = f"{place.path}:{place.line}:{place.column}"


def compile_call(frame: Frame, args: Arguments, node: Any) -> Value:
    """`torch.compile(function, ...)`, or `torch.compile(...)` as a decorator."""
    target = args.get(0, "model")
    if target is None or target is NONE:
        rest = tuple(sorted(args.keywords.items(), key=lambda kv: kv[0]))
        return Partial(Ext("torch.compile"), (), rest)
    walker = frame.walker
    results: list[Value] = []
    disabled = args.keywords.get("disable")
    if isinstance(disabled, Const) and disabled.value is True:
        return target
    for part in parts_of(target):
        if isinstance(part, Compiled) or not isinstance(part, (Func, Bound, Partial, Instance, Class, ExtInstance)):
            results.append(part)
            continue
        site = _site(frame, part, args, node)
        compiled = Compiled(part, site)
        if site.captures:
            walker.capturing_compiles.setdefault(site, compiled)
            TRAIL.deps.add(("start", "compile", site))
        results.append(compiled)
    return join_all(results)


def _site(frame: Frame, target: Value, args: Arguments, node: Any) -> CompileSite:
    from cgsafe.walk.frame import source_of

    walker = frame.walker
    is_decorator = not isinstance(node, ast.Call) or getattr(walker, "applying", None) is node
    place = frame.place(node)
    key = (place.path, place.line, place.column)
    found = walker.compile_sites.get(key)
    if found is None:
        options: tuple[tuple[str, str], ...] = ()
        if isinstance(node, ast.Call):
            options = tuple((k.arg or "**", source_of(k.value)) for k in node.keywords)
            spelled = {k.arg for k in node.keywords}
            given = ((k, v) for k, v in sorted(args.keywords.items()) if k not in spelled)
            options += tuple((k, repr(v.value)) for k, v in given if isinstance(v, Const))  # those of `**options`
        mode = args.keywords.get("mode")
        text = mode.value if isinstance(mode, Const) and isinstance(mode.value, str) else ""
        found = walker.compile_sites[key] = CompileSite(
            place, options, text, is_decorator, () if is_decorator else _ways_out(frame, node)
        )
    return found


def _ways_out(frame: Frame, node: ast.expr) -> tuple[str, ...]:
    """The open conditions on which a function returns before it comes to a call."""
    found = []
    for statement in frame.shape.body if frame.shape is not None else ():
        if statement.lineno >= node.lineno:
            break
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return) and not statement.orelse:
            found.append(ast.unparse(statement.test))
    return tuple(found)


def function_name(value: Value) -> str:
    """The qualified name of what a compile wraps."""
    if isinstance(value, Func):
        return str(value.definition.qualname)
    if isinstance(value, Bound):
        return function_name(value.func)
    if isinstance(value, Partial):
        return function_name(value.func)
    if isinstance(value, (Instance, Class)):
        return str(value.definition.qualname)
    return "the function"


# -- custom operators ------------------------------------------------------------------------------------------------


def call_custom_op(frame: Frame, namespace: str, name: str, args: Arguments, node: Any) -> Value:
    """`torch.ops.ns.name(...)`: the function registered for it runs, opaque to an enclosing torch.compile."""
    function = frame.walker.custom_ops().get(name)
    if isinstance(function, Partial) and isinstance(function.func, Ext) and function.func.name == "cgsafe.operator":
        function = function.args[1]
    if function is None:
        return UNKNOWN
    here = frame.region
    before = frame.region
    operator = f"{namespace}::{name}"
    doubt = here.doubt
    if here.captured and operator in frame.tables.splitting_ops:
        doubt = "graphs are split at this operator, which runs eagerly between them"
    frame.region = varied(here, traced=False, behind_op=operator, doubt=doubt)
    try:
        return frame.call_value(function, args, node)
    finally:
        frame.region = before


def find_custom_ops(walker: Any) -> dict[str, Value]:
    """Operator name -> function, from registrations at module level and in decorators."""
    ops: dict[str, Value] = {}
    TRAIL.deps.add(("w", "ops"))
    for path in sorted(walker.project.files):
        file = walker.project.files[path]
        lines = file.raw["triggers"].get("op", ())
        others = walker.by_package.of(file.module).unusual_registrars
        if others:
            text = walker.text(file).lines
            lines = (*lines, *(n for n, line in enumerate(text, 1) if any(f"{name}(" in line for name in others)))
        if not lines:
            continue
        for qualified, (_first, _line, _last, cls, decorators) in file.raw["functions"].items():
            if cls or not decorators:
                continue
            if any(d.rpartition(".")[2] in ("custom_op", "triton_op", "impl") for d in decorators):
                definition = walker.definitions.function(file, qualified)
                ops.setdefault(_decorated_name(walker, definition), Func(definition))
        _registrations(walker, file, lines, ops)
    return ops


def _decorated_name(walker: Any, definition: Any) -> str:
    try:
        definition.shape(walker.raw_text(definition.file))
    except (SyntaxError, ValueError, RecursionError):
        return str(definition.name)
    for node in definition.node.decorator_list:
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            text = node.args[0].value
            if isinstance(text, str) and "::" in text:
                return text.partition("::")[2]
        if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            if isinstance(node.args[1].value, str):  # @impl(library, "name", "CUDA")
                return node.args[1].value
    return str(definition.name)


def _registrations(walker: Any, file: Any, at: Iterable[int], ops: dict[str, Value]) -> None:
    """`direct_register_custom_op(op_name=..., op_func=...)` and its like, wherever in the file they stand."""
    from cgsafe.events import HOST
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Node

    lines = walker.raw_text(file).lines
    for line in at:
        text = lines[line - 1]
        name = text.strip().partition("(")[0].rpartition(".")[2].strip()
        if name not in walker.by_package.of(file.module).op_registrars and name != "impl":
            continue
        call = _call_at(lines, line)
        if call is None:
            continue
        given = {k.arg: k.value for k in call.keywords}
        op_name = given.get("op_name") or (call.args[0] if call.args else None)
        function = given.get("op_func") or (call.args[1] if len(call.args) > 1 else None)
        if isinstance(op_name, ast.Constant) and isinstance(op_name.value, str) and isinstance(function, ast.expr):
            value = Frame(walker, Node(None, HOST, (), None), None, file, 0).eval(function)
            if isinstance(value, (Func, Union, Partial)):
                ops.setdefault(op_name.value.rpartition("::")[2], value)


def _call_at(lines: list[str], line: int) -> ast.Call | None:
    """The call that starts on a line, read line by line until it is complete."""
    source = ""
    for text in lines[line - 1 : line + 24]:
        source += text.strip() + "\n"
        try:
            body = ast.parse(source).body
        except SyntaxError:
            continue
        value = getattr(body[0], "value", None) if body else None
        return value if isinstance(value, ast.Call) else None
    return None


def tunes_itself(walker: Any, definition: Any) -> bool:
    """True for a kernel that is timed in several configurations at its first call with a new key."""
    if not any(
        d in walker.tables.autotuners or d.rpartition(".")[2] in walker.tables.autotuners for d in definition.decorators
    ):
        return False
    try:
        walker.shape(definition)
    except (SyntaxError, ValueError, RecursionError):
        return True
    for node in definition.node.decorator_list:
        for keyword in getattr(node, "keywords", ()):
            if keyword.arg == "configs" and isinstance(keyword.value, ast.List) and len(keyword.value.elts) == 1:
                return False  # one configuration: nothing to choose from, and nothing is timed
    return True
