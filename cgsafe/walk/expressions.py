"""Expressions: names, attributes, displays and what else is neither an operator nor a comprehension nor a call."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    BOOL,
    INT,
    LOW,
    MEDIUM,
    NONE,
    OBJECT,
    SHAPE,
    STR,
    UNKNOWN,
    Bound,
    Class,
    Const,
    Device,
    Dict,
    Ext,
    ExtInstance,
    ExtMethod,
    Func,
    Host,
    Instance,
    ModuleRef,
    Numpy,
    Partial,
    Seq,
    Super,
    Tensor,
    Union,
    Value,
    join,
    join_all,
    parts_of,
    widen,
)
from cgsafe.walk.comprehensions import Comprehensions
from cgsafe.walk.entry import convention, value_of_kind
from cgsafe.walk.operators import Operators
from cgsafe.walk.paths import dotted_path

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

_BUILTINS = frozenset(dir(builtins))


class Expressions(Operators, Comprehensions):
    """Mixin of Frame: evaluates expressions."""

    def eval(self: Frame, node: ast.expr) -> Value:
        kind = node.__class__
        if kind is ast.Name:  # every second expression is one, and mostly a local
            value = self.env.get(node.id)  # type: ignore[attr-defined]
            if value is not None:
                return value
        handler = EXPRESSIONS.get(kind)
        return handler(self, node) if handler is not None else UNKNOWN

    # -- atoms -----------------------------------------------------------------------------------------------------

    def ev_constant(self: Frame, node: ast.Constant) -> Value:
        try:
            return node.held  # type: ignore[attr-defined,no-any-return]
        except AttributeError:
            value = node.held = Const(node.value)  # type: ignore[attr-defined]
            return value

    def ev_name(self: Frame, node: ast.Name) -> Value:
        name = node.id
        value = self.env.get(name)
        if value is not None:
            return value
        if self.shape is not None and name in self.shape.locals:
            return UNKNOWN
        scope = self.node.outer
        while scope is not None:
            value = scope.cells.get(name)
            if value is not None:
                return value
            scope = scope.outer
        if self.class_scope is not None:
            owner = self.class_scope
            if name in owner.methods or name in owner.names:
                what = owner.methods.get(name) or owner.names[name]
                value = self.walker.classes.member(owner, name, what, None)
                if value is not None:
                    return value
        value = self.walker.module_name(self.file, name)
        if value is not None:
            return value
        if name in _BUILTINS:
            return Ext("builtins." + name)
        if name == "__class__" and self.node.definition is not None and self.node.definition.cls is not None:
            return Class(self.node.definition.cls)
        return STR if name == "__name__" else UNKNOWN

    def ev_attribute(self: Frame, node: ast.Attribute) -> Value:
        if self.has_paths:
            path = dotted_path(node)
            if path is not None:
                value = self.env.get(path)
                if value is not None:
                    return value
        return self.attribute(self.eval(node.value), node.attr, node)

    def attribute(self: Frame, base: Value, name: str, node: ast.AST | None) -> Value:
        """What `base.name` holds."""
        kind = base.__class__
        if kind is Instance:
            return self.instance_attribute(base, name, node)  # type: ignore[arg-type]
        if kind is Ext:
            return self.tables.external_attribute(base.name, name)  # type: ignore[attr-defined]
        if kind is Tensor:
            return self.tensor_attribute(base, name, node)  # type: ignore[arg-type]
        if base is UNKNOWN:
            return self.unknown_attribute(base, name)
        if isinstance(base, ModuleRef):
            return self.module_attribute(base, name)
        if isinstance(base, Union):
            parts = [p for p in base.parts if p is not NONE]
            found = [(p, self.attribute(p, name, node)) for p in parts]
            # What has no such attribute cannot be what is meant.
            kept = [v for p, v in found if v is not UNKNOWN or not self.walker.classes.lacks(p, name)]
            return join_all(kept)
        if isinstance(base, Class):
            return self.class_attribute(base, name, node)
        if isinstance(base, Super):
            return self.super_attribute(base, name, node)
        if isinstance(base, ExtInstance):
            return self.external_instance_attribute(base, name)
        if isinstance(base, Device):
            return (Const(base.type) if base.type else STR) if name == "type" else INT if name == "index" else UNKNOWN
        if isinstance(base, (Func, Bound)):
            if isinstance(base, Bound) and name == "__self__":
                return base.receiver
            if name in ("__name__", "__qualname__", "__doc__", "__module__"):
                return STR
            return ExtMethod(base, name) if name in ("forward", "__call__") else UNKNOWN
        if isinstance(base, Numpy):
            return SHAPE if name == "shape" else INT if name in ("ndim", "size") else ExtMethod(base, name)
        if isinstance(base, Host) and base.kind in ("object", "settings"):
            return base
        return ExtMethod(base, name)

    def instance_attribute(self: Frame, base: Instance, name: str, node: ast.AST | None) -> Value:
        classes = self.walker.classes
        if name == "__class__":
            return Class(base.definition)
        if name == "__dict__":
            return Dict({}, UNKNOWN)
        if name in self.tables.field_names:
            kind = self.tables.field_kind((classes.bare_name(e) for e in classes.mro(base.definition)), name)
            if kind is not None:
                return value_of_kind(kind)
        value = classes.attribute(base, name, self, node)
        if self.region.hot and value is not None:
            value = self.at_run_time(base, name, value)
        if value is not None and value is not UNKNOWN:
            return value
        if classes.is_module(base.definition):
            known = self.tables.module_attribute(name)
            if known == "bool":
                return BOOL
            if known == "tensor":
                return Tensor("cuda", None, "f", MEDIUM)
            if known == "method":
                return ExtMethod(base, name)
        if value is None and classes.externals(base.definition):
            fallback = convention(self.tables, name) if self.tables.names_host(name) else UNKNOWN
            if fallback is not UNKNOWN:
                return fallback
            if self.tables.is_host_container_method(name):
                return ExtMethod(base, name)
        getter = classes.find(base.definition, "__getattr__")
        if value is None and getter is None:
            by_name = convention(self.tables, name) if self.region.captured else UNKNOWN
            if isinstance(by_name, Tensor):
                return by_name.with_(confidence=LOW) if by_name.device == "cuda" else by_name
            return by_name
        return UNKNOWN

    def at_run_time(self: Frame, base: Instance, name: str, value: Value) -> Value:
        """What an attribute holds once the program runs: places that the constructor leaves empty are filled by then."""
        if isinstance(value, Tensor):
            # Where the device is a parameter, it is the GPU's.
            return value if value.device else value.with_(device="cuda", confidence=max(value.confidence, MEDIUM))
        empty = (isinstance(value, Seq) and not value.items and value.element in (None, UNKNOWN)) or (
            isinstance(value, Dict) and not value.items and value.other in (None, UNKNOWN)
        )
        if not empty and not isinstance(value, Const):
            return value
        TRAIL.deps.add(base.state)
        promised = self.walker.classes.promised.get((base.definition, name))
        if promised is None:
            promised = self.walker.classes.annotated(base.definition, name)
        if value is NONE:
            kept = [p for p in parts_of(promised or UNKNOWN) if p is not NONE]
            return join_all(kept) if kept else UNKNOWN
        if isinstance(value, Const):
            return widen(value)
        if promised is not None and promised.__class__ is value.__class__:
            return promised
        return Dict({}, UNKNOWN) if isinstance(value, Dict) else Seq(value.kind, None, UNKNOWN)  # type: ignore[attr-defined]

    def class_attribute(self: Frame, base: Class, name: str, node: ast.AST | None) -> Value:
        if name in ("__name__", "__qualname__", "__module__"):
            return Const(base.definition.name) if name == "__name__" else STR
        found = self.walker.classes.find(base.definition, name)
        if name == "apply" and any(
            e.startswith("torch.autograd.") for e in self.walker.classes.externals(base.definition)
        ):
            found = self.walker.classes.find(base.definition, "forward")  # apply(...) runs forward(ctx, ...)
            if found is not None:
                forward = self.walker.classes.member(found[0], "forward", found[1], None)
                return Partial(forward, (OBJECT,), ()) if forward is not None else UNKNOWN
        if found is None:
            return UNKNOWN
        value = self.walker.classes.member(found[0], name, found[1], None)
        if value is NONE and found[1] is not NONE:  # what a decorator says of the class holds
            # A place that somebody fills later.
            annotated = self.walker.classes.annotated(base.definition, name)
            return UNKNOWN if annotated is None or annotated is UNKNOWN else join(NONE, annotated)
        if isinstance(value, Bound):
            return Bound(value.func, base)
        if self.tables.is_enum(self.walker.classes.externals(base.definition)) and value is not None:
            return self.walker.classes.generic(base.definition) if not isinstance(value, (Func, Bound)) else value
        return value if value is not None else UNKNOWN

    def super_attribute(self: Frame, base: Super, name: str, node: ast.AST | None) -> Value:
        receiver = base.receiver
        definition = receiver.definition if isinstance(receiver, (Instance, Class)) else base.after
        found = self.walker.classes.find_after(definition, base.after, name)
        if found is None:
            return ExtMethod(receiver, name)
        value = self.walker.classes.member(found[0], name, found[1], receiver)
        return value if value is not None else UNKNOWN

    def module_attribute(self: Frame, base: ModuleRef, name: str) -> Value:
        entity = self.walker.project.member(base.name, name, self.file)
        return self.walker.entity(entity, self.file) if entity is not None else UNKNOWN

    def unknown_attribute(self: Frame, base: Value, name: str) -> Value:
        """An attribute of a value of which nothing is known: its name may tell."""
        kind = self.tables.only_tensors_have(name)
        if kind == "attribute":
            return self.tensor_attribute(Tensor("cuda", None, "", LOW), name, None)
        if name in self.tables.host_attributes:
            return Host(self.tables.host_attributes[name])
        by_name = convention(self.tables, name) if self.region.captured else UNKNOWN
        if isinstance(by_name, Tensor) and by_name.device == "cuda":
            return by_name.with_(confidence=LOW)
        return by_name if by_name is not UNKNOWN else ExtMethod(base, name)

    # -- compound expressions ----------------------------------------------------------------------------------------

    def ev_ifexp(self: Frame, node: ast.IfExp) -> Value:
        outcome, when_true, when_false = self.condition(node.test, "ternary", node)
        if outcome is None and self.region.captured and self.region.explicit:
            self.note_branch(node)
        before = self.env
        results: list[Value] = []
        if outcome is not False:
            self.env = dict(before)
            self.refine(when_true)
            results.append(self.eval(node.body))
        if outcome is not True:
            self.env = dict(before)
            self.refine(when_false)
            results.append(self.eval(node.orelse))
        self.env = before
        return join_all(results)

    def ev_namedexpr(self: Frame, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.bind_name(node.target.id, value, node.value)
        return value

    def ev_tuple(self: Frame, node: ast.Tuple) -> Value:
        return self._display("tuple", node.elts)

    def ev_list(self: Frame, node: ast.List) -> Value:
        return self._display("list", node.elts)

    def ev_set(self: Frame, node: ast.Set) -> Value:
        return self._display("set", node.elts)

    def _display(self: Frame, kind: str, elements: list[ast.expr]) -> Value:
        items: list[Value] = []
        open_ended = False
        for element in elements:
            if isinstance(element, ast.Starred):
                inner = self.eval(element.value)
                if isinstance(inner, Seq) and inner.items is not None:
                    items.extend(inner.items)
                else:
                    open_ended = True
                    items.append(self.element_of(inner, element))
            else:
                items.append(self.eval(element))
        if open_ended:
            return Seq(kind, None, join_all(items))
        return Seq(kind, tuple(items))

    def ev_dict(self: Frame, node: ast.Dict) -> Value:
        items: dict[Any, Value] = {}
        others: list[Value] = []
        for key, value_node in zip(node.keys, node.values, strict=True):
            value = self.eval(value_node)
            if key is None:
                if isinstance(value, Dict):
                    items.update(value.as_dict())
                    if value.other is not None:
                        others.append(value.other)
                else:
                    others.append(UNKNOWN)
                continue
            known = self.eval(key)
            if isinstance(known, Const):
                items[known.value] = value
            else:
                others.append(value)
        return Dict(items, join_all(others) if others else None)

    def ev_lambda(self: Frame, node: ast.Lambda) -> Value:
        definition = self.walker.definitions.nested(self.file, node, self.offset, self.node.definition, None)
        self.keep_defaults(definition, node.args)
        return Func(definition, self.node if self.shape is not None else self.node.outer)

    def ev_joinedstr(self: Frame, node: ast.JoinedStr) -> Value:
        texts: list[str] | None = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.eval(part.value)
                self.formatted(value, part)
                if texts is not None and isinstance(value, Const) and isinstance(value.value, (str, int)):
                    texts.append(str(value.value))
                else:
                    texts = None
            elif texts is not None and isinstance(part, ast.Constant):
                texts.append(str(part.value))
        return STR if texts is None else Const("".join(texts))

    def formatted(self: Frame, value: Value, node: ast.FormattedValue) -> None:
        """A value is turned into text; a device tensor is read for that."""
        if node.conversion in (-1, 115, 114):
            self.read_host(value, node.value, "format")

    def ev_starred(self: Frame, node: ast.Starred) -> Value:
        return self.eval(node.value)

    def ev_await(self: Frame, node: ast.Await) -> Value:
        return self.eval(node.value)

    def ev_yield(self: Frame, node: ast.Yield) -> Value:
        self.yielded.append(NONE if node.value is None else self.eval(node.value))
        if self.region.captured and self.node.definition is not None and not self.node.region.captured:
            self.walker.capturing_generators.add(self.node.definition)
        return UNKNOWN

    def ev_yieldfrom(self: Frame, node: ast.YieldFrom) -> Value:
        self.yielded.append(self.element_of(self.eval(node.value), node.value))
        return UNKNOWN

    def ev_slice(self: Frame, node: ast.Slice) -> Value:
        for bound in (node.lower, node.upper, node.step):
            if bound is not None:
                self.eval(bound)
        return Host("slice")


EXPRESSIONS: dict[type, Callable[[Any, Any], Value]] = {
    getattr(ast, name): getattr(Expressions, "ev_" + name.lower())
    for name in (
        "Constant Name Attribute BinOp UnaryOp BoolOp Compare IfExp NamedExpr Tuple List Set Dict Lambda ListComp "
        "DictComp JoinedStr Starred Await Yield YieldFrom Slice"
    ).split()
}
EXPRESSIONS[ast.SetComp] = EXPRESSIONS[ast.GeneratorExp] = Expressions.ev_listcomp
