"""What a parameter holds when its caller says nothing: annotations, defaults and the conventions of model code."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST, Region
from cgsafe.values import (
    HIGH,
    LOW,
    MEDIUM,
    NONE,
    NUMPY,
    UNKNOWN,
    Const,
    Dict,
    Host,
    Instance,
    Seq,
    Tensor,
    Union,
    Value,
    join,
    join_all,
    parts_of,
    widen,
)
from cgsafe.walk.annotations import annotation_value
from cgsafe.walk.arguments import Arguments, strengthen

if TYPE_CHECKING:
    from cgsafe.walk.defs import FunctionDef, Shape
    from cgsafe.walk.facts import Facts
    from cgsafe.walk.walker import Walker


def default_value(walker: Walker, definition: FunctionDef, shape: Shape, name: str, scope: Any = None) -> Value | None:
    """The value of a parameter's default; None where it has none."""
    node = shape.defaults.get(name)
    if node is None:
        return None
    if isinstance(node, ast.Constant):
        return Const(node.value)
    if scope is not None:
        kept: Value | None = scope.cells.get(default_key(definition, name))
        if kept is not None:
            return kept
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Node

    frame = Frame(walker, Node(None, HOST, (), None), None, definition.file, definition.offset)
    return frame.eval(node)


def default_key(definition: FunctionDef, name: str) -> str:
    """Where the scope of a nested function keeps a default that was evaluated there."""
    return f"{definition.label} default {name}"


def entry_value(
    walker: Walker, definition: FunctionDef, shape: Shape, name: str, value: Value, region: Region
) -> Value:
    """A parameter's value, refined by its annotation and name where the caller leaves it open."""
    kind = value.__class__
    if kind is Tensor:
        if value.confidence == HIGH:  # type: ignore[attr-defined]
            return value
        annotation = shape.annotations.get(name)
        if annotation is not None:
            annotated = annotation_value(walker, definition, annotation, region)
            if annotated is not UNKNOWN and not any(isinstance(p, Tensor) for p in parts_of(annotated)):
                return value.with_(confidence=LOW)  # type: ignore[attr-defined]
        if value.confidence >= MEDIUM:  # type: ignore[attr-defined]
            return value
    elif kind is Union:
        if UNKNOWN not in value.parts:  # type: ignore[attr-defined]
            return _against(walker, definition, shape, name, value, region)
    elif value is not UNKNOWN:
        return value
    annotation = shape.annotations.get(name)
    if annotation is not None:
        annotated = annotation_value(walker, definition, annotation, region)
        if annotated is not UNKNOWN:
            tables = walker.by_package.of(definition.file.module)
            return _by_host_name(tables, name, strengthen(value, annotated))
    if value is UNKNOWN and (region.captured or region.traced):
        by_name = convention(walker.by_package.of(definition.file.module), name)
        if isinstance(by_name, Tensor) and by_name.device == "cuda" and "_" not in name:
            # A short name means much in a module, and little in a helper.
            if definition.cls is None or not walker.classes.is_module(definition.cls):
                return by_name.with_(confidence=LOW)
        return by_name
    return value


def _against(walker: Walker, definition: FunctionDef, shape: Shape, name: str, value: Value, region: Region) -> Value:
    """A value of several kinds, where an annotation that knows of no tensors makes those a guess that are not sure."""
    unsure = [p for p in parts_of(value) if isinstance(p, Tensor) and p.confidence < HIGH]
    annotation = shape.annotations.get(name) if unsure else None
    if annotation is None:
        return value
    annotated = annotation_value(walker, definition, annotation, region)
    if annotated is UNKNOWN or any(isinstance(p, Tensor) for p in parts_of(annotated)):
        return value
    return join_all([p.with_(confidence=LOW) if p in unsure and isinstance(p, Tensor) else p for p in parts_of(value)])


def _by_host_name(tables: Facts, name: str, value: Value) -> Value:
    """A tensor whose name says that it lives on the host."""
    if not tables.names_host(name):
        return value
    placed = join_all([p.with_(device="cpu") if isinstance(p, Tensor) else p for p in parts_of(value)])
    return or_captured(placed) if name in tables.declared else placed


def or_captured(value: Value) -> Value:
    """A field that is declared to stay on the host: code that captures an encoder passes buffers of its own, on the GPU."""
    there = [
        p.with_(device="cuda", confidence=LOW) for p in parts_of(value) if isinstance(p, Tensor) and p.device == "cpu"
    ]
    return join_all([value, *there])


def convention(tables: Facts, name: str) -> Value:
    """What a bare parameter or attribute name means by the conventions of model code."""
    kind = tables.convention(name)
    return UNKNOWN if kind is None else value_of_kind(kind)


def value_of_kind(kind: str) -> Value:
    """What a kind in a profile stands for: "tensor:int", "cpu", "numpy", or a type on the host."""
    if kind == "cpu":
        return Tensor("cpu", None, "", MEDIUM)
    if kind == "numpy":
        return NUMPY
    if kind.startswith("tensor"):
        dtype = {"tensor:int": "i", "tensor:bool": "b", "tensor:float": "f"}.get(kind, "")
        return Tensor("cuda", 1, dtype, MEDIUM)
    if kind in ("list", "tuple"):
        return Seq(kind, None, UNKNOWN)
    if kind == "none":
        return NONE
    if kind == "maybe-tensor":
        return join(NONE, Tensor("cuda", 1, "", LOW))
    return Host(kind)


def root_arguments(walker: Walker, definition: FunctionDef, receiver: Value | None, region: Region) -> Arguments:
    """The arguments with which captured code is entered when nobody is seen to call it."""
    shape = walker.shape(definition)
    names = list(shape.params)
    positional: list[Value] = []
    if receiver is not None and names:
        positional.append(receiver)
        names = names[1:]
    # By name where a default allows it: through `*args` their places would be lost in a long row.
    required = [n for n in names if n not in shape.defaults]
    optional = [n for n in names if n in shape.defaults] if shape.vararg is None else []
    for name in required if shape.vararg is None else names:
        positional.append(_root_value(walker, definition, shape, name, region))
    keywords = {n: _root_value(walker, definition, shape, n, region) for n in (*optional, *shape.kwonly)}
    star = UNKNOWN if shape.vararg is not None else None
    rest = UNKNOWN if shape.kwarg is not None else None
    if star is not None:
        return Arguments(positional, keywords, star, rest)
    return Arguments(positional, keywords, None, rest)


def _root_value(walker: Walker, definition: FunctionDef, shape: Shape, name: str, region: Region) -> Value:
    annotation = shape.annotations.get(name)
    default = default_value(walker, definition, shape, name)
    if annotation is not None:
        annotated = annotation_value(walker, definition, annotation, region)
        if annotated is not UNKNOWN:
            annotated = _by_host_name(walker.by_package.of(definition.file.module), name, annotated)
            if isinstance(default, Const) and isinstance(default.value, bool):
                # A flag by its default, whatever the annotation says.
                annotated = join_all(
                    [p.with_(confidence=LOW) if isinstance(p, Tensor) else p for p in parts_of(annotated)]
                )
            elif region.captured:
                sure = [
                    p.with_(confidence=HIGH) if isinstance(p, Tensor) and p.confidence == MEDIUM else p
                    for p in parts_of(annotated)
                ]
                annotated = join_all(sure)
            return annotated if default is not NONE else join(NONE, annotated)
    tables = walker.by_package.of(definition.file.module)
    by_name = convention(tables, name) if region.captured or region.traced else UNKNOWN
    if default is None:
        if by_name is UNKNOWN and annotation is None and region.captured:
            # A required, unannotated argument of captured code is a tensor more often than not: a guess.
            return Tensor("cuda", None, "", LOW)
        return by_name
    if by_name is not UNKNOWN:
        return join(default, by_name) if default is NONE else by_name
    return UNKNOWN if default is NONE else widen(default)


def open_value(value: Value) -> Value:
    """A field's default, as what it may hold in general."""
    if isinstance(value, (Seq, Dict, Instance)):
        return value
    return widen(value)
