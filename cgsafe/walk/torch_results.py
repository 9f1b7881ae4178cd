"""What calls into PyTorch return: a handler for each kind of result that the tables in `cgsafe.knowledge` name."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import MAKING
from cgsafe.knowledge import Spec
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
    kind_of,
    parts_of,
)
from cgsafe.walk.arguments import Arguments
from cgsafe.walk.objects import make_object
from cgsafe.walk.operators import elementwise

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
_RANKS = {"scalar": 0, "vector": -1, "matrix": -2}
_DIM_NAMES = ("dim", "axis", "dims", "keepdim")


class TorchResults:
    """Mixin of Frame: works out results, one `_spec_*` method for each kind."""

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
        if kind == "instance":
            return make_object(name, args)
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

    def _spec_kept(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor(base.device, base.rank or 1, self._dtype(spec, base, args), base.confidence)

    def _spec_scalar(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        return Tensor(base.device, _RANKS[spec.kind], self._dtype(spec, base, args), base.confidence)

    _spec_vector = _spec_matrix = _spec_scalar

    def _spec_elementwise(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        values = [p for v in args.values() for p in parts_of(v)]
        if not any(isinstance(v, Tensor) for v in values):
            return self._spec_like(spec, args, node)
        if self.region.explicit and len(values) == 2 and isinstance(node, ast.Call) and args.star is None:
            self.note_operands(values[0], values[1], node)
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
        if self.default_device:
            return self.default_device
        # While modules are made, a default device may be set, or the module is moved later.
        if self.region.captured or self.region is MAKING or (self.shape is None and self.class_scope is None):
            return "cpu"  # as is what a module makes when it is imported
        return ""

    def _spec_factory(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        self.read_sizes(args.positional, node)
        if isinstance(node, ast.Call):
            named = [
                (args.keywords[k.arg], k.value) for k in node.keywords if k.arg in args.keywords and k.arg != "out"
            ]
            self.read_sizes([value for value, _ in named], node, places=[place for _, place in named])
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
        if device in ("cpu", "") and _pins(args):
            device = "pinned"
        return Tensor(device, rank, dtype, confidence)

    def read_sizes(
        self: Frame, values: list[Value], node: Any, how: str = "index", places: list[Any] | None = None
    ) -> None:
        """Sizes, bounds and fill values are Python numbers: a device tensor in their place is read."""
        written = node.args if isinstance(node, ast.Call) and len(node.args) >= len(values) else []
        written = places if places is not None else written
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
            # Where a call takes several lines, a traceback names the first.
            elsewhere = getattr(place, "lineno", 0) != call.lineno  # type: ignore[attr-defined]
            self.read_host(value, call if elsewhere else place, how, place if hasattr(place, "lineno") else call)

    def _spec_factory_like(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        found = self._tensor_arguments(args)
        if not found:
            first = self._first(args)
            if args.keywords.get("device") is None and any(
                p is UNKNOWN or isinstance(p, (ExtInstance, Host, Instance)) for p in parts_of(first)
            ):
                return self._spec_like(spec, args, node)
            return self._spec_factory(spec, args, node)
        base = found[0]
        device, confidence = self._new_device(args, base.device)
        if device in ("cpu", "") and _pins(args):
            device = "pinned"
        return Tensor(device, None, self._dtype(spec, base, args), min(confidence, base.confidence))

    def _spec_factory_same(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        value = self._spec_factory_like(spec, args, node)
        found = self._tensor_arguments(args)
        if isinstance(value, Tensor) and found:
            return value.with_(rank=found[0].rank)
        return value

    def _spec_factory_scalar(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        value = self._spec_factory(spec, args, node)
        return value.with_(rank=0) if isinstance(value, Tensor) else value

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
        if data is UNKNOWN and _is_called(node, "tensor"):
            self.note_data(OBJECT, device, MEDIUM, node)  # hardly a tensor: PyTorch warns of that
        if device == "cpu" and fallback == "cuda" and data is not None:
            self.read_host(data, node, "to-cpu")
        self.note_data(data, device, certain, node)
        given = args.keywords.get("dtype")
        if given is not None and given is not NONE:
            dtype = self.tables.dtype_kind(given)
        if device in ("cpu", "") and _pins(args):
            device = "pinned"
        return Tensor(device, rank, dtype, min(confidence, certain))

    def _spec_type_as(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        other = args.get(1, "other")
        if isinstance(other, Tensor):
            if other.device == "cpu":
                self.read_host(base, node, "to-cpu")
            self.note_move(base, other.device, Arguments(), node, min(base.confidence, other.confidence))
            return Tensor(other.device, base.rank, other.dtype, min(base.confidence, other.confidence))
        return base

    def _spec_to(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        base = self._base(args)
        device: str | None = self.device_of(args.keywords.get("device"))
        dtype, confidence, doubt = base.dtype, base.confidence, MEDIUM
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
            elif isinstance(value, Union) and any(isinstance(p, Device) or kind_of(p) == "str" for p in value.parts):
                device, target = self.device_of(value), value
                if any(self.device_of(p) == "cpu" for p in value.parts):
                    doubt = LOW  # perhaps it stays on the host
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
                device, confidence = "cuda", min(confidence, doubt)
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
        if isinstance(target, Ext) and target.name.startswith("torch.cuda."):
            self.note_move(base, "cuda", Arguments(), node, base.confidence)
            return Tensor("cuda", base.rank, "", base.confidence)
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

    def _spec_storage(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return ExtInstance("torch.UntypedStorage") if self._base(args).device == "cuda" else OBJECT

    def _spec_generator(self: Frame, spec: Spec, args: Arguments, node: Any) -> Value:
        return ExtInstance("torch.Generator", self.device_of(args.get(0, "device")) or "")

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


def _collect(value: Value, found: list[Tensor], depth: int) -> None:
    for part in parts_of(value):
        if isinstance(part, Tensor):
            found.append(part)
        elif isinstance(part, Seq) and depth:
            for item in part.items or ((part.element,) if part.element is not None else ()):
                _collect(item, found, depth - 1)


def _is_called(node: Any, name: str) -> bool:
    """True for a call of something by that bare name, or as the last part of a dotted one."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", None) == name or getattr(function, "id", None) == name


def _is_callable(value: Value) -> bool:
    return isinstance(value, (Func, Bound, Compiled, Partial, Ext, ExtMethod, Instance))


def _pins(args: Arguments) -> bool:
    """A factory is asked for pinned memory, or for what the machine can do (`is_available()`): with a GPU it can."""
    pinned = args.keywords.get("pin_memory")
    return pinned is not None and not (isinstance(pinned, Const) and not pinned.value)
