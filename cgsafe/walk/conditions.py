"""Conditions: which way they go, what the code behind them may take for granted, and who is asked for a truth value."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import TruthTest
from cgsafe.values import (
    LOW,
    NONE,
    SETTINGS,
    UNKNOWN,
    Class,
    Const,
    Device,
    Dict,
    Ext,
    ExtInstance,
    Func,
    Host,
    Instance,
    Numpy,
    Seq,
    Tensor,
    TextWith,
    Union,
    Value,
    join_all,
    kind_of,
    on_device,
    only_in,
    parts_of,
    special_cases,
    truth,
)
from cgsafe.walk import loading
from cgsafe.walk.facts import TENSOR_CLASSES
from cgsafe.walk.paths import dotted_path

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

Refinements = list[tuple[str, Value]]
Outcome = tuple[bool | None, Refinements, Refinements]

DOUBT = "?.doubt"  # in an environment: why the code at hand runs in special cases only; a path, so that joins drop it

_HOST_CLASSES = {
    "builtins.int": {"int", "bool"},
    "builtins.float": {"float"},
    "builtins.str": {"str"},
    "builtins.bool": {"bool"},
}
_SEQUENCE_CLASSES = {"builtins.list": "list", "builtins.tuple": "tuple", "builtins.set": "set"}
_MAPPING_CLASSES = {"builtins.dict", "collections.OrderedDict", "collections.abc.Mapping", "typing.Mapping"}


class Conditions:
    """Mixin of Frame."""

    def refine(self: Frame, refinements: Refinements) -> None:
        for key, value in refinements:
            self.env[key] = value
            if "." in key:
                self.note_path(key)

    def condition(self: Frame, node: ast.expr, form: str, owner: ast.AST) -> Outcome:
        """Evaluate a condition: (its outcome where certain, refinements when true, refinements when false)."""
        kind = node.__class__
        if kind is ast.BoolOp:
            return self._bool_condition(node, form, owner)  # type: ignore[arg-type]
        if kind is ast.UnaryOp and node.op.__class__ is ast.Not:  # type: ignore[attr-defined]
            outcome, when_true, when_false = self.condition(node.operand, "not" if form == "not" else form, owner)  # type: ignore[attr-defined]
            return (None if outcome is None else not outcome), when_false, when_true
        if kind is ast.Compare and len(node.ops) == 1:  # type: ignore[attr-defined]
            return self._comparison(node, form, owner)  # type: ignore[arg-type]
        if kind is ast.Call:
            special = self._call_condition(node, form, owner)  # type: ignore[arg-type]
            if special is not None:
                return special
        if kind is ast.NamedExpr:
            outcome, when_true, when_false = self.condition(node.value, form, owner)  # type: ignore[attr-defined]
            value: Value = UNKNOWN if outcome is None else Const(outcome)
            if outcome is None:
                value = self.eval(node.value)  # type: ignore[attr-defined]
            self.bind_name(node.target.id, value, node.value)  # type: ignore[attr-defined]
            _, more_true, more_false = self.narrow_truth(node.target, value)  # type: ignore[attr-defined]
            return outcome, when_true + more_true, when_false + more_false
        value = self.eval(node)
        self.test(value, node, form, owner)
        if kind is ast.Name and (origin := self._answered(node)) is not None:  # type: ignore[arg-type]
            _, when_true, when_false = self.condition(origin, form, owner)
            outcome, more_true, more_false = self.narrow_truth(node, value)
            return outcome, when_true + more_true, when_false + more_false
        return self.narrow_truth(node, value)

    def _answered(self: Frame, name: ast.Name) -> ast.expr | None:
        """The question behind `given = isinstance(x, Tensor)` or `given = x is not None`, while `x` is as it was."""
        origin = self.origins.get(name.id)
        subject: ast.expr | None = None
        if isinstance(origin, ast.Call) and isinstance(origin.func, ast.Name) and origin.func.id == "isinstance":
            subject = origin.args[0] if origin.args else None
        elif isinstance(origin, ast.Compare) and isinstance(origin.ops[0], (ast.Is, ast.IsNot)):
            subject = origin.left if len(origin.ops) == 1 else None
        if origin is None or not isinstance(subject, ast.Name):
            return None
        renewed = self.origins.get(subject.id)
        return origin if renewed is None or renewed.lineno < origin.lineno else None

    def _bool_condition(self: Frame, node: ast.BoolOp, form: str, owner: ast.AST) -> Outcome:
        is_and = isinstance(node.op, ast.And)
        before = self.env
        self.env = dict(before)
        all_true: Refinements = []
        all_false: Refinements = []
        open_true: list[Refinements] = []  # of the operands whose outcome is not certain
        open_false: list[Refinements] = []
        result: bool | None = is_and
        stopped = False
        undecided = self.undecided
        for operand in node.values:
            outcome, when_true, when_false = self.condition(operand, form, owner)
            if outcome is (not is_and):
                result, stopped = (not is_and), True
                break
            if outcome is None:
                self.undecided = (*self.undecided, self._optional(operand, is_and))
                result = None
                open_true.append(when_true)
                open_false.append(when_false)
            refinements = when_true if is_and else when_false
            self.refine(refinements)
            all_true.extend(when_true)
            all_false.extend(when_false)
        self.undecided = undecided
        bound = {k: v for k, v in self.env.items() if k not in before and "." not in k}
        self.env = before
        before.update(bound)
        if stopped and result is not None:
            return result, ([] if is_and else all_true), (all_false if is_and else [])
        if is_and:
            # When all are true, each refinement holds; when one is false, it is unknown which.
            return result, all_true, _of_any(open_false)
        return result, _of_any(open_true), all_false

    def _optional(self: Frame, operand: ast.expr, is_and: bool) -> str:
        """The input that a caller must give for what comes behind `x is not None and` to run; "" for other operands.

        What an object holds is not meant: it is there in all calls of a model, or in none.
        """
        if not isinstance(operand, ast.Compare) or not isinstance(operand.ops[0], ast.IsNot if is_and else ast.Is):
            return ""
        left, right = operand.left, operand.comparators[0]
        if not isinstance(left, ast.Name) or not isinstance(right, ast.Constant) or right.value is not None:
            return ""
        return left.id if self.shape is not None and left.id in (*self.shape.params, *self.shape.kwonly) else ""

    def narrow_truth(self: Frame, node: ast.expr, value: Value) -> Outcome:
        outcome = truth(value)
        path = dotted_path(node)
        yes, no = special_cases(value)
        doubts: tuple[Refinements, Refinements] = _because(yes), _because(no)
        if path is None or outcome is not None or not isinstance(value, Union):
            if path is not None and isinstance(value, Host) and value.kind == "bool":
                when_true: Refinements = [(path, Const(True)), *doubts[0]]
                if not self.region.explicit and path.rpartition(".")[2] in self.tables.doubted_flags and "." in path:
                    when_true.append((DOUBT, Const(f"only where `{path}` is true")))
                when_false: Refinements = [(path, Const(False)), *doubts[1]]
                if self.is_assumed() and isinstance(node, ast.Attribute):
                    from cgsafe.walk.fallbacks import taken_back

                    if taken_back(self.walker, self.eval(node.value), node.attr):
                        when_false.append((DOUBT, Const(f"only where `{path}` is false, as after an exception")))
                return None, when_true, when_false
            return outcome, *doubts
        can_be_true = [p for p in value.parts if truth(p) is not False]
        can_be_false = [p for p in value.parts if truth(p) is not True]
        return (
            None,
            [(path, join_all(can_be_true)), *doubts[0]] if can_be_true else [],
            [(path, join_all(can_be_false)), *doubts[1]] if can_be_false else [],
        )

    def _comparison(self: Frame, node: ast.Compare, form: str, owner: ast.AST) -> Outcome:
        op, right_node = node.ops[0], node.comparators[0]
        left = self.eval(node.left)
        right = self.eval(right_node)
        result = self.compare(op, left, right, node)
        self.test(result, node, form, owner)
        outcome = truth(result)
        target = node.left.target if isinstance(node.left, ast.NamedExpr) else node.left
        path = dotted_path(target)
        when_true: Refinements = []
        when_false: Refinements = []
        if path is not None and outcome is not None and right is NONE and self.is_given(target):
            kept = [p for p in parts_of(left) if p is not NONE]
            given = [(path, join_all(kept) if kept else UNKNOWN)]
            return (True, given, []) if outcome else (False, [], given)
        if path is not None and outcome is None:
            if isinstance(op, (ast.Is, ast.IsNot)) and right is NONE:
                kept = [p for p in parts_of(left) if p is not NONE]
                not_none = join_all(kept) if kept else UNKNOWN
                when_true, when_false = [(path, NONE)], [(path, not_none)]
                if self.fallbacks and (failure := self.after_failure(path)):
                    when_true.append((DOUBT, Const(failure)))
                if path in self.tables.doubted_arguments and not self.region.explicit:
                    when_false.append((DOUBT, Const(f"only where `{path}` is given")))
                if not self.region.explicit and loading.filled(self, target):
                    when_true.append((DOUBT, Const(f"only where loading did not fill `{path}`")))
                if isinstance(op, ast.IsNot):
                    when_true, when_false = when_false, when_true
            elif isinstance(op, (ast.Eq, ast.NotEq)) and isinstance(right, Const):
                if isinstance(left, (Host, Const)) or left is UNKNOWN:
                    when_true = [(path, right)] if isinstance(right.value, (str, bool)) else []
                elif isinstance(left, Union):
                    # A tensor equal to a constant is still a tensor.
                    keep = [p for p in left.parts if isinstance(p, (Tensor, Instance))]
                    when_true = [(path, join_all([right, *keep]))] if not keep else []
                if isinstance(op, ast.NotEq):
                    when_true, when_false = [], when_true
            elif isinstance(op, ast.In) and isinstance(right, Seq) and right.items and len(right.items) <= 8:
                if all(isinstance(i, Const) for i in right.items) and (isinstance(left, Host) or left is UNKNOWN):
                    when_true = [(path, join_all(right.items))]
        if outcome is None and isinstance(op, (ast.In, ast.NotIn)) and isinstance(left, Const):
            holder = dotted_path(right_node)
            if (
                holder is not None
                and isinstance(left.value, str)
                and (right is UNKNOWN or kind_of(right) in ("str", "object", "settings"))
            ):
                (when_true if isinstance(op, ast.In) else when_false).append((holder, TextWith(left.value)))
        if (
            isinstance(op, (ast.Eq, ast.NotEq))
            and isinstance(right, Ext)
            and right.name in self.tables.doubted_dtypes
            and outcome is None
        ):
            doubt = Const(f"only where `{ast.unparse(node.left)}` is {right.name}")
            (when_true if isinstance(op, ast.Eq) else when_false).append((DOUBT, doubt))
        if isinstance(op, (ast.Eq, ast.NotEq)):
            self._device_refinements(node, op, right, when_true, when_false)
            if isinstance(right, Const) and right.value.__class__ is int:
                self._rank_refinements(node, op, right.value, when_true, when_false)
        return outcome, when_true, when_false

    def is_given(self: Frame, node: ast.expr) -> bool:
        """True for what is never None in what is captured, by profile."""
        if not self.tables.given_arguments or not self.region.captured or self.region.explicit:
            return False
        return dotted_path(node) in self.tables.given_arguments

    def _rank_refinements(
        self: Frame, node: ast.Compare, op: ast.cmpop, rank: int, when_true: Refinements, when_false: Refinements
    ) -> None:
        """`x.ndim == 2` and its like say how many dimensions `x` has."""
        path = dotted_path(measured) if (measured := _measured(node.left)) is not None else None
        value = self.env.get(path) if path is not None else None
        if path is None or value is None:
            return
        parts = parts_of(value)
        yes = [
            _of_rank(p, rank) for p in parts if not isinstance(p, Tensor) or p.rank in (None, -rank, 1 if rank else 0)
        ]
        no = [p for p in parts if not isinstance(p, Tensor) or p.rank != -rank or p.rank is None]
        if isinstance(op, ast.NotEq):
            yes, no = no, yes
        if yes:
            when_true.append((path, join_all(yes)))
        if no:
            when_false.append((path, join_all(no)))

    def _device_refinements(
        self: Frame, node: ast.Compare, op: ast.cmpop, right: Value, when_true: Refinements, when_false: Refinements
    ) -> None:
        """`x.device.type == "cpu"` and its like say where `x` is."""
        named = right.type if isinstance(right, Device) else right.value if isinstance(right, Const) else None
        if not isinstance(named, str) or not named:
            return
        chain = node.left
        if isinstance(chain, ast.Attribute) and chain.attr == "type":
            chain = chain.value
        if not (isinstance(chain, ast.Attribute) and chain.attr == "device"):
            return
        path = dotted_path(chain.value)
        if path is None:
            return
        value = self.eval(chain.value)
        moved = [p.with_(device=named.partition(":")[0]) if isinstance(p, Tensor) else p for p in parts_of(value)]
        target = when_true if isinstance(op, ast.Eq) else when_false
        target.append((path, join_all(moved)))
        elsewhere = any(p is UNKNOWN or (isinstance(p, Tensor) and p.device != "cpu") for p in parts_of(value))
        if named == "cpu" and elsewhere and self.is_assumed():
            target.append((DOUBT, Const(f"only where `{path}` is on the CPU")))

    def _call_condition(self: Frame, node: ast.Call, form: str, owner: ast.AST) -> Outcome | None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "is_pinned" and not node.args:
            return self._pinned(function.value)
        if not isinstance(function, (ast.Name, ast.Attribute)) or not node.args:
            return None
        if isinstance(function, ast.Name) and function.id not in (
            "isinstance",
            "hasattr",
            "callable",
            "is_tensor",
            "bool",
        ):
            return None
        if isinstance(function, ast.Attribute) and function.attr != "is_tensor":
            return None
        callee = self.eval(function)
        name = callee.name if isinstance(callee, Ext) else ""
        path = dotted_path(node.args[0])
        if name == "builtins.bool" and len(node.args) == 1:
            return self.condition(node.args[0], "bool" if form in ("value",) else form, owner)
        if name == "builtins.isinstance" and len(node.args) == 2:
            value = self.eval(node.args[0])
            yes, no, outcome = self.instance_narrowed(value, self.eval(node.args[1]))
        elif name in ("torch.is_tensor", "torch.overrides.is_tensor_like"):
            value = self.eval(node.args[0])
            yes, no, outcome = self.instance_narrowed(value, Ext("torch.Tensor"))
        else:
            return None
        if path is None:
            return outcome, [], []
        return outcome, [(path, yes)], [(path, no)]

    def _pinned(self: Frame, holder: ast.expr) -> Outcome | None:
        """`x.is_pinned()` says of a tensor on the CPU which memory it lies in."""
        path = dotted_path(holder)
        if path is None:
            return None
        parts = parts_of(self.eval(holder))
        if not parts or not all(isinstance(p, Tensor) for p in parts):
            return None
        pinned = [p.with_(device="pinned") if isinstance(p, Tensor) and p.device == "cpu" else p for p in parts]
        return None, [(path, join_all(pinned))], []

    def instance_narrowed(self: Frame, value: Value, classes: Value) -> tuple[Value, Value, bool | None]:
        """(the value if it is an instance, the value if it is not, the outcome where certain)."""
        wanted: list[Value] = []
        for part in parts_of(classes):
            wanted.extend(part.items or [UNKNOWN] if isinstance(part, Seq) else [part])
        yes: list[Value] = []
        no: list[Value] = []
        for part in parts_of(value):
            outcomes = {self._is_instance(part, w) for w in wanted}
            outcome = True if True in outcomes else None if None in outcomes else False
            if outcome is not False:
                yes.append(self._as_instance(part, wanted) if outcome is None else part)
            if outcome is not True:
                no.append(part)
        result = True if not no else False if not yes else None
        return (join_all(yes) if yes else UNKNOWN), (join_all(no) if no else UNKNOWN), result

    def _as_instance(self: Frame, value: Value, wanted: list[Value]) -> Value:
        """What a value is once `isinstance` has said yes."""
        results: list[Value] = []
        for cls in wanted:
            if isinstance(cls, Ext) and cls.name in TENSOR_CLASSES:
                results.append(value if isinstance(value, Tensor) else Tensor("cuda", None, "", 2))
            elif isinstance(cls, Ext) and cls.name in _SEQUENCE_CLASSES:
                results.append(value if isinstance(value, Seq) else Seq(_SEQUENCE_CLASSES[cls.name], None, UNKNOWN))
            elif isinstance(cls, Ext) and cls.name in _MAPPING_CLASSES:
                results.append(value if isinstance(value, Dict) else Dict({}, UNKNOWN))
            elif isinstance(cls, Ext) and cls.name in _HOST_CLASSES:
                results.append(value if isinstance(value, (Host, Const)) else Host(cls.name.rpartition(".")[2]))
            elif isinstance(cls, Class):
                below = isinstance(value, Instance) and value.definition not in self.walker.classes.mro(cls.definition)
                results.append(value if below else self.walker.classes.any_of(cls.definition))
            else:
                return value
        return join_all(results) if results else value

    def _is_instance(self: Frame, value: Value, cls: Value) -> bool | None:
        if value is UNKNOWN or cls is UNKNOWN:
            return None
        if value is SETTINGS:
            return None
        if isinstance(cls, Class):
            if isinstance(value, Instance):
                if cls.definition in self.walker.classes.mro(value.definition):
                    return True
                # A value known by its annotation only may be of a subclass.
                return None if value.state.generic else False
            return None if isinstance(value, (Host, ExtInstance)) and kind_of(value) == "object" else False
        if not isinstance(cls, Ext):
            return None
        name = cls.name
        if isinstance(value, Tensor):
            if name == "torch.Tensor":
                return True
            return None if name.startswith("torch.") else False
        if isinstance(value, (Const, Host)):
            kind = kind_of(value)
            if value is NONE:
                return name == "types.NoneType"
            if name in _HOST_CLASSES:
                return kind in _HOST_CLASSES[name] if kind not in ("number", "object") else None
            return None if kind == "object" or name.startswith(("numbers.", "collections.abc.", "typing.")) else False
        if isinstance(value, Seq):
            if name in _SEQUENCE_CLASSES:
                return _SEQUENCE_CLASSES[name] == value.kind
            return None if "." in name and not name.startswith(("torch.", "builtins.", "numpy.")) else False
        if isinstance(value, Dict):
            return True if name in ("builtins.dict", "collections.abc.Mapping") else None
        if isinstance(value, Numpy):
            return name == "numpy.ndarray"
        if isinstance(value, Instance):
            externals = self.walker.classes.externals(value.definition)
            if name in externals:
                return True
            if name == "torch.nn.Module" and self.walker.classes.is_module(value.definition):
                return True
            if name.startswith("builtins.") and not externals:
                return False
            if name in TENSOR_CLASSES:
                return False
            return None
        if isinstance(value, ExtInstance):
            return True if value.name == name else None
        if isinstance(value, (Func, Class)):
            return None if name.startswith(("typing.", "collections.", "builtins.type")) else False
        return None

    def test(self: Frame, value: Value, node: ast.AST, form: str, owner: Any) -> None:
        """Somebody asks for the truth value of `value`: a device tensor answers only after the GPU has."""
        if not isinstance(value, (Tensor, Union)):
            return
        waits, confidence = on_device(value)
        if not waits:
            if self.region.captured:
                self.note_host_draw(value, node)
            return
        others: list[str] = []
        if isinstance(value, Union):
            others = [describe(p) for p in value.parts if p not in waits and p is not NONE]
        if self.undecided and (only_in(waits) or any(not _mentions(node, g) for g in self.undecided if g)):
            confidence = LOW  # two things that may or may not be so
        self.emit(
            TruthTest,
            node,
            confidence,
            form=form,
            raises=isinstance(owner, ast.If) and isinstance(owner.body[0], ast.Raise),
            partly=" or ".join(dict.fromkeys(others)),
            **self.reason(waits, node),
            group=(owner.lineno + self.offset, owner.col_offset),
        )

    def reason(self: Frame, waits: list[Tensor], node: ast.AST) -> dict[str, str]:
        """Why an event concerns a tensor: where it comes from, and in which cases it is one."""
        variant = only_in(waits)
        origin = self.origin_of(node)
        if variant is None:
            return {"why": origin}
        return {"why": "; ".join(t for t in (str(variant), origin) if t), "needs": variant.needs}

    def origin_of(self: Frame, node: ast.AST) -> str:
        """Where the variables of an expression come from, as text: `torch.max(p) + 1`, line 81."""
        from cgsafe.walk.frame import source_of

        for child in ast.walk(node):
            if isinstance(child, ast.Name):
                value = self.env.get(child.id)
                origin = self.origins.get(child.id)
                if origin is not None and any(isinstance(p, Tensor) for p in parts_of(value or UNKNOWN)):
                    return f"`{child.id}` is `{source_of(origin)}` (line {origin.lineno + self.offset})"
        return ""


def _because(case: str) -> Refinements:
    return [(DOUBT, Const(case))] if case else []


def _of_any(ways: list[Refinements]) -> Refinements:
    """What holds where one of several conditions is so, and it is unknown which."""
    if len(ways) < 2:
        return ways[0] if ways else []
    doubts = [doubt_in(way) for way in ways]
    return _because(doubts[0] if all(doubts) else "")


def doubt_in(refinements: Refinements) -> str:
    """The special case that one way of a condition is; "" where it is none."""
    return next((v.value for key, v in reversed(refinements) if key == DOUBT and isinstance(v, Const)), "")


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _measured(node: ast.expr) -> ast.expr | None:
    """`x` of `x.ndim`, `x.dim()`, `len(x.shape)` and `len(x.size())`."""
    if isinstance(node, ast.Attribute):
        return node.value if node.attr == "ndim" else None
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.value if function.attr == "dim" and not node.args else None
    if isinstance(function, ast.Name) and function.id == "len" and len(node.args) == 1:
        shape = node.args[0]
        if isinstance(shape, ast.Call) and not shape.args:
            shape = shape.func
        if isinstance(shape, ast.Attribute) and shape.attr in ("shape", "size"):
            return shape.value
    return None


def _of_rank(value: Value, rank: int) -> Value:
    return value.with_(rank=-rank) if isinstance(value, Tensor) else value


def describe(value: Value) -> str:
    """A value's kind in a reader's words."""
    if value is UNKNOWN:
        return "something unknown"
    if isinstance(value, (Const, Host)):
        return kind_of(value)
    if isinstance(value, Tensor):
        return "tensor on the CPU" if value.device in ("cpu", "pinned") else "tensor"
    if isinstance(value, Seq):
        return value.kind
    if isinstance(value, Dict):
        return "dict"
    if isinstance(value, Instance):
        return value.definition.name
    return "object"
