"""Python's builtin functions on abstract values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    BOOL,
    FALSE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    OBJECT,
    SHAPE,
    STR,
    TRUE,
    UNKNOWN,
    Answer,
    Class,
    Const,
    Dict,
    Ext,
    ExtInstance,
    Host,
    Instance,
    Seq,
    Tensor,
    Value,
    join,
    join_all,
    kind_of,
    parts_of,
    special_cases,
    truth,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.operators import elementwise
from cgsafe.walk.paths import dotted_path

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


def call_builtin(frame: Frame, name: str, args: Arguments, node: Any) -> Value:
    """The result of `name(...)` for a builtin."""
    handler = _BUILTINS.get(name)
    if handler is not None:
        return handler(frame, args, node)
    return _RESULTS.get(name, UNKNOWN)


def _first(args: Arguments) -> Value:
    return args.positional[0] if args.positional else UNKNOWN


def _number(kind: str, result: Value) -> Callable[[Frame, Arguments, Any], Value]:
    def convert(frame: Frame, args: Arguments, node: Any) -> Value:
        value = _first(args) if args.positional else Const(0)
        frame.read_host(value, node, kind)
        if isinstance(value, Const) and len(args.positional) == 1:
            try:
                return Const(int(value.value) if kind == "int" else float(value.value))
            except (TypeError, ValueError, OverflowError):
                return result
        return result

    return convert


def _bool(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    frame.test(value, node, "bool", node)
    known = truth(value)
    return Answer(*special_cases(value)) if known is None else Const(known)


def _len(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    if isinstance(value, Seq) and value.items is not None:
        return Const(len(value.items))
    return INT


def _range(frame: Frame, args: Arguments, node: Any) -> Value:
    for value, argument in zip(args.positional, getattr(node, "args", ()), strict=False):
        frame.read_host(value, argument, "index")
    bounds = [v.value if isinstance(v, Const) and isinstance(v.value, int) else None for v in args.positional]
    if bounds and None not in bounds and args.star is None:
        numbers = range(*bounds)  # type: ignore[arg-type]
        if len(numbers) <= 4:
            return Seq("list", tuple(Const(n) for n in numbers))
    return Seq("list", None, INT)


def _any_all(form: str) -> Callable[[Frame, Arguments, Any], Value]:
    def check(frame: Frame, args: Arguments, node: Any) -> Value:
        value = _first(args)
        for part in parts_of(value):
            if isinstance(part, (Tensor, Seq)):
                frame.test(frame.element_of(part, node), node, form, node)
        if isinstance(value, Seq) and value.items is not None:
            outcomes = [truth(i) for i in value.items]
            if form == "any" and True in outcomes:
                return TRUE
            if form == "all" and False in outcomes:
                return FALSE
            if None not in outcomes:
                return Const(any(outcomes) if form == "any" else all(outcomes))
        return BOOL

    return check


def _min_max(form: str) -> Callable[[Frame, Arguments, Any], Value]:
    def pick(frame: Frame, args: Arguments, node: Any) -> Value:
        if len(args.positional) == 1 and args.star is None:
            elements = [frame.element_of(_first(args), node)]
            single = isinstance(_first(args), Seq) and len(_first(args).items or (0, 0)) == 1  # type: ignore[attr-defined]
        else:
            elements = list(args.positional)
            single = False
        if "key" in args.keywords:
            compared = frame.call_value(args.keywords["key"], Arguments([join_all(elements)]), node)
        else:
            compared = join_all(elements)
        tensors = [p for p in parts_of(compared) if isinstance(p, Tensor)]
        if tensors and not single:
            frame.test(elementwise(list(tensors), "b"), node, form, node)
        if all(isinstance(e, Const) and isinstance(e.value, (int, float)) for e in elements) and len(elements) > 1:
            try:
                return Const((min if form == "min" else max)(e.value for e in elements))  # type: ignore[attr-defined]
            except TypeError:
                return UNKNOWN
        return join_all(elements) if elements else UNKNOWN

    return pick


def _sorted(frame: Frame, args: Arguments, node: Any) -> Value:
    given = _first(args)
    if isinstance(given, Seq) and given.items is not None and len(given.items) < 2:
        return Seq("list", given.items)  # nothing to compare
    element = frame.element_of(_first(args), node)
    compared = element
    if "key" in args.keywords and args.keywords["key"] is not NONE:
        compared = frame.call_value(args.keywords["key"], Arguments([element]), node)
    for part in parts_of(compared):
        if isinstance(part, Tensor):
            frame.test(part.with_(dtype="b"), node, "sorted", node)
    return Seq("list", None, element)


def _sum(frame: Frame, args: Arguments, node: Any) -> Value:
    element = frame.element_of(_first(args), node)
    tensors = [p for p in parts_of(element) if isinstance(p, Tensor)]
    if tensors:
        return elementwise([*tensors, INT])
    return NUMBER if kind_of(element) in ("int", "float", "number", "bool") else element


def _sequence(kind: str) -> Callable[[Frame, Arguments, Any], Value]:
    def make(frame: Frame, args: Arguments, node: Any) -> Value:
        if not args.positional:
            return Seq(kind, ())
        value = _first(args)
        if isinstance(value, Seq):
            return Seq(kind, value.items, value.element)
        if isinstance(value, Dict) and value.other is None:
            return Seq(kind, tuple(Const(k) for k, _ in value.items))
        if value is SHAPE:
            return SHAPE if kind == "tuple" else Seq(kind, None, INT)
        return Seq(kind, None, frame.element_of(value, node))

    return make


def _dict(frame: Frame, args: Arguments, node: Any) -> Value:
    items: dict[Any, Value] = {}
    other = args.rest
    if args.positional:
        value = _first(args)
        if isinstance(value, Dict):
            items.update(value.as_dict())
            other = value.other if other is None else join(other, value.other or UNKNOWN)
        else:
            other = UNKNOWN
    items.update(args.keywords)
    return Dict(items, other)


def _zip(frame: Frame, args: Arguments, node: Any) -> Value:
    if args.star is not None:
        return Seq("list", None, Seq("tuple", None, frame.element_of(args.star, node)))
    known = [v.items if isinstance(v, Seq) else None for v in args.positional]
    if known and all(k is not None for k in known):
        rows = list(zip(*known, strict=False))  # type: ignore[arg-type]
        if len(rows) <= 8:
            return Seq("list", tuple(Seq("tuple", row) for row in rows))
    return Seq("list", None, Seq("tuple", tuple(frame.element_of(v, node) for v in args.positional)))


def _enumerate(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    if value is NONE:
        return value  # it raises: nothing is run through
    if isinstance(value, Seq) and value.items is not None and len(value.items) <= 8:
        return Seq("list", tuple(Seq("tuple", (INT, item)) for item in value.items))
    return Seq("list", None, Seq("tuple", (INT, frame.element_of(value, node))))


def _map(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) < 2:
        return Seq("list", None, UNKNOWN)
    elements = [frame.element_of(v, node) for v in args.positional[1:]]
    return Seq("list", None, frame.call_value(args.positional[0], Arguments(elements), node))


def _filter(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) < 2:
        return Seq("list", None, UNKNOWN)
    element = frame.element_of(args.positional[1], node)
    tested = element
    if args.positional[0] is not NONE:
        tested = frame.call_value(args.positional[0], Arguments([element]), node)
    frame.test(tested, node, "filter", node)
    return Seq("list", None, element)


def _reversed(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    if isinstance(value, Seq) and value.items is not None:
        return Seq("list", value.items[::-1])
    return Seq("list", None, frame.element_of(value, node))


def _next(frame: Frame, args: Arguments, node: Any) -> Value:
    element = frame.element_of(_first(args), node)
    return join(element, args.positional[1]) if len(args.positional) > 1 else element


def _iter(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    return (
        Seq("list", value.items, value.element)
        if isinstance(value, Seq)
        else Seq("list", None, frame.element_of(value, node))
    )


def _isinstance(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) < 2:
        return BOOL
    outcome = frame.instance_narrowed(args.positional[0], args.positional[1])[2]
    return BOOL if outcome is None else Const(outcome)


def _issubclass(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) == 2 and all(isinstance(a, Class) for a in args.positional):
        one, two = args.positional
        return Const(two.definition in frame.walker.classes.mro(one.definition))  # type: ignore[attr-defined]
    return BOOL


def _getattr(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) < 2:
        return UNKNOWN
    base, name = args.positional[0], args.positional[1]
    default = args.positional[2] if len(args.positional) > 2 else None
    if not isinstance(name, Const) or not isinstance(name.value, str):
        return UNKNOWN
    path_value = None
    if isinstance(node, ast.Call) and frame.has_paths:
        path = dotted_path(node.args[0])
        path_value = frame.env.get(f"{path}.{name.value}") if path is not None else None
    value = path_value or frame.attribute(base, name.value, node)
    if default is None:
        return value
    if _has(frame, base, name.value):
        return value
    if value is UNKNOWN and not (default is NONE or isinstance(default, Const)):
        return default
    return join(value, default) if value is not UNKNOWN else (UNKNOWN if default is NONE else join(default, UNKNOWN))


def _has(frame: Frame, base: Value, name: str) -> bool:
    if isinstance(base, Instance):
        TRAIL.deps.add(base.state)
        return name in base.state.attributes or frame.walker.classes.find(base.definition, name) is not None
    if isinstance(base, Class):
        return frame.walker.classes.find(base.definition, name) is not None
    return isinstance(base, Tensor) and (name in frame.tables.methods or name in frame.tables.attributes)


def _hasattr(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) == 2 and isinstance(args.positional[1], Const):
        base, name = args.positional[0], args.positional[1].value
        if isinstance(name, str) and _has(frame, base, name):
            return TRUE
        if isinstance(base, Tensor) and isinstance(name, str):
            return FALSE
    return BOOL


def _setattr(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) == 3 and isinstance(args.positional[1], Const):
        base, name, value = args.positional[0], args.positional[1].value, args.positional[2]
        origin = node.args[2] if isinstance(node, ast.Call) and len(node.args) == 3 else None
        frame.note_attribute(node, base, str(name), value, origin, "setattr")
        for part in parts_of(base):
            if isinstance(part, Instance):
                frame.walker.classes.store(part, name, value, frame.branches == 0)
            elif isinstance(part, Class):
                frame.override(part, name, value)
        if frame.watch is not None:
            frame.watch.append((name, value))
    return NONE


def _type(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    return Class(value.definition) if isinstance(value, Instance) else UNKNOWN


def _abs(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    return join_all(
        [p if isinstance(p, (Tensor, Host)) else UNKNOWN if p is UNKNOWN else NUMBER for p in parts_of(value)]
    )


def _round(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    if any(isinstance(p, Tensor) for p in parts_of(value)):
        return value
    return INT if len(args.positional) == 1 else FLOAT


def _str(frame: Frame, args: Arguments, node: Any) -> Value:
    value = _first(args)
    frame.read_host(value, node, "str")
    if isinstance(value, Const) and isinstance(value.value, (str, int)):
        return Const(str(value.value))
    return STR


def _text(how: str) -> Callable[[Frame, Arguments, Any], Value]:
    def convert(frame: Frame, args: Arguments, node: Any) -> Value:
        frame.read_host(_first(args), node, how)
        return STR

    return convert


def _print(frame: Frame, args: Arguments, node: Any) -> Value:
    for value in args.positional:
        frame.read_host(value, node, "print")
    return NONE


def _pow(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) >= 2:
        return frame.binary(ast.Pow(), args.positional[0], args.positional[1], node)
    return UNKNOWN


def _divmod(frame: Frame, args: Arguments, node: Any) -> Value:
    if len(args.positional) == 2:
        one = frame.binary(ast.FloorDiv(), args.positional[0], args.positional[1], node)
        return Seq("tuple", (one, one))
    return UNKNOWN


def _property(frame: Frame, args: Arguments, node: Any) -> Value:
    return _first(args)


def _vars(frame: Frame, args: Arguments, node: Any) -> Value:
    return Dict({}, UNKNOWN)


def _slice(frame: Frame, args: Arguments, node: Any) -> Value:
    for value, argument in zip(args.positional, getattr(node, "args", ()), strict=False):
        frame.read_host(value, argument, "index")
    return Host("slice")


def _complex(frame: Frame, args: Arguments, node: Any) -> Value:
    for value in args.positional:
        frame.read_host(value, node, "complex")
    return NUMBER


def _import(frame: Frame, args: Arguments, node: Any) -> Value:
    name = _first(args)
    return Ext(name.value) if isinstance(name, Const) and isinstance(name.value, str) else UNKNOWN


def _object(frame: Frame, args: Arguments, node: Any) -> Value:
    return ExtInstance("builtins.object")


_BUILTINS: dict[str, Callable[[Frame, Arguments, Any], Value]] = {
    "int": _number("int", INT),
    "float": _number("float", FLOAT),
    "complex": _complex,
    "bool": _bool,
    "len": _len,
    "range": _range,
    "any": _any_all("any"),
    "all": _any_all("all"),
    "min": _min_max("min"),
    "max": _min_max("max"),
    "sorted": _sorted,
    "sum": _sum,
    "list": _sequence("list"),
    "tuple": _sequence("tuple"),
    "set": _sequence("set"),
    "frozenset": _sequence("set"),
    "dict": _dict,
    "zip": _zip,
    "enumerate": _enumerate,
    "map": _map,
    "filter": _filter,
    "reversed": _reversed,
    "next": _next,
    "iter": _iter,
    "isinstance": _isinstance,
    "issubclass": _issubclass,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "setattr": _setattr,
    "type": _type,
    "abs": _abs,
    "round": _round,
    "str": _str,
    "repr": _text("str"),
    "format": _text("format"),
    "hex": _text("index"),
    "bin": _text("index"),
    "oct": _text("index"),
    "print": _print,
    "pow": _pow,
    "divmod": _divmod,
    "property": _property,
    "staticmethod": _property,
    "classmethod": _property,
    "vars": _vars,
    "locals": _vars,
    "globals": _vars,
    "slice": _slice,
    "__import__": _import,
    "object": _object,
}
_RESULTS: dict[str, Value] = {
    "callable": BOOL,
    "id": INT,
    "hash": INT,
    "ord": INT,
    "chr": STR,
    "input": STR,
    "bytes": OBJECT,
    "bytearray": OBJECT,
    "memoryview": OBJECT,
    "open": OBJECT,
    "dir": Seq("list", None, STR),
    "delattr": NONE,
    "exec": NONE,
}
