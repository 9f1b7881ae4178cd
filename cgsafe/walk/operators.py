"""Operators: arithmetic, `and` and `or`, comparisons and `in`, and what they make of tensors, constants and sequences."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cgsafe.values import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    NUMPY,
    OBJECT,
    SHAPE,
    STR,
    TRUE,
    UNKNOWN,
    Answer,
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
    Numpy,
    Seq,
    Tensor,
    Union,
    Value,
    answer_of,
    is_host,
    join,
    join_all,
    kind_of,
    only_in,
    parts_of,
    truth,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.conditions import doubt_in

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

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


class Operators:
    """Mixin of Frame: evaluates operators and comparisons."""

    def ev_binop(self: Frame, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.eval(node.left), self.eval(node.right), node)

    def binary(self: Frame, op: ast.operator, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(left, Union) or isinstance(right, Union):
            lefts, rights = parts_of(left), parts_of(right)
            if any(isinstance(a, Tensor) for a in lefts) and any(isinstance(b, Tensor) for b in rights):
                # Arithmetic of two that may be tensors means tensors: a list would be repeated.
                lefts = tuple(a for a in lefts if not isinstance(a, Seq))
            results = [self.binary(op, a, b, node) for a in lefts for b in rights if a is not NONE and b is not NONE]
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
            if self.region.explicit:
                self.note_operands(left, right, node)
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
            outcome, when_true, when_false = self.condition(node.operand, "not", node)
            return Answer(doubt_in(when_false), doubt_in(when_true)) if outcome is None else Const(not outcome)
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
        is_and = isinstance(node.op, ast.And)
        results: list[Value] = []
        before = self.env
        self.env = dict(before)
        form = "and" if is_and else "or"
        cases: list[tuple[str, str]] = []  # of the open operands: special cases in which they are true, and false
        for index, operand in enumerate(node.values):
            if index == len(node.values) - 1:
                results.append(self.eval(operand))
                _, when_true, when_false = self.narrow_truth(operand, results[-1])
                cases.append((doubt_in(when_true), doubt_in(when_false)))
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
                keep = [
                    Const(not is_and) if p is BOOL or isinstance(p, Answer) or (is_and and isinstance(p, Ext)) else p
                    for p in keep
                ]
                results.append(join_all(keep) if keep else value)
                cases.append((doubt_in(when_true), doubt_in(when_false)))
            self.refine(when_true if is_and else when_false)
        names = {k: v for k, v in self.env.items() if k not in before}
        self.env = before
        before.update({k: v for k, v in names.items() if "." not in k})
        value = join_all(results)
        return value if not any(map(any, cases)) else _answered(value, results[-1], cases, is_and)

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
        kind = op.__class__
        if kind is ast.Is or kind is ast.IsNot:
            same = _is_same(left, right)
            if same is None and right is NONE and isinstance(node, ast.Compare) and self.is_given(node.left):
                same = False
            if same is None:
                return BOOL
            return Const(same is (kind is ast.Is))
        if kind is ast.In or kind is ast.NotIn:
            return self.contains(op, left, right, node)
        if isinstance(left, Union) or isinstance(right, Union):
            return join_all([self.compare(op, a, b, node) for a in parts_of(left) for b in parts_of(right)])
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            other = right if isinstance(left, Tensor) else left
            if other is NONE or isinstance(other, (Seq, Dict, Ext)) or (kind_of(other) == "str"):
                return BOOL
            if isinstance(other, (Instance, ExtInstance, Device)):
                return UNKNOWN
            if self.region.explicit:
                self.note_operands(left, right, node)
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
        if isinstance(left, Dict) and isinstance(right, Dict):
            theirs = right.as_dict()
            shared = [key for key, _ in left.items if key in theirs]
            sides = [Seq("tuple", tuple(side[key] for key in shared)) for side in (left.as_dict(), theirs)]
            self.compare_sequences(sides[0], sides[1], node)
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


def _answered(value: Value, last: Value, cases: list[tuple[str, str]], is_and: bool) -> Value:
    """An `and` or `or` of questions: one that is true in special cases only makes an `and` true in these only."""
    if truth(value) is not None or any(answer_of(p) is None for p in parts_of(last)):
        return value
    if any(isinstance(p, Tensor) for p in parts_of(value)):
        return value
    if truth(last) is is_and:
        cases = cases[:-1]
    yes, no = zip(*cases, strict=True)
    every, some = (no, yes) if is_and else (yes, no)
    each, one = min(every) if all(every) else "", next(filter(None, some), "")
    return Answer(one, each) if is_and else Answer(each, one)  # type: ignore[no-any-return]


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
    return Tensor(device, rank, dtype, confidence, only_in(tensors))


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


_NEVER_NONE = frozenset((Tensor, Seq, Dict, Func, Bound, Class, Instance, Device, Numpy, ExtInstance, Host, Answer))


def _is_same(left: Value, right: Value) -> bool | None:
    """`left is right` where it is certain."""
    if right is NONE and left.__class__ in _NEVER_NONE:
        return False
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
