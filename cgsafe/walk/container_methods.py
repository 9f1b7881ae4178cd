"""Methods of sequences, dicts, strings and numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.values import (
    BOOL,
    INT,
    MEDIUM,
    NEVER,
    NONE,
    OBJECT,
    STR,
    UNKNOWN,
    Const,
    Dict,
    Seq,
    Tensor,
    Value,
    join,
    join_all,
    kind_of,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.entry import or_captured

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


def receiver_node(node: Any) -> ast.expr | None:
    return node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None


def sequence_method(frame: Frame, receiver: Seq, name: str, args: Arguments, node: Any) -> Value:
    target = receiver_node(node)
    first = args.positional[0] if args.positional else UNKNOWN
    changed: Value | None = None
    result: Value = NONE
    if name in ("append", "add", "appendleft"):
        if frame.region.captured:
            frame.note_append(node, first)
        if receiver.items is not None and frame.branches == 0:
            changed = Seq(receiver.kind, (*receiver.items, first))
        else:
            changed = Seq(receiver.kind, None, first if receiver.element is None else join(receiver.element, first))
    elif name in ("extend", "update", "extendleft"):
        if isinstance(first, Seq) and first.items is not None and receiver.items is not None and frame.branches == 0:
            changed = Seq(receiver.kind, (*receiver.items, *first.items))
        else:
            element = frame.element_of(first, node)
            changed = Seq(receiver.kind, None, element if receiver.element is None else join(receiver.element, element))
    elif name == "insert":
        second = args.positional[1] if len(args.positional) > 1 else UNKNOWN
        changed = Seq(receiver.kind, None, second if receiver.element is None else join(receiver.element, second))
    elif name in ("pop", "popleft"):
        result = receiver.element if receiver.element is not None else UNKNOWN
        if receiver.items and not args.positional and frame.branches == 0 and name == "pop":
            result = receiver.items[-1]
            changed = Seq(receiver.kind, receiver.items[:-1])
        else:
            changed = Seq(receiver.kind, None, receiver.element)
    elif name in ("copy", "union", "intersection", "difference", "__iter__"):
        result = receiver
    elif name in ("index", "count", "remove"):
        pairs = [p for p in (*parts_of(first), *parts_of(receiver.element or UNKNOWN)) if isinstance(p, Tensor)]
        if pairs:
            frame.test(pairs[0].with_(dtype="b", rank=0), node, "in", node)
        result = INT if name != "remove" else NONE
    elif name == "sort":
        for part in parts_of(receiver.element or UNKNOWN):
            if isinstance(part, Tensor) and "key" not in args.keywords:
                frame.test(part.with_(dtype="b"), node, "sorted", node)
        changed = Seq(receiver.kind, None, receiver.element)
    elif name == "reverse":
        changed = Seq(receiver.kind, receiver.items[::-1]) if receiver.items is not None else None
    elif name == "clear":
        changed = Seq(receiver.kind, ())
    elif name == "numel":
        result = INT  # of a shape
    elif name == "_replace":
        result = receiver
    else:
        result = UNKNOWN
    if changed is not None and target is not None:
        frame.rebind(target, changed)
    return result


def dict_method(frame: Frame, receiver: Dict, name: str, args: Arguments, node: Any) -> Value:
    target = receiver_node(node)
    first = args.positional[0] if args.positional else UNKNOWN
    default = args.positional[1] if len(args.positional) > 1 else args.keywords.get("default", NONE)
    known = receiver.as_dict()
    if name in ("get", "pop", "setdefault"):
        if isinstance(first, Const) and first.value in known:
            result = known[first.value]
        elif receiver.other is not None:
            # What is not there comes back as the default, or is an error; of unknown contents nothing is known at all.
            missing = default is not NONE or (name != "pop" and receiver.other is not UNKNOWN)
            result = join(receiver.other, default) if missing else receiver.other
        elif isinstance(first, Const):
            result = default
        else:
            result = join_all([*known.values(), default])
        if result is UNKNOWN and isinstance(first, Const) and first.value in frame.tables.declared:
            result = or_captured(Tensor("cpu", None, "", MEDIUM))  # the code itself says where what is called so is
        if (
            name == "pop"
            and isinstance(first, Const)
            and first.value in known
            and target is not None
            and frame.branches == 0
        ):
            del known[first.value]
            frame.rebind(target, Dict(known, receiver.other))
        elif name == "setdefault" and target is not None and isinstance(first, Const) and first.value not in known:
            known[first.value] = default
            frame.rebind(target, Dict(known, receiver.other))
        return result
    values = join_all([*known.values(), *([receiver.other] if receiver.other is not None else [])])
    if name == "values":
        return Seq("list", tuple(known.values())) if receiver.other is None else Seq("list", None, values)
    if name == "keys":
        return Seq("list", tuple(Const(k) for k in known)) if receiver.other is None else Seq("list", None, STR)
    if name == "items":
        if receiver.other is None:
            return Seq("list", tuple(Seq("tuple", (Const(k), v)) for k, v in known.items()))
        return Seq("list", None, Seq("tuple", (UNKNOWN, values)))
    if name == "copy":
        return receiver
    if name == "update":
        other = receiver.other
        if isinstance(first, Dict):
            known.update(first.as_dict())
            other = first.other if other is None else other if first.other is None else join(other, first.other)
        elif args.positional or args.rest is not None:
            other = UNKNOWN
        known.update(args.keywords)
        if target is not None:
            frame.rebind(target, Dict(known, other))
        return NONE
    if name == "clear" and target is not None:
        frame.rebind(target, Dict({}))
        return NONE
    return UNKNOWN


_STRING_RESULTS: dict[str, Value] = {
    "startswith": BOOL,
    "endswith": BOOL,
    "isdigit": BOOL,
    "split": Seq("list", None, STR),
    "rsplit": Seq("list", None, STR),
    "partition": Seq("tuple", (STR, STR, STR)),
    "rpartition": Seq("tuple", (STR, STR, STR)),
    "splitlines": Seq("list", None, STR),
    "find": INT,
    "index": INT,
    "count": INT,
    "numel": INT,
    "bit_length": INT,
    "is_integer": BOOL,
    "encode": OBJECT,
}


_OF_SCALARS = frozenset(("item", "tolist", "numpy", "cpu"))  # of numpy's numbers too


def plain_method(frame: Frame, receiver: Value, name: str, args: Arguments, node: Any) -> Value:
    if isinstance(receiver, Const) and isinstance(receiver.value, str):
        if name == "format":
            for value in [*args.positional, *args.keywords.values()]:
                frame.read_host(value, node, "format")
        constants = [a.value for a in args.positional if isinstance(a, Const)]
        if len(constants) == len(args.positional) and name in (
            "startswith",
            "endswith",
            "lower",
            "upper",
            "strip",
            "replace",
        ):
            try:
                return Const(getattr(receiver.value, name)(*constants))
            except (TypeError, ValueError):
                return UNKNOWN
    if kind_of(receiver) == "shape":
        return INT
    if kind_of(receiver) in ("bool", "int", "float") and name in frame.tables.methods and not hasattr(1.0, name):
        # Only a tensor has this method: where a number is one possibility, it is none here.
        return NEVER if name not in _OF_SCALARS and name not in _STRING_RESULTS else _STRING_RESULTS.get(name, receiver)
    if kind_of(receiver) in ("str", "int", "float"):
        return _STRING_RESULTS.get(name, STR if kind_of(receiver) == "str" else INT)
    return OBJECT if kind_of(receiver) == "object" else UNKNOWN
