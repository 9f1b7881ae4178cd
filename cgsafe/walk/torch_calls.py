"""Calls into PyTorch: the tables in `cgsafe.knowledge` say what comes back, this file works it out on abstract values."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.knowledge import Condition, Entry, Spec, parse_entry
from cgsafe.values import (
    BOOL,
    DTYPE,
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
    UNKNOWN,
    Bound,
    Compiled,
    Const,
    Device,
    Dict,
    Ext,
    ExtInstance,
    ExtMethod,
    Func,
    Host,
    Instance,
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
from cgsafe.walk.expressions import elementwise
from cgsafe.walk.host_copies import HostCopies

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

_DTYPES = {"bool": "b", "int": "i", "float": "f"}
_HOST_RESULTS: dict[str, Value] = {
    "int": INT,
    "float": FLOAT,
    "bool": BOOL,
    "str": STR,
    "shape": SHAPE,
    "device": Device(""),
    "dtype": DTYPE,
    "number": NUMBER,
    "list": Seq("list", None, NUMBER),
    "tuple": Seq("tuple", None, INT),
}
_DIM_NAMES = ("dim", "axis", "dims", "keepdim")


class TorchCalls(HostCopies):
    """Mixin of Frame."""

    def call_torch(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        tables = self.tables
        if name in tables.capture_contexts:
            return self.capture_context(name, args, node)
        if name in tables.constructed:
            return ExtInstance(name)
        if name == "torch.device":
            return Device(self.device_of(args.get(0, "device", "type")) or "")
        if name in tables.op_decorators:
            return self.make_operator(args, node)
        if name in tables.graph_makers:
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
            self.note_data(args.get(0, "data"), device, HIGH, node)
            return Tensor(device, 1, "", HIGH)
        value = tables.functions.get(name)
        if value is None:
            if name in tables.modules or name in tables.containers or name in tables.losses:
                return self.make_module(name, args)
            return self._unlisted(name, args, node)
        entry = parse_entry(value)
        if name in tables.waits:
            self.note_wait(name, node)
        elif name == "torch.nn.functional.interpolate":
            self.read_sizes([v for v in (args.get(1, "size"), args.get(2, "scale_factor")) if v is not None], node)
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
            self.walker.graphed_callables[(place.path, place.line, callee, tuple(values.positional))] = (
                place,
                callee,
                values,
            )
        return callables

    def _unlisted(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        last = name.rpartition(".")[2]
        if last[:1].isupper():
            if name.startswith("torch.nn."):
                return ExtInstance(name)
            return ExtInstance(name)
        return UNKNOWN

    def _rank_of(self, value: Value | None) -> int | None:
        return value.rank if isinstance(value, Tensor) else None

    # -- evaluating an entry ---------------------------------------------------------------------------------------

    def apply(self: Frame, entry: Entry, name: str, receiver: Value | None, args: Arguments, node: Any) -> Value:
        """The result of a call that a table describes."""
        everything = args if receiver is None else args.prepend(receiver)
        if entry.read:
            self.note_read(entry, name, everything, node)
        spec = entry.returns
        for conditions, alternative in entry.when:
            if all(_holds(c, everything) for c in conditions):
                spec = alternative
                break
        return self.result(spec, name, everything, node)

    def note_read(self: Frame, entry: Entry, name: str, args: Arguments, node: Any) -> None:
        if entry.unless is not None and _holds(entry.unless, args):
            return
        if entry.only_if is not None and not _holds(entry.only_if, args):
            return
        if entry.read == "size":
            chosen = self.tables.read_arguments.get(name.rpartition(".")[2])
            counted = args.get(chosen[0], chosen[1]) if chosen is not None else self._first(args)
            for value in [counted] if counted is not None else []:
                self.read_size(value, node, name.rpartition(".")[2])
            return
        last = name.rpartition(".")[2]
        chosen = self.tables.read_arguments.get(last)
        if chosen is not None:
            self.read_host(args.get(chosen[0], chosen[1]) or NONE, node, last)
            return
        for value in args.positional or list(args.keywords.values()):
            if any(isinstance(p, Tensor) for p in parts_of(value)):
                self.read_host(value, node, last)
                return

    def result(self: Frame, spec: Spec, name: str, args: Arguments, node: Any) -> Value:
        kind = spec.kind
        handler = getattr(self, "_spec_" + kind.replace("-", "_"), None)
        if handler is not None:
            value: Value = handler(spec, args, node)
            return value
        if kind == "host":
            return _HOST_RESULTS[spec.dtype]
        if kind == "tuple":
            return Seq("tuple", tuple(self.result(p, name, args, node) for p in spec.parts))
        if kind == "list":
            return Seq("tuple", None, self.result(spec.parts[0], name, args, node))
        if kind == "context":
            return ExtInstance(name, self._first(args))
        if kind == "compile":
            return self.torch_compile(args, node)
        return UNKNOWN

    def _first(self, args: Arguments) -> Value:
        return args.positional[0] if args.positional else NONE

    def _tensor_arguments(self, args: Arguments) -> list[Tensor]:
        found: list[Tensor] = []
        for value in [*args.positional, *args.keywords.values()]:
            _collect(value, found, 2)
        if args.star is not None:
            _collect(args.star, found, 2)
        return found

    def _base(self: Frame, args: Arguments) -> Tensor:
        """The tensor that a result takes after; where none is known, one is presumed, for the call needs it."""
        given = args.keywords.get("out")
        if isinstance(given, Tensor):
            return given
        found = self._tensor_arguments(args)
        if found:
            return found[0]
        captured = self.region.captured or self.region.traced
        return Tensor("cuda", None, "", LOW) if captured else Tensor("", None, "", LOW)

    def _spec_like(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor(base.device, None, self._dtype(spec, base, args), base.confidence)

    def _spec_same(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor(base.device, base.rank, self._dtype(spec, base, args), base.confidence)

    def _spec_nd(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor(base.device, 1, self._dtype(spec, base, args), base.confidence)

    def _spec_scalar(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor(base.device, 0, self._dtype(spec, base, args), base.confidence)

    def _spec_elementwise(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        values = [p for v in args.values() for p in parts_of(v)]
        if not any(isinstance(v, Tensor) for v in values):
            return self._spec_like(spec, args, node)
        value = elementwise(values)
        return value.with_(dtype=_DTYPES[spec.dtype]) if spec.dtype in _DTYPES else value

    def _spec_reduce(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        dtype = self._dtype(spec, base, args)
        dim = args.get(spec.at)
        if isinstance(dim, Const) and isinstance(dim.value, bool):
            dim = None
        by_name = any(n in args.keywords and args.keywords[n] is not NONE for n in _DIM_NAMES)
        whole = (dim is None or dim is NONE) and not by_name and args.star is None
        return Tensor(base.device, 0 if whole else None, dtype, base.confidence)

    def _spec_reduce_pair(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        second = args.get(1, "dim", "other", "axis")
        if (second is None or second is NONE) and not any(n in args.keywords for n in _DIM_NAMES):
            return Tensor(base.device, 0, base.dtype, base.confidence)
        if isinstance(second, Tensor):
            return elementwise([p for v in args.positional[:2] for p in parts_of(v)] or [base])
        like = Tensor(base.device, None, base.dtype, base.confidence)
        return Seq("tuple", (like, like.with_(dtype="i")))

    def _dtype(self: Frame, spec: Spec, base: Tensor, args: Arguments) -> str:
        given = args.keywords.get("dtype")
        if given is not None and given is not NONE:
            return self.tables.dtype_kind(given)
        if spec.dtype in _DTYPES:
            return _DTYPES[spec.dtype]
        if spec.dtype == "num":
            return "i" if base.dtype == "b" else base.dtype
        if spec.dtype == "first":
            found = self._tensor_arguments(args)
            return found[0].dtype if found else ""
        return base.dtype

    # -- making tensors --------------------------------------------------------------------------------------------

    def device_of(self, value: Value | None) -> str | None:
        """The device type that an argument names; None where none is given, "" where it is not known."""
        if value is None or value is NONE:
            return None
        names: set[str] = set()
        for part in parts_of(value):
            if isinstance(part, Device):
                names.add(part.type)
            elif isinstance(part, Const) and isinstance(part.value, str):
                names.add(part.value.partition(":")[0])
            elif (isinstance(part, Const) and isinstance(part.value, int)) or part is INT:
                names.add("cuda")
            elif part is not NONE:
                names.add("")
        return names.pop() if len(names) == 1 else ""

    def _new_device(self: Frame, args: Arguments, fallback: str) -> tuple[str, int]:
        """(device, confidence) of a new tensor."""
        given = self.device_of(args.keywords.get("device"))
        if given is None:
            return fallback, HIGH
        if given == "":
            # Captured code puts its tensors where its inputs are.
            return ("cuda", MEDIUM) if self.region.captured else ("", LOW)
        return given, HIGH

    def _default_device(self: Frame) -> str:
        # While modules are made, a default device may be set, or the module is moved later.
        if self.region.captured or (self.shape is None and self.class_scope is None):
            return "cpu"  # as is what a module makes when it is imported
        return ""

    def _spec_factory(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        self.read_sizes(args.positional, node)
        device, confidence = self._new_device(args, self._default_device())
        given = args.keywords.get("dtype")
        if given is not None and given is not NONE:
            dtype = self.tables.dtype_kind(given)
        elif spec.dtype in _DTYPES:
            dtype = _DTYPES[spec.dtype]
        else:
            kinds = {kind_of(v) for v in args.positional if isinstance(v, (Const, Host))}
            dtype = "f" if "float" in kinds else "i" if kinds == {"int"} else ""
        rank: int | None = None
        size = args.get(0, "size")
        if isinstance(size, Seq) and size.items is not None:
            rank = -len(size.items)
        elif size is not None and kind_of(size) in ("int", "shape"):
            if kind_of(size) == "int":
                sizes = [v for v in args.positional if kind_of(v) == "int"]
                # Of `arange(0, n)` the numbers are bounds, of `zeros(2, 3)` sizes.
                rank = 1 if args.star is not None else -len(sizes) if spec.dtype == "float" else -1
        pinned = args.keywords.get("pin_memory")
        if device in ("cpu", "") and isinstance(pinned, Const) and pinned.value:
            device = "pinned"
        return Tensor(device, rank, dtype, confidence)

    def read_sizes(self: Frame, values: list[Value], node: Any, how: str = "index") -> None:
        """Sizes, bounds and fill values are Python numbers: a device tensor in their place is read."""
        written = node.args if isinstance(node, ast.Call) and len(node.args) >= len(values) else []
        for number, value in enumerate(values):
            place = written[number] if written and not isinstance(written[number], ast.Starred) else node
            for part in parts_of(value):
                if not isinstance(part, Seq):
                    self._read_size(part, place, node, how)
                    continue
                elements = place.elts if isinstance(place, (ast.Tuple, ast.List)) else []
                items = part.items if part.items is not None else (part.element or NONE,)
                for index, item in enumerate(items):
                    exact = part.items is not None and len(elements) == len(part.items)
                    self._read_size(item, elements[index] if exact else place, node, how)

    def _read_size(self: Frame, value: Value, place: ast.AST, call: ast.AST, how: str) -> None:
        if any(isinstance(p, Tensor) for p in parts_of(value)):
            self.read_host(value, place if hasattr(place, "lineno") else call, how)

    def _spec_factory_like(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        found = self._tensor_arguments(args)
        if not found:
            first = self._first(args)
            if first is UNKNOWN and args.keywords.get("device") is None:
                return self._spec_like(spec, args, node)
            return self._spec_factory(spec, args, node)
        base = found[0]
        device, confidence = self._new_device(args, base.device)
        return Tensor(device, None, self._dtype(spec, base, args), min(confidence, base.confidence))

    def _spec_factory_same(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        value = self._spec_factory_like(spec, args, node)
        found = self._tensor_arguments(args)
        if isinstance(value, Tensor) and found:
            return value.with_(rank=found[0].rank)
        return value

    def _spec_data(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        data = args.get(0, "data", "obj")
        fallback = self._default_device()
        rank: int | None = None
        dtype = ""
        confidence = HIGH
        if isinstance(data, Tensor):
            fallback, rank, dtype, confidence = data.device, data.rank, data.dtype, data.confidence
        elif isinstance(data, Seq):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("nested_tensor")):
                self.read_sizes([data], node)
            rank = 1
            dtype = {"int": "i", "float": "f", "bool": "b"}.get(kind_of(data.element) if data.element else "", "")
        elif isinstance(data, (Const, Host)):
            rank = 0
            dtype = {"int": "i", "float": "f", "bool": "b"}.get(kind_of(data), "")
        elif data is NUMPY:
            fallback = "cpu"
        device, certain = self._new_device(args, fallback)
        if device == "cpu" and fallback == "cuda" and data is not None:
            self.read_host(data, node, "to-cpu")
        self.note_data(data, device, certain, node)
        given = args.keywords.get("dtype")
        if given is not None and given is not NONE:
            dtype = self.tables.dtype_kind(given)
        return Tensor(device, rank, dtype, min(confidence, certain))

    def _spec_type_as(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        other = args.get(1, "other")
        if isinstance(other, Tensor):
            return Tensor(other.device, base.rank, other.dtype, min(base.confidence, other.confidence))
        return base

    def _spec_to(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        device: str | None = self.device_of(args.keywords.get("device"))
        dtype, confidence = base.dtype, base.confidence
        given = args.keywords.get("dtype")
        if given is not None and given is not NONE:
            dtype = self.tables.dtype_kind(given)
        other = args.keywords.get("other")
        target: Value | None = args.keywords.get("device")
        for value in [*args.positional[1:3], *([other] if other is not None else [])]:
            if isinstance(value, Tensor):
                device, dtype = value.device, value.dtype or dtype
            elif self.tables.is_dtype(value):
                dtype = self.tables.dtype_kind(value)
            elif isinstance(value, Device) or kind_of(value) == "str" or isinstance(value, Const):
                if not (isinstance(value, Const) and isinstance(value.value, bool)):
                    device, target = self.device_of(value), value
            else:
                dtype = ""
        if device is None:
            return Tensor(base.device, base.rank, dtype, confidence)
        if device == "cpu":
            asynchronous = args.get(3, "non_blocking")
            if not (isinstance(asynchronous, Const) and asynchronous.value is True):
                self.read_host(args.positional[0], node, "to-cpu")
                return Tensor("cpu", base.rank, dtype, HIGH)
            # Measured: the copy goes to pinned memory and is recorded; nobody waits.
            return Tensor("pinned", base.rank, dtype, HIGH)
        if device == "":
            device = base.device if base.device == "cuda" or target is None else ""
            if self.region.captured:
                device, confidence = "cuda", min(confidence, MEDIUM)
        self.note_move(base, device, args, node, confidence)
        return Tensor(device, base.rank, dtype, confidence)

    def _spec_cpu(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor("cpu", base.rank, base.dtype, HIGH)

    def _spec_cuda(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        self.note_move(base, "cuda", args, node)
        return Tensor("cuda", base.rank, base.dtype, HIGH)

    def _spec_pinned(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor("pinned", base.rank, base.dtype, HIGH)

    def _spec_type(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        target = args.get(1, "dtype")
        if target is None:
            return STR
        if isinstance(target, Const) and isinstance(target.value, str):
            target = Ext(target.value)
        if isinstance(target, Ext) and target.name.endswith("Tensor") and not target.name.startswith("torch.cuda."):
            self.read_host(args.positional[0], node, "to-cpu")
            return Tensor("cpu", base.rank, "", HIGH)
        return Tensor(base.device, base.rank, self.tables.dtype_kind(target), base.confidence)

    # -- host objects and functions of functions ---------------------------------------------------------------------

    def _spec_none(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return NONE

    def _spec_self(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return self._first(args) if args.positional else UNKNOWN

    def _spec_numpy(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return NUMPY

    def _spec_object(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return OBJECT

    def _spec_stream(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return ExtInstance("torch.cuda.Stream")

    def _spec_event(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return ExtInstance("torch.cuda.Event")

    def _spec_generator(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return ExtInstance("torch.Generator")

    def _spec_callable(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        if args.positional and _is_callable(args.positional[0]):
            return args.positional[0]
        return Ext("cgsafe.identity")

    _spec_disable = _spec_callable

    def _spec_wraps(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return UNKNOWN

    def _spec_call_first(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        if not args.positional:
            return UNKNOWN
        keywords = {k: v for k, v in args.keywords.items() if k not in self.tables.checkpoint_options}
        rest = Arguments(args.positional[1:], keywords, args.star, args.rest)
        return self.call_value(args.positional[0], rest, node)

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
            value = self.tables.methods.get(name)
            if value is None:
                return UNKNOWN
            if name in self.tables.sized_methods:
                self.read_sizes(args.positional, node)
                if name in ("view", "reshape") and args.star is None:
                    sizes = args.positional
                    first = sizes[0] if sizes else NONE
                    if isinstance(first, Seq) and first.items is not None:
                        return receiver.with_(rank=-len(first.items))
                    if sizes and all(kind_of(v) == "int" for v in sizes):
                        return receiver.with_(rank=-len(sizes))
            elif name == "copy_" and receiver.device == "cuda" and args.positional:
                self.note_move(args.positional[0], "cuda", args.prepend(receiver), node, receiver.confidence)
            elif name == "new_tensor" and args.positional:
                self.note_data(args.positional[0], receiver.device, receiver.confidence, node)
            elif name in ("masked_fill", "masked_fill_", "index_fill", "index_fill_") and len(args.positional) > 1:
                for part in parts_of(args.positional[-1]):
                    if isinstance(part, Tensor) and part.rank == 0:
                        self.read_host(part, node, name)
            elif name in ("index_put_", "index_put") and len(args.positional) > 1:
                self._index_put(args, node)
            elif name == "copy_" and receiver.device in ("cpu", "pinned"):
                asynchronous = args.get(1, "non_blocking")
                if receiver.device == "cpu" or not (isinstance(asynchronous, Const) and asynchronous.value is True):
                    self.read_host(args.positional[0] if args.positional else NONE, node, "copy")
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
        value = self.tables.attributes.get(name)
        if value is not None:
            return self.result(parse_entry(value).returns, name, Arguments([base]), node)
        return ExtMethod(base, name)

    def tensor_item(self: Frame, base: Tensor, key: Value, node: ast.Subscript) -> Value:
        """`tensor[key]`."""
        for bound in slice_bounds(node.slice):
            self.read_host(self.eval(bound), bound, "index")
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
            self.read_host(self.eval(bound), bound, "index")
        if base.device == "cuda":
            self.note_store(base, key, value, target)

    def _index_put(self: Frame, args: Arguments, node: Any) -> None:
        """`x.index_put_((mask,), values)`: a mask with values on the device is counted first."""
        keys = args.positional[0]
        element = keys.element if isinstance(keys, Seq) else None
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
        return ExtInstance(name)

    def call_external_instance(self: Frame, callee: ExtInstance, args: Arguments, node: Any) -> Value:
        """Calling an object whose class is outside the checked code: a layer of torch.nn, mostly."""
        name = callee.name
        if self.tables.container_kind(name) == "sequential":
            return self.call_sequence(self.module_items(callee), args, node)
        value = self.tables.modules.get(name) or self.tables.losses.get(name)
        if value is not None:
            spec = parse_entry(value).returns
            result = self.result(spec, name, args, node)
            if isinstance(result, Tensor) and not result.device:
                return result.with_(device="cuda")
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
        return ExtMethod(base, name)

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


def _collect(value: Value, found: list[Tensor], depth: int) -> None:
    for part in parts_of(value):
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, Seq) and depth:
            for item in part.items or ((part.element,) if part.element is not None else ()):
                _collect(item, found, depth - 1)


def _holds(condition: Condition, args: Arguments) -> bool:
    value = args.get(condition.at, condition.name)
    if condition.value:
        return isinstance(value, Const) and str(value.value) == condition.value
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


def slice_bounds(node: ast.expr) -> list[ast.expr]:
    found: list[ast.expr] = []
    for part in node.elts if isinstance(node, ast.Tuple) else [node]:
        if isinstance(part, ast.Slice):
            found.extend(b for b in (part.lower, part.upper, part.step) if b is not None)
    return found


def _is_callable(value: Value) -> bool:
    return isinstance(value, (Func, Bound, Compiled, Partial, Ext, ExtMethod, Instance))
