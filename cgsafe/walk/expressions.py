"""Expressions: names, attributes, operators, displays and comprehensions."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cgsafe.values import (
    BOOL,
    FALSE,
    FLOAT,
    HIGH,
    INT,
    LOW,
    MEDIUM,
    NONE,
    NUMBER,
    NUMPY,
    OBJECT,
    SHAPE,
    STR,
    TRUE,
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
    is_host,
    join,
    join_all,
    kind_of,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.entry import convention

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

_BUILTINS = frozenset(dir(builtins))
_CONSTANTS = {True: TRUE, False: FALSE, None: NONE}
_FOLD: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_OPERATOR_METHODS = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.MatMult: "__matmul__",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
}


class Expressions:
    """Mixin of Frame: evaluates expressions."""

    def eval(self: Frame, node: ast.expr) -> Value:
        handler = EXPRESSIONS.get(node.__class__)
        return handler(self, node) if handler is not None else UNKNOWN

    # -- atoms -----------------------------------------------------------------------------------------------------

    def ev_constant(self: Frame, node: ast.Constant) -> Value:
        return Const(node.value)

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
            from cgsafe.walk.frame import dotted_path

            path = dotted_path(node)
            if path is not None:
                value = self.env.get(path)
                if value is not None:
                    return value
        return self.attribute(self.eval(node.value), node.attr, node)

    def attribute(self: Frame, base: Value, name: str, node: ast.AST | None) -> Value:
        """What `base.name` holds."""
        if isinstance(base, Instance):
            return self.instance_attribute(base, name, node)
        if isinstance(base, Ext):
            return self.tables.external_attribute(base.name, name)
        if isinstance(base, Tensor):
            return self.tensor_attribute(base, name, node)
        if isinstance(base, ModuleRef):
            return self.module_attribute(base, name)
        if isinstance(base, Union):
            parts = [p for p in base.parts if p is not NONE]
            return join_all([self.attribute(p, name, node) for p in parts])
        if isinstance(base, Class):
            return self.class_attribute(base, name, node)
        if isinstance(base, Super):
            return self.super_attribute(base, name, node)
        if base is UNKNOWN:
            return self.unknown_attribute(base, name)
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
        value = classes.attribute(base, name, self, node)
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
            fallback = convention(self.walker, name) if self.tables.names_host(name) else UNKNOWN
            if fallback is not UNKNOWN:
                return fallback
            if self.tables.is_host_container_method(name):
                return ExtMethod(base, name)
        getter = classes.find(base.definition, "__getattr__")
        if value is None and getter is None:
            by_name = convention(self.walker, name) if self.region.captured else UNKNOWN
            if isinstance(by_name, Tensor):
                return by_name.with_(confidence=LOW) if by_name.device == "cuda" else by_name
            return by_name
        return UNKNOWN

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
        if value is NONE:
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
        by_name = convention(self.walker, name) if self.region.captured else UNKNOWN
        if isinstance(by_name, Tensor) and by_name.device == "cuda":
            return by_name.with_(confidence=LOW)
        return by_name if by_name is not UNKNOWN else ExtMethod(base, name)

    # -- operators -------------------------------------------------------------------------------------------------

    def ev_binop(self: Frame, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.eval(node.left), self.eval(node.right), node)

    def binary(self: Frame, op: ast.operator, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(left, Union) or isinstance(right, Union):
            results = [
                self.binary(op, a, b, node)
                for a in parts_of(left)
                for b in parts_of(right)
                if a is not NONE and b is not NONE
            ]
            return join_all(results)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            other = right if isinstance(left, Tensor) else left
            if (
                isinstance(op, ast.Mult)
                and other is left
                and ((isinstance(other, Seq) and other.kind == "list") or kind_of(other) == "str")
            ):
                self.read_host(left if isinstance(left, Tensor) else right, node, "index")
                return other
            if isinstance(op, ast.Mod) and kind_of(left) == "str":
                self.read_host(right, node, "format")
                return STR
            if isinstance(left, Numpy) or isinstance(right, Numpy):
                pass
            return elementwise([left, right], "f" if isinstance(op, ast.Div) else "")
        if isinstance(left, Numpy) or isinstance(right, Numpy):
            return NUMPY
        if isinstance(op, ast.Mod) and kind_of(left) == "str":
            self.read_sizes([right], node, "format")
        if isinstance(left, Const) and isinstance(right, Const):
            return _fold(op, left.value, right.value)
        if isinstance(left, Seq) or isinstance(right, Seq):
            return _sequence_operator(op, left, right)
        for receiver, other in ((left, right), (right, left)):
            if isinstance(receiver, Instance):
                method = self.walker.classes.find(receiver.definition, _OPERATOR_METHODS.get(type(op), "?"))
                if method is not None:
                    bound = self.walker.classes.member(method[0], method[1].name, method[1], receiver)
                    return self.call_value(bound, Arguments([other]), node)
                return UNKNOWN
        if left is UNKNOWN or right is UNKNOWN:
            return STR if isinstance(op, ast.Mod) and kind_of(left) == "str" else UNKNOWN
        if kind_of(left) == "str" or kind_of(right) == "str":
            return STR
        if kind_of(left) == "shape" or kind_of(right) == "shape":
            return SHAPE
        if isinstance(op, (ast.BitOr, ast.BitAnd)):
            decided = isinstance(op, ast.BitOr)
            if any(isinstance(v, Const) and v.value is decided for v in (left, right)):
                return Const(decided)  # the other one is a bool or number: it cannot change this
        numbers = {"int", "float", "bool", "number"}
        if kind_of(left) in numbers and kind_of(right) in numbers:
            if isinstance(op, ast.Div):
                return FLOAT
            if kind_of(left) == kind_of(right) == "int":
                return INT
            return FLOAT if "float" in (kind_of(left), kind_of(right)) else NUMBER
        if is_host(left) and is_host(right):
            return OBJECT
        return UNKNOWN

    def ev_unaryop(self: Frame, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            outcome, _, _ = self.condition(node.operand, "not", node)
            return BOOL if outcome is None else Const(not outcome)
        value = self.eval(node.operand)
        results: list[Value] = []
        for part in parts_of(value):
            if isinstance(part, Const) and isinstance(part.value, (int, float)):
                if isinstance(node.op, ast.USub):
                    results.append(Const(-part.value))
                elif isinstance(node.op, ast.UAdd):
                    results.append(part)
                else:
                    results.append(INT)
            else:
                results.append(part)
        return join_all(results)

    def ev_boolop(self: Frame, node: ast.BoolOp) -> Value:
        """`a or b` as a value: each operand but the last is asked for its truth."""
        from cgsafe.values import truth

        is_and = isinstance(node.op, ast.And)
        results: list[Value] = []
        before = self.env
        self.env = dict(before)
        form = "and" if is_and else "or"
        for index, operand in enumerate(node.values):
            if index == len(node.values) - 1:
                results.append(self.eval(operand))
                break
            if isinstance(operand, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.NamedExpr)):
                outcome, when_true, when_false = self.condition(operand, form, node)
                value: Value = BOOL if outcome is None else Const(outcome)
                if isinstance(operand, (ast.BoolOp, ast.NamedExpr)):
                    value = UNKNOWN if outcome is None else value
            else:
                value = self.eval(operand)
                self.test(value, operand, form, node)
                outcome = truth(value)
                _, when_true, when_false = self.narrow_truth(operand, value)
            if outcome is (not is_and):
                results.append(value)
                break
            if outcome is None:
                keep = [p for p in parts_of(value) if truth(p) is not is_and]
                results.append(join_all(keep) if keep else value)
            self.refine(when_true if is_and else when_false)
        names = {k: v for k, v in self.env.items() if k not in before}
        self.env = before
        before.update({k: v for k, v in names.items() if "." not in k})
        return join_all(results)

    def ev_compare(self: Frame, node: ast.Compare) -> Value:
        left = self.eval(node.left)
        results: list[Value] = []
        for index, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self.eval(right_node)
            result = self.compare(op, left, right, node)
            if index < len(node.ops) - 1:
                self.test(result, node, "compare", node)
            results.append(result)
            left, _left_node = right, right_node
        if len(results) == 1:
            return results[0]
        if all(isinstance(r, Const) for r in results):
            return Const(all(r.value for r in results))  # type: ignore[attr-defined]
        return results[-1] if not isinstance(results[-1], Const) else BOOL

    def compare(self: Frame, op: ast.cmpop, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = _is_same(left, right)
            if same is None:
                return BOOL
            return Const(same is isinstance(op, ast.Is))
        if isinstance(op, (ast.In, ast.NotIn)):
            return self.contains(op, left, right, node)
        if isinstance(left, Union) or isinstance(right, Union):
            return join_all([self.compare(op, a, b, node) for a in parts_of(left) for b in parts_of(right)])
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            other = right if isinstance(left, Tensor) else left
            if other is NONE or isinstance(other, (Seq, Dict, Ext)) or (kind_of(other) == "str"):
                return BOOL
            if isinstance(other, (Instance, ExtInstance, Device)):
                return UNKNOWN
            return elementwise([left, right], "b")
        if isinstance(left, Numpy) or isinstance(right, Numpy):
            return NUMPY
        if isinstance(left, Const) and isinstance(right, Const):
            try:
                return Const(bool(_COMPARE[type(op)](left.value, right.value)))
            except Exception:
                return BOOL
        if isinstance(left, Device) and isinstance(right, (Const, Device)):
            return _compare_devices(op, left, right)
        if isinstance(right, Device) and isinstance(left, Const):
            return _compare_devices(op, right, left)
        if isinstance(left, Seq) and isinstance(right, Seq):
            if not (isinstance(node, ast.Compare) and ast.dump(node.left) == ast.dump(node.comparators[0])):
                self.compare_sequences(left, right, node)
            return BOOL
        if left is UNKNOWN or right is UNKNOWN:
            return BOOL if NONE in (left, right) or kind_of(left) == "str" or kind_of(right) == "str" else UNKNOWN
        if isinstance(left, (Instance, ExtInstance)) or isinstance(right, (Instance, ExtInstance)):
            return UNKNOWN if not isinstance(op, (ast.Eq, ast.NotEq)) else BOOL
        return BOOL

    def compare_sequences(self: Frame, left: Seq, right: Seq, node: ast.AST) -> None:
        """Comparing containers compares their elements, and asks each comparison for its truth."""
        if left.items is None or right.items is None:
            return
        for a, b in zip(left.items, right.items, strict=False):
            if isinstance(a, Tensor) or isinstance(b, Tensor):
                self.test(elementwise([a, b], "b"), node, "compare", node)

    def contains(self: Frame, op: ast.cmpop, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(node, ast.Compare) and isinstance(node.comparators[0], (ast.List, ast.Tuple)):
            elements = node.comparators[0].elts
            if elements and ast.dump(elements[0]) == ast.dump(node.left):
                return TRUE  # the very same object comes first: nothing is compared
        for part in parts_of(right):
            if isinstance(part, Tensor):
                self.test(part.with_(dtype="b", rank=0), node, "in", node)
            elif isinstance(part, Seq) and part.kind != "set" and part.element is not None:
                pairs = [
                    t
                    for a in parts_of(left)
                    for b in parts_of(part.element)
                    if isinstance(a, Tensor) or isinstance(b, Tensor)
                    for t in [elementwise([a, b], "b")]
                    if not (is_host(a) and kind_of(a) in ("str", "object") and a is NONE)
                    and not (kind_of(a) == "str" or kind_of(b) == "str" or NONE in (a, b))
                ]
                for pair in pairs:
                    self.test(pair, node, "in", node)
        if isinstance(left, Const) and isinstance(right, Const) and isinstance(right.value, str):
            if isinstance(left.value, str):
                return Const((left.value in right.value) is isinstance(op, ast.In))
        if isinstance(left, Const) and isinstance(right, Seq) and right.items is not None:
            if all(isinstance(i, Const) for i in right.items):
                return Const((left in right.items) is isinstance(op, ast.In))
        if isinstance(left, Const) and isinstance(right, Dict) and right.other is None:
            return Const((left.value in dict(right.items)) is isinstance(op, ast.In))
        return BOOL

    # -- compound expressions ----------------------------------------------------------------------------------------

    def ev_ifexp(self: Frame, node: ast.IfExp) -> Value:
        outcome, when_true, when_false = self.condition(node.test, "ternary", node)
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

    def _comprehension(self: Frame, node: Any, elements: list[ast.expr]) -> list[Value] | None:
        """The values of the elements; None where it is certainly empty."""
        before = self.env
        self.env = dict(before)
        self.branches += 1
        try:
            for generator in node.generators:
                iterable = self.eval(generator.iter)
                if isinstance(iterable, Seq) and iterable.items == ():
                    return None
                self.assign(generator.target, self.element_of(iterable, generator.iter))
                for test in generator.ifs:
                    outcome, when_true, _ = self.condition(test, "comprehension", test)
                    if outcome is False:
                        return None
                    self.refine(when_true)
            return [self.eval(e) for e in elements]
        finally:
            self.leave_comprehension(node, before)
            self.branches -= 1

    def ev_listcomp(self: Frame, node: Any) -> Value:
        kind = "set" if isinstance(node, ast.SetComp) else "list"
        if len(node.generators) == 1 and not node.generators[0].ifs:
            items = self._unrolled(node)
            if items is not None:
                return Seq(kind, tuple(items))
        values = self._comprehension(node, [node.elt])
        return Seq(kind, ()) if values is None else Seq(kind, None, values[0])

    def _unrolled(self: Frame, node: Any) -> list[Value] | None:
        """A comprehension over a short known sequence, item by item."""
        generator = node.generators[0]
        if not isinstance(generator.iter, (ast.Tuple, ast.List, ast.Name, ast.Call)):
            return None
        iterable = self.eval(generator.iter)
        if not isinstance(iterable, Seq) or iterable.items is None or len(iterable.items) > 8:
            return None
        if self.unrolled >= 2:
            return None  # each level would double the work
        before = self.env
        self.env = dict(before)
        self.unrolled += 1
        results: list[Value] = []
        try:
            for item in iterable.items:
                self.assign(generator.target, item)
                results.append(self.eval(node.elt))
        finally:
            self.leave_comprehension(node, before)
            self.unrolled -= 1
        return results

    def leave_comprehension(self: Frame, node: Any, before: dict[str, Value]) -> None:
        """Its variables are gone; what a walrus bound in it stays."""
        inside, self.env = self.env, before
        names = getattr(node, "walrus_names", None)
        if names is None:
            names = [n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            node.walrus_names = names
        for name in names:
            if name in inside:
                self.bind_name(name, inside[name])

    def ev_dictcomp(self: Frame, node: ast.DictComp) -> Value:
        picked = self._picked(node)
        if picked is not None:
            return picked
        values = self._comprehension(node, [node.key, node.value])
        return Dict({}) if values is None else Dict({}, values[1])

    def _picked(self: Frame, node: ast.DictComp) -> Value | None:
        """`{k: ... for k, v in mapping.items() if ...}`: the keys stay the mapping's own."""
        generator = node.generators[0]
        pair, source = generator.target, generator.iter
        if len(node.generators) > 1 or not isinstance(pair, ast.Tuple) or not isinstance(source, ast.Call):
            return None
        if not (isinstance(source.func, ast.Attribute) and source.func.attr == "items" and len(pair.elts) == 2):
            return None
        if not (
            isinstance(node.key, ast.Name) and isinstance(pair.elts[0], ast.Name) and node.key.id == pair.elts[0].id
        ):
            return None
        mapping = self.eval(source.func.value)
        if not isinstance(mapping, Dict):
            return None
        before = self.env
        self.branches += 1

        def one(key: Value, value: Value) -> Value | None:
            self.env = dict(before)
            self.assign(pair, Seq("tuple", (key, value)))
            for test in generator.ifs:
                outcome, when_true, _ = self.condition(test, "comprehension", test)
                if outcome is False:
                    return None
                self.refine(when_true)
            return self.eval(node.value)

        try:
            results = {key: one(Const(key), value) for key, value in mapping.items}
            other = one(STR, mapping.other) if mapping.other is not None else None
        finally:
            self.env = before
            self.branches -= 1
        return Dict({key: value for key, value in results.items() if value is not None}, other)

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


def elementwise(values: list[Value], dtype: str = "") -> Tensor:
    """The tensor that an elementwise operation makes of its operands."""
    tensors = [v for v in values if isinstance(v, Tensor)]
    solid = [t for t in tensors if t.rank != 0] or tensors
    cuda = [t for t in tensors if t.device == "cuda"]
    device = "cuda" if cuda else solid[0].device
    relevant = [t for t in solid if t.device == device] or cuda
    confidence = max(t.confidence for t in relevant)
    others_unknown = any(v is UNKNOWN for v in values)
    rank: int | None = None
    if all(t.rank == 0 for t in tensors) and not others_unknown:
        rank = 0
    elif all(t.rank is not None and t.rank <= 0 for t in tensors) and not others_unknown:
        rank = min(t.rank or 0 for t in tensors)  # broadcast to the one with the most dimensions
    elif any(t.rank for t in tensors):
        rank = 1
    if not dtype:
        kinds = {t.dtype for t in tensors}
        host = {kind_of(v) for v in values if isinstance(v, (Const, Host))}
        if "f" in kinds or "float" in host:
            dtype = "f"
        elif kinds == {"i"} or (kinds <= {"i", "b"} and "i" in kinds):
            dtype = "i"
        elif kinds == {"b"} and host <= {"bool"}:
            dtype = "b"
    return Tensor(device, rank, dtype, confidence)


def _fold(op: ast.operator, left: Any, right: Any) -> Value:
    function = _FOLD.get(type(op))
    try:
        if function is None or (
            (isinstance(op, ast.Mult) and isinstance(left, (str, bytes)))
            or (isinstance(right, (str, bytes)) and isinstance(op, ast.Mult))
        ):
            raise TypeError
        if isinstance(op, ast.Mod) and isinstance(left, (str, bytes)):
            raise TypeError
        return Const(function(left, right))
    except Exception:
        if isinstance(left, str):
            return STR
        return NUMBER if isinstance(left, (int, float)) else UNKNOWN


def _sequence_operator(op: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(op, ast.Add) and isinstance(left, Seq):
        if isinstance(right, Seq):
            if left.items is not None and right.items is not None:
                return Seq(left.kind, left.items + right.items)
            elements = [e for e in (left.element, right.element) if e is not None]
            return Seq(left.kind, None, join_all(elements))
        return Seq(
            left.kind, None, UNKNOWN if left.element is None else join(left.element, INT if right is SHAPE else UNKNOWN)
        )
    if isinstance(op, ast.Add) and isinstance(right, Seq):
        return Seq(right.kind, None, INT if left is SHAPE and right.element in (None, INT) else UNKNOWN)
    if isinstance(op, ast.Mult):
        sequence = left if isinstance(left, Seq) else right
        assert isinstance(sequence, Seq)
        other = right if isinstance(left, Seq) else left
        if sequence.items is not None and isinstance(other, Const) and isinstance(other.value, int):
            if 0 <= other.value * len(sequence.items) <= 16:
                return Seq(sequence.kind, sequence.items * other.value)
        return Seq(sequence.kind, None, sequence.element)
    if isinstance(op, ast.Mod):
        return STR
    return UNKNOWN


def _is_same(left: Value, right: Value) -> bool | None:
    """`left is right` where it is certain."""
    if isinstance(left, Const) and isinstance(right, Const):
        return left is right if left.value is None or isinstance(left.value, bool) or right.value is None else None
    for one, other in ((left, right), (right, left)):
        if isinstance(other, Const) and (other.value is None or isinstance(other.value, bool)):
            if isinstance(one, Union):
                outcomes = {_is_same(p, other) for p in one.parts}
                return outcomes.pop() if len(outcomes) == 1 else None
            if one is UNKNOWN or isinstance(one, ExtMethod):
                return None
            if isinstance(one, Host):
                return None if one.kind in ("object", "bool", "str") and other.value is not None else False
            if isinstance(one, (Tensor, Seq, Dict, Func, Bound, Class, Instance, Device, Numpy, ExtInstance)):
                return False
            return None
    if isinstance(left, Class) and isinstance(right, Class):
        return left is right
    return None


def _compare_devices(op: ast.cmpop, left: Device, right: Value) -> Value:
    if not isinstance(op, (ast.Eq, ast.NotEq)):
        return BOOL
    other = right.type if isinstance(right, Device) else right.value if isinstance(right, Const) else ""
    if not left.type or not isinstance(other, str) or not other:
        return BOOL
    other = other.partition(":")[0]
    if other == left.type:
        return BOOL if other == "cuda" else Const(isinstance(op, ast.Eq))
    return Const(isinstance(op, ast.NotEq))


EXPRESSIONS: dict[type, Callable[[Any, Any], Value]] = {
    getattr(ast, name): getattr(Expressions, "ev_" + name.lower())
    for name in (
        "Constant Name Attribute BinOp UnaryOp BoolOp Compare IfExp NamedExpr Tuple List Set Dict Lambda ListComp "
        "DictComp JoinedStr Starred Await Yield YieldFrom Slice"
    ).split()
}
EXPRESSIONS[ast.SetComp] = EXPRESSIONS[ast.GeneratorExp] = Expressions.ev_listcomp

__all__ = ["HIGH", "Expressions", "elementwise"]
