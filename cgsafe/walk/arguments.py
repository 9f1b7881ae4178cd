"""Arguments of a call, and how they meet the parameters of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cgsafe.events import Region
from cgsafe.values import (
    BOOL,
    DTYPE,
    FLOAT,
    INT,
    LOW,
    MEDIUM,
    NONE,
    STR,
    UNKNOWN,
    Const,
    Dict,
    Ext,
    ExtMethod,
    Host,
    Seq,
    Tensor,
    Union,
    Value,
    join,
    join_all,
    parts_of,
)

if TYPE_CHECKING:
    from cgsafe.walk.defs import FunctionDef, Shape
    from cgsafe.walk.walker import Walker

MAX_CONST_INT = 64
MAX_CONST_TEXT = 80


class Arguments:
    """The arguments of one call.

    `star` is the element of a positional sequence of unknown length, `rest` the value of keywords of unknown names.
    """

    __slots__ = ("keywords", "positional", "rest", "star")

    def __init__(
        self,
        positional: list[Value] | None = None,
        keywords: dict[str, Value] | None = None,
        star: Value | None = None,
        rest: Value | None = None,
    ):
        self.positional = positional if positional is not None else []
        self.keywords = keywords if keywords is not None else {}
        self.star = star
        self.rest = rest

    def prepend(self, value: Value) -> Arguments:
        return Arguments([value, *self.positional], self.keywords, self.star, self.rest)

    def drop_first(self) -> Arguments:
        return Arguments(self.positional[1:], self.keywords, self.star, self.rest)

    def get(self, position: int, *names: str) -> Value | None:
        """The argument at a position or under one of its names; None where it is not given."""
        if 0 <= position < len(self.positional):
            return self.positional[position]
        for name in names:
            if name in self.keywords:
                return self.keywords[name]
        return None

    def values(self) -> list[Value]:
        found = [*self.positional, *self.keywords.values()]
        if self.star is not None:
            found.append(self.star)
        return found

    @property
    def exact(self) -> bool:
        return self.star is None and self.rest is None


def signature(args: Arguments) -> Any:
    """The kinds of a call's arguments, as far as they decide whether a compiled function is compiled again."""
    return (tuple(args.positional), tuple(sorted(args.keywords)), args.exact)


def plain(value: Value) -> Value:
    """An argument as it becomes part of a summary's key: constants of little interest lose their value."""
    if isinstance(value, Const):
        kind = type(value.value)
        if kind is int and abs(value.value) > MAX_CONST_INT:
            return INT
        if kind is float:
            return FLOAT
        if kind is str and len(value.value) > MAX_CONST_TEXT:
            return STR
    return value


def bind(
    walker: Walker, definition: FunctionDef, shape: Shape, args: Arguments, region: Region, scope: Any = None
) -> tuple[Value, ...]:
    """The values of all parameters in order: named ones, `*args`, keyword-only ones, `**kwargs`."""
    from cgsafe.walk.entry import default_value, entry_value

    positional = args.positional
    params = shape.params
    given: dict[str, Value] = dict(zip(params, positional, strict=False))
    left: dict[str, Value] = {}
    for name, value in args.keywords.items():
        if name in given:
            continue
        if name in params or name in shape.kwonly:
            given[name] = value
        else:
            left[name] = value
    bound: list[Value] = []
    made = not (region.captured or region.traced or region.hot)
    for name in shape.named:
        known = given.get(name)
        if known is not None:
            if known.__class__ is ExtMethod:
                known = _known(known)
        else:
            known = default_value(walker, definition, shape, name, scope)
            if known is None:
                known = args.star if args.star is not None and name in params else UNKNOWN
            elif args.star is not None and name in params:
                known = join(known, args.star)
            elif args.rest is not None:
                known = _maybe(walker, definition, shape, name, known, args.rest, region)
        kind = known.__class__
        if kind is Tensor or kind is Union or known is UNKNOWN:
            known = entry_value(walker, definition, shape, name, known, region)
            kind = known.__class__
        if kind is Const:
            known = _of_kind(walker, definition, shape, name, known, region) if made else plain(known)
        elif made and kind in _GENERAL:
            known = _of_kind(walker, definition, shape, name, known, region)
        bound.append(known)
    values = bound[: len(params)]
    if shape.vararg is not None:
        if args.star is not None:
            values.append(Seq("tuple", None, join_all([*positional[len(params) :], args.star])))
        else:
            values.append(Seq("tuple", tuple(positional[len(params) :])))
    values.extend(bound[len(params) :])
    if shape.kwarg is not None:
        values.append(Dict({k: plain(v) for k, v in left.items()}, args.rest))
    return tuple(values)


def _of_kind(walker: Walker, definition: FunctionDef, shape: Shape, name: str, value: Value, region: Region) -> Value:
    """An argument of host code by its kind: what is read from settings, or worked out from them, is what its annotation says.

    The sizes and rates that a constructor gets decide nothing, and there are as many as there are models.
    """
    from cgsafe.walk.annotations import annotation_value

    constructs = definition.name == "__init__"
    if constructs and value.__class__ is Const and value.value.__class__ is int:  # type: ignore[attr-defined]
        return INT
    node = shape.annotations.get(name)
    if node is None or value is NONE or value is UNKNOWN or value in _SCALARS:
        return plain(value)
    annotated = annotation_value(walker, definition, node, region)
    if isinstance(annotated, Union):
        plainly = [p for p in annotated.parts if p is not NONE]
        if len(plainly) != 1:
            return plain(value)
        annotated = plainly[0]
    return _as_annotated(value, annotated, constructs)


_SCALARS = (INT, FLOAT, BOOL, STR, DTYPE)
_GENERAL = frozenset((Ext, ExtMethod, Host, Seq, Union))  # besides constants, what an annotation may make less special


def _as_annotated(value: Value, annotated: Value, constructs: bool) -> Value:
    if isinstance(annotated, Seq) and annotated.element in _SCALARS and isinstance(value, Seq):
        if value.items is not None:
            return Seq(value.kind, tuple(_as_annotated(item, annotated.element, constructs) for item in value.items))
        if value.element is not None:
            return Seq(value.kind, None, _as_annotated(value.element, annotated.element, constructs))
        return value
    if annotated not in _SCALARS:
        return plain(value)
    parts: list[Value] = []
    for part in parts_of(value):
        if part is NONE:
            parts.append(part)
        elif part.__class__ is Const or (part.__class__ is Ext and annotated is DTYPE):
            parts.append(annotated if constructs and annotated in (INT, FLOAT) else plain(part))
        elif (
            part is UNKNOWN
            or part.__class__ is Host
            or (part.__class__ is ExtMethod and not isinstance(part.receiver, Tensor))
        ):
            parts.append(annotated)
        else:
            return plain(value)
    return join_all(parts)


def _known(value: Value) -> Value:
    """An attribute of something unknown is unknown too, once it is passed on."""
    if not isinstance(value, ExtMethod):
        return value
    guessed = isinstance(value.receiver, Tensor) and value.receiver.confidence == LOW
    return UNKNOWN if guessed or value.receiver is UNKNOWN else value


def _maybe(
    walker: Walker, definition: FunctionDef, shape: Shape, name: str, default: Value, rest: Value, region: Region
) -> Value:
    """A parameter that keywords of unknown names may or may not set."""
    from cgsafe.walk.annotations import annotation_value

    node = shape.annotations.get(name)
    annotated = annotation_value(walker, definition, node, region) if node is not None else UNKNOWN
    if annotated is UNKNOWN or (rest is not UNKNOWN and any(isinstance(p, Tensor) for p in parts_of(annotated))):
        return join(default, rest)
    weak = [p.with_(confidence=min(p.confidence, LOW)) if isinstance(p, Tensor) else p for p in parts_of(annotated)]
    return join_all([default, *weak])


def strengthen(value: Value, annotated: Value) -> Value:
    """A value refined by its annotation: where only little is known of it, the annotation says more."""
    if value is UNKNOWN:
        return annotated
    if isinstance(value, Union) and UNKNOWN in value.parts:
        known = [p for p in value.parts if p is not UNKNOWN]
        if isinstance(annotated, Tensor):
            # Two hints at the same: what was unsure for want of the other is no guess any more.
            known = [p.with_(confidence=max(p.confidence, MEDIUM)) if isinstance(p, Tensor) else p for p in known]
        return join_all([*known, *parts_of(annotated)]) if annotated is not UNKNOWN else value
    if isinstance(value, Tensor) and value.confidence < MEDIUM and isinstance(annotated, Tensor):
        return value.with_(confidence=MEDIUM)
    return value
