"""Calls into PyTorch: the tables in `cgsafe.knowledge` say what comes back, this file works it out on abstract values."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.index.trail import TRAIL
from cgsafe.knowledge import Condition, Entry, parse_entry
from cgsafe.values import (
    BOOL,
    HIGH,
    INT,
    LOW,
    MEDIUM,
    NONE,
    UNKNOWN,
    Const,
    Device,
    Dict,
    Ext,
    ExtInstance,
    ExtMethod,
    Partial,
    Seq,
    Tensor,
    Union,
    Value,
    join_all,
    kind_of,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.entry import value_of_kind
from cgsafe.walk.host_copies import HostCopies
from cgsafe.walk.objects import made_with, make_object
from cgsafe.walk.torch_results import TorchResults

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


class TorchCalls(TorchResults, HostCopies):
    """Mixin of Frame."""

    def call_torch(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        tables = self.tables
        if self.region.captured and "generator" in args.keywords:
            self.note_generator(args, node)
        if name in tables.capture_contexts:
            return self.capture_context(name, args, node)
        if name in tables.constructed:
            return ExtInstance(name)
        if name.endswith(".set_stream"):
            self.enter_stream(args.get(0, "stream"), node, "set")
            return NONE
        if name == "torch.cuda.stream":
            return ExtInstance(name, args.get(0, "stream") or "")
        if tables.functions.get(name) in ("stream", "event"):
            return self.make_stream(name, args, node)
        if name == "torch.device":
            return Device(self.device_of(args.get(0, "device", "type")) or "")
        if name in tables.op_decorators:
            return self.make_operator(args, node)
        if name in tables.graph_makers:
            self.note_wait(name, node, "captures graphs of its own")
            return self.make_graphed_callables(args, node)
        if name.startswith("torch.Tensor.") and args.positional:
            return self.call_method(args.positional[0], name[13:], args.drop_first(), node)
        if name.startswith("torch.ops."):
            return self.call_operator(name, args, node)
        if name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.nn.Buffer"):
            return Tensor("cuda", self._rank_of(args.get(0, "data")), "f" if "Param" in name else "", HIGH)
        last = name.rpartition(".")[2]
        if last.endswith("Tensor") and last != "Tensor":  # torch.LongTensor([1, 2]), torch.cuda.FloatTensor(...)
            device = "cuda" if name.startswith("torch.cuda.") else "cpu"
            data = args.get(0, "data")
            if kind_of(data or NONE) != "int":  # a size
                self.note_data(data, device, HIGH, node)
            return Tensor(device, 1, "", HIGH)
        value = tables.functions.get(name)
        if value is None:
            if name in tables.modules or name in tables.containers or name in tables.losses:
                return self.make_module(name, args)
            return self._unlisted(name, args, node)
        entry = parse_entry(value)
        if name in tables.waits:
            self.note_wait(name, node)
        elif name in tables.filling_functions:
            self.read_fill(name.rpartition(".")[2], args, node)
        elif name == "torch.nn.functional.interpolate":
            for at, named in ((1, "size"), (2, "scale_factor")):
                size = args.get(at, named)
                if size is not None:
                    self.read_sizes([size], node, places=[_argument(node, at, named)])
        elif name == "torch._foreach_copy_" and len(args.positional) > 1:
            to, source = (self.element_of(value, node) for value in args.positional[:2])
            if isinstance(to, Tensor):
                self.note_move(source, to.device, args.drop_first(), node, to.confidence)
        elif name == "torch.where" and len(args.positional) > 1:
            found = [p for v in args.positional for p in parts_of(v) if isinstance(p, Tensor)]
            if any(p.device == "cuda" for p in found):
                for part in (p for p in found if p.rank == 0):
                    self.note_move(part, "cuda", Arguments([part]), node, MEDIUM if part.confidence < HIGH else HIGH)
        first = args.positional[0] if args.positional else NONE
        if isinstance(first, Union) and len({p.device for p in first.parts if isinstance(p, Tensor)}) > 1:
            # It may be on either device: each case on its own.
            rest = args.positional[1:]
            cases = [p for p in first.parts if p is not NONE]
            return join_all(
                [
                    self.apply(entry, name, None, Arguments([p, *rest], args.keywords, args.star, args.rest), node)
                    for p in cases
                ]
            )
        return self.apply(entry, name, None, args, node)

    def make_operator(self: Frame, args: Arguments, node: Any) -> Value:
        """`torch.library.custom_op(name, function)`, or as a decorator: a function that a compile cannot look into."""
        name, function = args.get(0, "name"), args.get(1, "fn")
        if not isinstance(name, Const):
            return Ext("cgsafe.identity")
        if function is None or function is NONE:
            return Partial(Ext("cgsafe.make-operator"), (name,), ())
        return Partial(Ext("cgsafe.operator"), (name, function), ())

    def make_graphed_callables(self: Frame, args: Arguments, node: Any) -> Value:
        """Each callable is recorded on its sample arguments, and comes back as something that replays."""
        callables, samples = args.get(0, "callables"), args.get(1, "sample_args")
        if callables is None:
            return UNKNOWN
        self.note_inside("make", node)
        several = isinstance(callables, Seq)
        given = list(callables.items or [callables.element or UNKNOWN]) if isinstance(callables, Seq) else [callables]
        for number, callee in enumerate(given):
            sample: Value | None = samples
            if several and isinstance(samples, Seq):
                known = samples.items
                sample = known[number] if known is not None and number < len(known) else samples.element
            values = Arguments(star=UNKNOWN)
            if isinstance(sample, Seq) and sample.items is not None:
                values = Arguments(list(sample.items))
            elif sample is not None:
                values = Arguments(star=self.element_of(sample, node))
            place = self.place(node)
            TRAIL.deps.add(("start", "callable", (place.path, place.line, callee, tuple(values.positional))))
            self.walker.graphed_callables[(place.path, place.line, callee, tuple(values.positional))] = (
                place,
                callee,
                values,
            )
        return callables

    def _unlisted(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        last = name.rpartition(".")[2]
        if last[:1].isupper():
            known = self.tables.object_classes
            return make_object(name, args) if name in known or name[: -len(last) - 1] in known else ExtInstance(name)
        return UNKNOWN

    def _rank_of(self, value: Value | None) -> int | None:
        return value.rank if isinstance(value, Tensor) else None

    # -- evaluating an entry ---------------------------------------------------------------------------------------

    def apply(self: Frame, entry: Entry, name: str, receiver: Value | None, args: Arguments, node: Any) -> Value:
        """The result of a call that a table describes."""
        everything = args if receiver is None else args.prepend(receiver)
        if (entry.read or entry.fails) and self.concerns(entry, everything):
            if entry.read:
                self.note_read(entry, name, everything, node)
            else:
                tensors = self._tensor_arguments(everything)
                if not tensors or any(t.device == "cuda" and t.confidence >= MEDIUM for t in tensors):
                    self.note_wait(name, node, entry.fails)
        sized = receiver is not None and name in self.tables.sized_methods  # what is passed by position was looked at
        # `self.norm(x)` of what is a tensor by guess only is a module's, most likely.
        guessed = isinstance(receiver, Tensor) and receiver.confidence == LOW
        for at, by in self.tables.number_arguments.get(name.rpartition(".")[2], ()) if not guessed else ():
            number = everything.get(-1 if sized else at, by)
            if number is not None:
                self.read_numbers(number, node, name.rpartition(".")[2])
        spec = entry.returns
        for conditions, alternative in entry.when:
            if all(_holds(c, everything) for c in conditions):
                spec = alternative
                break
        return self.result(spec, name, everything, node)

    def concerns(self, entry: Entry, args: Arguments) -> bool:
        """What an entry says of reading and failing holds for these arguments."""
        if any(all(_holds(c, args) for c in together) for together in entry.unless):
            return False
        return not entry.only_if or any(all(_holds(c, args) for c in together) for together in entry.only_if)

    def read_numbers(self: Frame, value: Value, node: Any, how: str) -> None:
        """A Python number is wanted, or several: a tensor in its place is read."""
        for part in parts_of(value):
            for item in (part.items or ()) if isinstance(part, Seq) else (part,):
                if any(isinstance(p, Tensor) for p in parts_of(item)):
                    self.read_host(item, node, how)

    def note_read(self: Frame, entry: Entry, name: str, args: Arguments, node: Any) -> None:
        if entry.read == "size":
            chosen = self.tables.read_arguments.get(name.rpartition(".")[2])
            counted = args.get(chosen[0], chosen[1]) if chosen is not None else self._first(args)
            if counted is None:
                counted = self._first(args)
            for value in [counted]:
                self.read_size(value, node, name.rpartition(".")[2])
            return
        last = name.rpartition(".")[2]
        chosen = self.tables.read_arguments.get(last)
        if chosen is not None:
            self.read_host(args.get(chosen[0], chosen[1]) or NONE, node, last)
            return
        for value in [*args.positional, *args.keywords.values()]:
            found = value.element if isinstance(value, Seq) and value.element is not None else value
            if any(isinstance(p, Tensor) for p in parts_of(found)):
                self.read_host(found, node, last)
                return

    def torch_compile(self: Frame, args: Arguments, node: Any) -> Value:
        from cgsafe.walk.compiled import compile_call

        return compile_call(self, args, node)

    def call_operator(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        """`torch.ops.namespace.name(...)`."""
        parts = name.split(".")
        if len(parts) >= 4 and parts[2] == "aten":
            value = self.tables.functions.get(f"torch.{parts[3]}")
            if value is not None:
                return self.apply(parse_entry(value), f"torch.{parts[3]}", None, args, node)
        if len(parts) >= 4:
            from cgsafe.walk.compiled import call_custom_op

            return call_custom_op(self, parts[2], parts[3], args, node)
        return UNKNOWN

    # -- methods ---------------------------------------------------------------------------------------------------

    def call_method(self: Frame, receiver: Value, name: str, args: Arguments, node: Any) -> Value:
        """A method, by name, of a value that is no object of the checked code."""
        if isinstance(receiver, Tensor):
            tables = self.tables
            if self.region.captured and "generator" in args.keywords:
                self.note_generator(args, node)
            value = tables.methods.get(name)
            if self.region.captured and name in tables.frozen_methods:
                self.note_frozen_method(receiver, name, node)
            if value is None:
                return UNKNOWN
            if name in tables.sized_methods:
                self.read_sizes([integral(v) for v in args.positional], node)
                if name in ("view", "reshape") and args.star is None:
                    sizes = args.positional
                    first = sizes[0] if sizes else NONE
                    if isinstance(first, Seq) and first.items is not None:
                        return receiver.with_(rank=-len(first.items))
                    if sizes and all(kind_of(v) == "int" for v in sizes):
                        return receiver.with_(rank=-len(sizes))
            elif name == "copy_" and args.positional and _beside(receiver, args.positional[0]):
                pass  # on either device both: most likely on the same
            elif name == "copy_" and receiver.device == "cuda" and args.positional:
                self.note_move(args.positional[0], "cuda", args.prepend(receiver), node, receiver.confidence)
                self.note_ring(node, args.positional[0])
            elif name in ("new", "new_tensor") and args.positional:
                data = args.positional[0]
                if name == "new_tensor" or isinstance(data, Seq):
                    self.note_data(data, receiver.device, receiver.confidence, node)
                if receiver.device == "cpu":
                    self.read_host(data, node, "to-cpu")
            elif name in tables.filling_methods:
                self.read_fill(name, args.prepend(receiver), node)
            elif name == "dim" or (name == "size" and args.get(0, "dim") is None):
                return self.tensor_attribute(receiver, "ndim" if name == "dim" else "shape", node)
            elif name in ("index_put_", "index_put") and len(args.positional) > 1:
                self._index_put(receiver, args, node)
            elif name == "copy_" and receiver.device in ("cpu", "pinned"):
                self.note_ring(node, None)
                asynchronous = args.get(1, "non_blocking")
                unblocked = isinstance(asynchronous, Const) and asynchronous.value is True
                if receiver.device == "cpu" or not unblocked:
                    source = args.positional[0] if args.positional else NONE
                    if unblocked and (receiver.confidence < HIGH or self._host_by_name(node)):
                        # Of a buffer that is on the host by its name, whoever does not block most likely has pinned it.
                        source = join_all(
                            [p.with_(confidence=LOW) if isinstance(p, Tensor) else p for p in parts_of(source)]
                        )
                    self.read_host(source, node, "copy")
            if receiver.device == "pinned" and name in self.tables.conversions:
                receiver = receiver.with_(device="cpu")
            return self.apply(parse_entry(value), name, receiver, args, node)
        from cgsafe.walk.library_calls import call_host_method

        return call_host_method(self, receiver, name, args, node)

    def tensor_attribute(self: Frame, base: Tensor, name: str, node: ast.AST | None) -> Value:
        if name == "device":
            return Device(base.device if base.confidence >= MEDIUM or base.device == "cpu" else "")
        if name in ("is_cuda", "is_cpu"):
            wanted = "cuda" if name == "is_cuda" else "cpu"
            if base.device in ("cuda", "cpu") and base.confidence >= MEDIUM:
                return Const(base.device == wanted)
            return BOOL
        if base.rank is not None and base.rank <= 0:
            if name == "ndim":
                return Const(-base.rank)
            if name == "shape":
                return Seq("tuple", (INT,) * -base.rank)
        value = self.tables.attributes.get(name)
        if value is not None:
            return self.result(parse_entry(value).returns, name, Arguments([base]), node)
        return ExtMethod(base, name)

    def tensor_item(self: Frame, base: Tensor, key: Value, node: ast.Subscript) -> Value:
        """`tensor[key]`."""
        for bound in slice_bounds(node.slice):
            self.read_host(integral(self.eval(bound)), bound, "index")
        if base.device == "cuda":
            self.note_index(base, node)
        rank: int | None = None
        if base.rank is not None and base.rank < 0:
            exact = _rank_under(base.rank, node.slice, self)
            if exact is not None:
                return base.with_(rank=exact)
        if isinstance(node.slice, ast.Slice) or key is NONE or (isinstance(key, Const) and key.value is Ellipsis):
            rank = 1
        elif isinstance(node.slice, ast.Tuple) and any(
            isinstance(e, ast.Slice) or (isinstance(e, ast.Constant) and e.value in (None, Ellipsis))
            for e in node.slice.elts
        ):
            rank = None if any(isinstance(e, ast.Constant) and e.value is Ellipsis for e in node.slice.elts) else 1
        elif isinstance(key, (Tensor, Seq)) and not isinstance(node.slice, ast.Tuple):
            rank = None if isinstance(key, Tensor) and not key.rank else 1
        return base.with_(rank=rank)

    def tensor_store(self: Frame, base: Tensor, key: Value, value: Value, target: ast.Subscript) -> None:
        for bound in slice_bounds(target.slice):
            self.read_host(integral(self.eval(bound)), bound, "index")
        if base.device == "cuda":
            self.note_store(base, key, value, target)
        elif base.device in ("cpu", "pinned") and base.confidence == HIGH:
            self.read_host(value, target, "copy")

    def read_fill(self: Frame, name: str, args: Arguments, node: Any) -> None:
        """`masked_fill(x, mask, value)` and its like: a 0-dim tensor as the value is read on the host."""
        value = args.get(len(args.positional) - 1 if "value" not in args.keywords else -1, "value")
        if value is None or len(args.positional) + ("value" in args.keywords) < 3:
            return
        for part in parts_of(value):
            if isinstance(part, Tensor) and part.rank == 0:
                self.read_host(part, node, name)

    def _host_by_name(self: Frame, node: Any) -> bool:
        """True for a method of a parameter, or of a part of it, whose name alone says that it is on the host."""
        holder = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        if not isinstance(holder, ast.Name) or self.shape is None:
            return False
        return holder.id in (*self.shape.params, *self.shape.kwonly) and self.tables.names_host(holder.id)

    def _index_put(self: Frame, base: Tensor, args: Arguments, node: Any) -> None:
        """`x.index_put_((mask,), values)`: a mask with values on the device is counted first."""
        keys = args.positional[0]
        element = keys.element if isinstance(keys, Seq) else None
        if base.device == "cuda":
            for value in (element, args.positional[1]):
                for part in parts_of(value) if value is not None else ():
                    if isinstance(part, Tensor):
                        self.note_move(part, "cuda", Arguments(), node, min(base.confidence, part.confidence))
        if isinstance(element, Tensor) and element.dtype == "b" and isinstance(args.positional[1], Tensor):
            self.read_size(element, node, "mask")

    # -- modules of torch.nn ---------------------------------------------------------------------------------------

    def make_module(self: Frame, name: str, args: Arguments) -> Value:
        kind = self.tables.container_kind(name)
        if kind == "sequential":
            if len(args.positional) == 1 and isinstance(args.positional[0], Dict):
                return ExtInstance(name, Seq("list", tuple(v for _, v in args.positional[0].items)))
            if args.star is not None:
                return ExtInstance(name, Seq("list", None, join_all([*args.positional, args.star])))
            return ExtInstance(name, Seq("list", tuple(args.positional)))
        if kind == "list":
            first = self._first(args)
            if isinstance(first, Seq):
                return ExtInstance(name, Seq("list", first.items, first.element))
            return ExtInstance(name, Seq("list", () if first is NONE else None, None if first is NONE else UNKNOWN))
        if kind == "dict":
            first = self._first(args)
            return ExtInstance(name, first if isinstance(first, Dict) else Dict({}, None if first is NONE else UNKNOWN))
        return make_object(name, args) if isinstance(self.tables.modules.get(name), dict) else ExtInstance(name)

    def call_external_instance(self: Frame, callee: ExtInstance, args: Arguments, node: Any) -> Value:
        """Calling an object whose class is outside the checked code: a layer of torch.nn, mostly."""
        name = callee.name
        if self.tables.container_kind(name) == "sequential":
            return self.call_sequence(self.module_items(callee), args, node)
        value = self.tables.modules.get(name) or self.tables.losses.get(name)
        if value is not None:
            entry = parse_entry(value)
            if (entry.read or entry.fails) and self.concerns(entry, made_with(callee)):
                if entry.fails:
                    self.note_wait(name, node, entry.fails)
                elif args.positional:
                    self.read_host(args.positional[0], node, name.rpartition(".")[2])
            result = self.result(entry.returns, name, args, node)
            if isinstance(result, Tensor) and not result.device:
                result = result.with_(device="cuda")
            if isinstance(result, Tensor) and name in self.tables.weighted and self.region.captured:
                return result.with_(confidence=max(result.confidence, MEDIUM)) if result.device == "cuda" else result
            return result
        if name == "torch.nn.Module":
            return Tensor("cuda", None, "", MEDIUM) if self._tensor_arguments(args) else UNKNOWN
        if self.tables.functions.get(name) == "context":
            return args.positional[0] if args.positional else UNKNOWN  # a context used as a decorator
        if name.startswith("torch.nn."):
            return Tensor("cuda", None, "", LOW)
        return UNKNOWN

    def external_instance_attribute(self: Frame, base: ExtInstance, name: str) -> Value:
        if base.name.startswith("torch.nn."):
            known = self.tables.module_attribute(name)
            if known == "tensor":
                return Tensor("cuda", None, "f", HIGH)
            if known == "bool":
                return BOOL
            if isinstance(base.detail, Dict) and known != "method":
                for key, value in base.detail.items:
                    if key == name:
                        return value
        kind = self.tables.field_kind((base.name.rpartition(".")[2],), name)
        return ExtMethod(base, name) if kind is None else value_of_kind(kind)

    def external_item(self: Frame, base: ExtInstance, key: Value) -> Value:
        detail = base.detail
        if isinstance(detail, Seq):
            if detail.items is not None and isinstance(key, Const) and isinstance(key.value, int):
                if -len(detail.items) <= key.value < len(detail.items):
                    return detail.items[key.value]
            if kind_of(key) == "slice":
                return Seq("list", None, detail.element)
            return detail.element if detail.element is not None else UNKNOWN
        if isinstance(detail, Dict):
            return self._dict_item(detail, key)
        return UNKNOWN


def _holds(condition: Condition, args: Arguments) -> bool:
    value = args.get(condition.at, condition.name)
    if condition.value:
        if isinstance(value, Device):
            return value.type == condition.value
        text = value.name if isinstance(value, Ext) else str(value.value) if isinstance(value, Const) else ""
        return text == condition.value or text.partition(":")[0] == condition.value
    given = value is not None and value is not NONE and not (isinstance(value, Const) and value.value is False)
    return given is not condition.absent


def _rank_under(rank: int, index: ast.expr, frame: Frame) -> int | None:
    """The exact rank of an item of a tensor of exactly `-rank` dimensions; None where the index does not tell."""
    for part in index.elts if isinstance(index, ast.Tuple) else [index]:
        if isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and part.value is Ellipsis):
            continue
        if isinstance(part, ast.Constant) and part.value is None:
            rank -= 1
        elif kind_of(frame.eval(part)) == "int":
            rank += 1
        else:
            return None
    return min(rank, 0)


def _argument(call: Any, position: int, name: str) -> Any:
    """Where an argument is written, at its position or under its name; the call where that cannot be seen."""
    if not isinstance(call, ast.Call):
        return call
    named = next((k.value for k in call.keywords if k.arg == name), call)
    return call.args[position] if len(call.args) > position else named


def integral(value: Value) -> Value:
    """A value where PyTorch takes integers only: of a floating-point tensor that is an error in any code, not a wait."""
    if not any(isinstance(p, Tensor) and p.dtype == "f" for p in parts_of(value)):
        return value
    return join_all(
        [p.with_(confidence=LOW) if isinstance(p, Tensor) and p.dtype == "f" else p for p in parts_of(value)]
    )


def slice_bounds(node: ast.expr) -> list[ast.expr]:
    found: list[ast.expr] = []
    for part in node.elts if isinstance(node, ast.Tuple) else [node]:
        if isinstance(part, ast.Slice):
            found.extend(b for b in (part.lower, part.upper, part.step) if b is not None)
    return found


def _beside(receiver: Tensor, source: Value) -> bool:
    """True where the source of a copy may be on several devices, and one of them is that of the receiver."""
    devices = {p.device for p in parts_of(source) if isinstance(p, Tensor)}
    return len(devices) > 1 and receiver.device in devices
