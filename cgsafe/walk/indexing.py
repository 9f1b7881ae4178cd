"""Subscripts, iteration and item assignment."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.index.trail import TRAIL
from cgsafe.values import (
    INT,
    NEVER,
    NONE,
    NUMPY,
    STR,
    UNKNOWN,
    Class,
    Const,
    Dict,
    Ext,
    ExtInstance,
    Func,
    Host,
    Instance,
    Numpy,
    Partial,
    Seq,
    Tensor,
    TextWith,
    Union,
    Value,
    join,
    join_all,
    kind_of,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.objects import object_method
from cgsafe.walk.paths import dotted_path
from cgsafe.walk.torch_calls import integral, slice_bounds

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


class Indexing:
    """Mixin of Frame."""

    def ev_subscript(self: Frame, node: ast.Subscript) -> Value:
        base = self.eval(node.value)
        key = self.eval(node.slice)
        if self.region.hot:
            self.guess_mask(base, key, node)
        return self.subscript(base, key, node)

    def subscript(self: Frame, base: Value, key: Value, node: ast.Subscript) -> Value:
        if isinstance(base, Union):
            # Who indexes by a tensor means the case of a tensor: a list takes no more than a number from it.
            lists = any(isinstance(p, Tensor) for p in base.parts) and any(isinstance(p, Tensor) for p in parts_of(key))
            parts = [p for p in base.parts if p is not NONE and not (lists and isinstance(p, Seq))]
            return join_all([self.subscript(p, key, node) for p in parts])
        if isinstance(base, Tensor):
            return self.tensor_item(base, key, node)
        if isinstance(base, Seq):
            return self._sequence_item(base, key, node)
        if isinstance(base, Dict):
            return self._dict_item(base, key)
        if isinstance(base, Host):
            if base.kind == "shape":
                return base if kind_of(key) == "slice" else INT
            return STR if base.kind == "str" else base if base.kind in ("object", "settings") else UNKNOWN
        if isinstance(base, Const):
            return STR if isinstance(base.value, str) else UNKNOWN
        if isinstance(base, Numpy):
            return NUMPY
        if isinstance(base, Instance):
            return self._instance_item(base, key, node)
        if isinstance(base, ExtInstance):
            known = object_method(self, base, "__getitem__", Arguments([key]), node)
            return known if known is not None else self.external_item(base, key)
        if isinstance(base, Func):
            from cgsafe.walk.compiled import tunes_itself

            # A kernel and its launch grid.
            return Partial(Ext("cgsafe.launch"), (base,), ()) if tunes_itself(self.walker, base.definition) else UNKNOWN
        if isinstance(base, (Ext, Class)):
            return base  # a parametrised type, or a Triton kernel's launch grid
        return UNKNOWN

    def _sequence_item(self: Frame, base: Seq, key: Value, node: ast.Subscript) -> Value:
        if any(isinstance(p, Tensor) for p in parts_of(key)):
            self.read_host(key, node.slice, "index")
        for bound in slice_bounds(node.slice):
            self.read_host(integral(self.eval(bound)), bound, "index")
        if isinstance(node.slice, ast.Slice):
            if base.items is not None:
                bounds = [self._int(b) for b in (node.slice.lower, node.slice.upper, node.slice.step)]
                if None not in bounds:
                    return Seq(base.kind, base.items[slice(*[b if b is not _OPEN else None for b in bounds])])
            return Seq(base.kind, None, base.element if base.element is not None else UNKNOWN)
        if base.items is not None and isinstance(key, Const) and isinstance(key.value, int):
            if -len(base.items) <= key.value < len(base.items):
                return base.items[key.value]
            return UNKNOWN
        return base.element if base.element is not None else UNKNOWN

    def _int(self: Frame, node: ast.expr | None) -> Any:
        if node is None:
            return _OPEN
        value = self.eval(node)
        return value.value if isinstance(value, Const) and isinstance(value.value, int) else None

    def _dict_item(self: Frame, base: Dict, key: Value) -> Value:
        if isinstance(key, Const):
            for known, value in base.items:
                if known == key.value and type(known) is type(key.value):
                    return value
            return base.other if base.other is not None else UNKNOWN
        values = [v for k, v in base.items if not isinstance(key, TextWith) or (isinstance(k, str) and key.part in k)]
        if base.other is not None:
            values.append(base.other)
        # What is looked up in a mapping that is known to be empty is not found: nothing comes of it.
        return join_all(values) if values or base.items else NEVER

    def _instance_item(self: Frame, base: Instance, key: Value, node: ast.Subscript) -> Value:
        classes = self.walker.classes
        if classes.is_namedtuple(base.definition):
            names = classes.field_names(base.definition)
            if isinstance(key, Const) and isinstance(key.value, int) and -len(names) <= key.value < len(names):
                return self.attribute(base, names[key.value], None)
            return join_all([self.attribute(base, n, None) for n in names])
        found = classes.find(base.definition, "__getitem__")
        if found is not None:
            method = classes.member(found[0], "__getitem__", found[1], base)
            if method is not None:
                return self.call_value(method, Arguments([key]), node)
        if classes.is_module(base.definition):
            return self._module_item(self.module_items(base), key, node)
        if classes.is_dataclass(base.definition):
            # A model output: `output["name"]`, or the first fields that are set by position.
            if isinstance(key, Const) and isinstance(key.value, str):
                return self.attribute(base, key.value, None)
            names = classes.field_names(base.definition)
            values = [self.attribute(base, n, None) for n in names]
            values = [join_all([p for p in parts_of(v) if p is not NONE]) for v in values if v is not NONE]
            if isinstance(key, Const) and isinstance(key.value, int) and 0 <= key.value < len(values):
                return values[key.value]
            return join_all(values) if not isinstance(node.slice, ast.Slice) else Seq("tuple", None, join_all(values))
        if isinstance(key, Const) and isinstance(key.value, str):
            return UNKNOWN
        return UNKNOWN

    def _module_item(self: Frame, items: Value, key: Value, node: ast.Subscript) -> Value:
        if isinstance(items, Dict):
            return self._dict_item(items, key)
        if isinstance(items, Seq):
            return self._sequence_item(items, key, node)
        return UNKNOWN

    def module_items(self: Frame, module: Value) -> Value:
        """The children that a container module holds."""
        if isinstance(module, ExtInstance) and isinstance(module.detail, Value):
            return module.detail
        if isinstance(module, Instance):
            TRAIL.deps.add(module.state)
            held = module.state.attributes.get("<items>")
            if held is not None:
                return held
        return UNKNOWN

    # -- iteration -------------------------------------------------------------------------------------------------

    def element_of(self: Frame, value: Value, node: Any) -> Value:
        """What iterating over a value gives each time."""
        if isinstance(value, Union):
            filled = [p for p in value.parts if p is not NONE and not (isinstance(p, Seq) and p.items == ())]
            return join_all([self.element_of(p, node) for p in filled])
        if isinstance(value, Seq):
            return value.element if value.element is not None else UNKNOWN
        if isinstance(value, Tensor):
            # The number of rows is known to the host; the rows stay on the device.
            return value.with_(rank=value.rank + 1 if value.rank is not None and value.rank < 0 else None)
        if isinstance(value, Dict):
            if value.items and value.other is None:
                return join_all([Const(k) for k, _ in value.items])
            return STR if value.items else UNKNOWN
        if isinstance(value, Host):
            if value.kind == "shape":
                return INT
            return STR if value.kind == "str" else value if value.kind in ("object", "settings") else UNKNOWN
        if isinstance(value, Const):
            return STR if isinstance(value.value, str) else UNKNOWN
        if isinstance(value, Numpy):
            return NUMPY
        if isinstance(value, Class):
            return self.walker.classes.generic(value.definition)
        if isinstance(value, Instance):
            return self._iterated(value, node)
        if isinstance(value, ExtInstance):
            if isinstance(value.detail, Dict):
                return STR
            if isinstance(value.detail, Seq):
                return value.detail.element if value.detail.element is not None else UNKNOWN
        return UNKNOWN

    def _iterated(self: Frame, value: Instance, node: Any) -> Value:
        classes = self.walker.classes
        if classes.is_namedtuple(value.definition):
            return join_all([self.attribute(value, n, None) for n in classes.field_names(value.definition)])
        found = classes.find(value.definition, "__iter__")
        if found is not None:
            method = classes.member(found[0], "__iter__", found[1], value)
            if method is not None and node is not None and hasattr(node, "lineno"):
                return self.element_of(self.call_value(method, Arguments(), node), None)
        items = self.module_items(value)
        return self.element_of(items, node) if items is not UNKNOWN else UNKNOWN

    # -- assignment to items ---------------------------------------------------------------------------------------

    def assign_item(self: Frame, target: ast.Subscript, value: Value) -> None:
        base = self.eval(target.value)
        key = self.eval(target.slice)
        self.note_item(target, base, value)
        results: list[Value] = []
        for part in parts_of(base):
            if isinstance(part, Dict):
                results.append(self._with_item(part, key, value))
            elif isinstance(part, Seq) and part.kind == "list":
                if part.items is not None and isinstance(key, Const) and isinstance(key.value, int):
                    if -len(part.items) <= key.value < len(part.items) and self.branches == 0:
                        changed = list(part.items)
                        changed[key.value] = value
                        results.append(Seq("list", tuple(changed)))
                        continue
                element = value if part.element is None else join(part.element, value)
                results.append(Seq("list", None, element))
            elif isinstance(part, Tensor):
                self.tensor_store(part, key, value, target)
                results.append(part)
            elif isinstance(part, ExtInstance) and isinstance(part.detail, Dict):
                results.append(ExtInstance(part.name, self._with_item(part.detail, key, value)))
            else:
                if isinstance(part, Numpy):
                    self.read_host(value, target, "__array__")
                elif isinstance(part, Instance):
                    self._store_in_instance(part, key, value, target)
                results.append(part)
        self.rebind(target.value, join_all(results) if results else base)

    def _with_item(self: Frame, base: Dict, key: Value, value: Value) -> Dict:
        items = base.as_dict()
        if not isinstance(key, Const):
            return Dict(items, value if base.other is None else join(base.other, value))
        known = items.get(key.value)
        items[key.value] = value if known is None or self.branches == 0 else join(known, value)
        return Dict(items, base.other)

    def _store_in_instance(self: Frame, base: Instance, key: Value, value: Value, target: ast.Subscript) -> None:
        found = self.walker.classes.find(base.definition, "__setitem__")
        if found is not None:
            method = self.walker.classes.member(found[0], "__setitem__", found[1], base)
            if method is not None:
                self.call_value(method, Arguments([key, value]), target)

    def rebind(self: Frame, node: ast.expr, value: Value) -> None:
        """A container changed in place: the variable that held it holds the new one."""
        if isinstance(node, ast.Name):
            if node.id in self.env:
                self.env[node.id] = value
                if self.shape is not None and node.id in self.shape.cells:
                    self.node.cells[node.id] = value
            return
        path = dotted_path(node)
        if path is not None:
            self.env[path] = value
            self.note_path(path)
            if isinstance(node, ast.Attribute):
                for part in parts_of(self.eval(node.value)):
                    if isinstance(part, Instance):
                        self.walker.classes.store(part, node.attr, value, self.branches == 0)


class _Open:
    pass


_OPEN = _Open()
