"""The abstract values that the walk computes with.

Values are immutable and interned: equal values are the same object, so that a function's summary can be looked up by
its arguments at the cost of hashing a few identities. `label` is a text that orders values the same way in every run.

The file is long because containers join what they hold and joins make containers: a split would import in a circle.
"""

from __future__ import annotations

from typing import Any, NamedTuple

HIGH, MEDIUM, LOW = 3, 2, 1
MAX_DEPTH = 6  # nesting of containers; what lies deeper is unknown
MAX_PARTS = 8  # members of a union; more are unknown
MAX_FUNCTIONS = 40  # members of a union of functions: a registry of implementations
MAX_ITEMS = 24  # known items of a sequence or dict; longer ones keep only their element
MAX_ARGUMENTS = 64  # the same, of a tuple: what a call passes on as `*args`


class Value:
    """Base of all values; compared by identity."""

    __slots__ = ("_label", "depth")
    depth: int
    _label: str | None

    @property
    def label(self) -> str:
        if self._label is None:
            self._label = self._describe()
        return self._label

    def _describe(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return self.label


_interned: dict[tuple[Any, ...], Any] = {}


def _make(cls: type, key: tuple[Any, ...], depth: int = 0) -> Any:
    value: Any = object.__new__(cls)
    value._label = None
    value.depth = depth
    for name, part in zip(cls.__slots__, key[1:], strict=False):  # type: ignore[attr-defined]
        setattr(value, name, part)
    _interned[key] = value
    return value


class Unknown(Value):
    """Nothing is known."""

    __slots__ = ()

    def __new__(cls) -> Unknown:
        return _interned.get((cls,)) or _make(cls, (cls,))


class Const(Value):
    """A Python constant: None, a bool, a number, a string, bytes or an ellipsis."""

    __slots__ = ("value",)
    value: Any

    def __new__(cls, value: Any) -> Const:
        key = (cls, value, value.__class__)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return repr(self.value)


class Host(Value):
    """A value on the host of which only the type matters: int, float, bool, str, number, shape, dtype, object, ..."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, kind: str) -> Host:
        key = (cls, kind)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return self.kind


class Answer(Host):
    """A bool that is known to be true, or false, in special cases only: `yes` and `no` tell in which ones.

    An empty text: in any case. None: never.
    """

    __slots__ = ("no", "yes")
    no: str | None
    yes: str | None

    def __new__(cls, yes: str | None, no: str | None) -> Any:
        if not yes and not no:
            return BOOL if yes == no else TRUE if no is None else FALSE
        key = (cls, no, yes)
        found = _interned.get(key) or _make(cls, key)
        found.kind = "bool"
        return found

    def _describe(self) -> str:
        cases = [f"{answer} {case}" for answer, case in (("true", self.yes), ("false", self.no)) if case]
        return f"bool, {', '.join(cases)}"


class TextWith(Value):
    """A string of which it is known that it contains another one."""

    __slots__ = ("part",)
    part: str

    def __new__(cls, part: str) -> TextWith:
        key = (cls, part)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return f"str with {self.part!r}"


class Device(Value):
    """A torch.device; `type` is empty where it is not known."""

    __slots__ = ("type",)
    type: str

    def __new__(cls, type: str) -> Device:
        key = (cls, type)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return f"device {self.type or '?'}"


class Variant(NamedTuple):
    """Why a value is a tensor in some runs only: one of several implementations of a method returns one."""

    method: str
    cls: str
    needs: str = ""  # the class attribute of the captured module without which it never meets that implementation

    def __str__(self) -> str:
        return f"when `{self.method}` returns a tensor, as in `{self.cls}`"


class Tensor(Value):
    """A torch tensor.

    device: "cuda", "cpu", "pinned" (page-locked host memory), "meta" or "" (unknown).
    rank: 0 (no dimensions), -n (exactly n), 1 (one or more) or None. dtype: "b" bool, "i" integer, "f" floating or "".
    confidence: how sure it is that this is a tensor on that device. variant: in which cases it is one, if not always.
    """

    __slots__ = ("confidence", "device", "dtype", "rank", "variant")
    variant: Variant | None
    device: str
    rank: int | None
    dtype: str
    confidence: int

    def __new__(
        cls,
        device: str,
        rank: int | None = None,
        dtype: str = "",
        confidence: int = HIGH,
        variant: Variant | None = None,
    ) -> Tensor:
        key = (cls, confidence, device, dtype, rank, variant)
        return _interned.get(key) or _make(cls, key)

    def with_(self, **changes: Any) -> Tensor:
        return Tensor(
            changes.get("device", self.device),
            changes.get("rank", self.rank),
            changes.get("dtype", self.dtype),
            changes.get("confidence", self.confidence),
            changes.get("variant", self.variant),
        )

    def _describe(self) -> str:
        rank = {None: "", 1: " n-dim"}.get(self.rank, f" {-(self.rank or 0)}-dim")
        dtype = {"": "", "b": " bool", "i": " int", "f": " float"}[self.dtype]
        text = f"tensor on {self.device or '?'}{rank}{dtype} ({'?lmh'[self.confidence]})"
        return f"{text} {self.variant}" if self.variant else text


class Numpy(Value):
    """A numpy array or scalar."""

    __slots__ = ()

    def __new__(cls) -> Numpy:
        return _interned.get((cls,)) or _make(cls, (cls,))


class Ext(Value):
    """Something outside the checked code, by its dotted name: a module, function or class."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> Ext:
        key = (cls, name)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return self.name


class ExtInstance(Value):
    """An instance of a class outside the checked code; `detail` is what its constructor fixed ("" where nothing)."""

    __slots__ = ("detail", "name")
    name: str
    detail: Any

    def __new__(cls, name: str, detail: Any = "") -> ExtInstance:
        key = (cls, detail, name)
        return _interned.get(key) or _make(cls, key, detail.depth + 1 if isinstance(detail, Value) else 0)

    def _describe(self) -> str:
        return f"{self.name} object {self.detail!r}" if self.detail else f"{self.name} object"


class ModuleRef(Value):
    """A module of the checked code."""

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str) -> ModuleRef:
        key = (cls, name)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return f"module {self.name}"


class Func(Value):
    """A function of the checked code with the scope that it closes over (None at module level)."""

    __slots__ = ("definition", "scope")
    definition: Any
    scope: Any

    def __new__(cls, definition: Any, scope: Any = None) -> Func:
        key = (cls, definition, scope)
        return _interned.get(key) or _make(cls, key, scope.depth + 1 if scope is not None else 0)

    def _describe(self) -> str:
        return f"function {self.definition.label}" + (f" in {self.scope.label}" if self.scope is not None else "")


class Bound(Value):
    """A callable with its first argument bound: a method."""

    __slots__ = ("func", "receiver")
    func: Value
    receiver: Value

    def __new__(cls, func: Value, receiver: Value) -> Bound:
        key = (cls, func, receiver)
        return _interned.get(key) or _make(cls, key, max(func.depth, receiver.depth) + 1)

    def _describe(self) -> str:
        return f"{self.func.label} of {self.receiver.label}"


class ExtMethod(Value):
    """A method, looked up by name, of a value whose class is not in the checked code (a tensor, a list, ...)."""

    __slots__ = ("name", "receiver")
    receiver: Value
    name: str

    def __new__(cls, receiver: Value, name: str) -> ExtMethod:
        key = (cls, name, receiver)
        return _interned.get(key) or _make(cls, key, receiver.depth + 1)

    def _describe(self) -> str:
        return f"{self.receiver.label}.{self.name}"


class Partial(Value):
    """functools.partial, or any callable with leading and keyword arguments fixed."""

    __slots__ = ("args", "func", "kwargs")
    func: Value
    args: tuple[Value, ...]
    kwargs: tuple[tuple[str, Value], ...]

    def __new__(cls, func: Value, args: tuple[Value, ...], kwargs: tuple[tuple[str, Value], ...]) -> Partial:
        key = (cls, args, func, kwargs)
        depth = max([func.depth, *(a.depth for a in args), *(v.depth for _, v in kwargs)]) + 1
        return _interned.get(key) or _make(cls, key, depth)

    def _describe(self) -> str:
        return f"partial {self.func.label} {self.args} {self.kwargs}"


class Compiled(Value):
    """A callable wrapped by torch.compile; `site` tells where and how (walk.compiled.CompileSite)."""

    __slots__ = ("func", "site")
    func: Value
    site: Any

    def __new__(cls, func: Value, site: Any) -> Compiled:
        key = (cls, func, site)
        return _interned.get(key) or _make(cls, key, func.depth + 1)

    def _describe(self) -> str:
        return f"compiled {self.func.label}"


class Class(Value):
    """A class of the checked code."""

    __slots__ = ("definition",)
    definition: Any

    def __new__(cls, definition: Any) -> Class:
        key = (cls, definition)
        return _interned.get(key) or _make(cls, key)

    def _describe(self) -> str:
        return f"class {self.definition.label}"


class Instance(Value):
    """An instance of a class of the checked code; `state` is its constructor's outcome (walk.classes.State)."""

    __slots__ = ("definition", "state")
    definition: Any
    state: Any

    def __new__(cls, definition: Any, state: Any) -> Instance:
        key = (cls, definition, state)
        return _interned.get(key) or _make(cls, key, state.depth)

    def _describe(self) -> str:
        return f"{self.definition.label} object {self.state.label}"


class Super(Value):
    """super() inside a method of `after`, on `receiver`."""

    __slots__ = ("after", "receiver")
    after: Any
    receiver: Value

    def __new__(cls, after: Any, receiver: Value) -> Super:
        key = (cls, after, receiver)
        return _interned.get(key) or _make(cls, key, receiver.depth + 1)

    def _describe(self) -> str:
        return f"super of {self.receiver.label}"


class Seq(Value):
    """A tuple, list, set or iterator. `items` where each is known, else None; `element` joins them all (None: empty)."""

    __slots__ = ("element", "items", "kind")
    kind: str
    items: tuple[Value, ...] | None
    element: Value | None

    def __new__(cls, kind: str, items: tuple[Value, ...] | None, element: Value | None = None) -> Seq:
        if items is not None:
            element = join_all(items) if items else None
            if len(items) > (MAX_ARGUMENTS if kind == "tuple" else MAX_ITEMS):
                items = None
        depth = element.depth + 1 if element is not None else 0
        if items:
            depth = max(i.depth for i in items) + 1
        if depth > MAX_DEPTH:
            items, element, depth = None, UNKNOWN, 1
        key = (cls, element, items, kind)
        return _interned.get(key) or _make(cls, key, depth)

    def _describe(self) -> str:
        if self.items is not None:
            return f"{self.kind}({', '.join(i.label for i in self.items)})"
        return f"{self.kind} of {self.element.label if self.element else 'nothing'}"


class Dict(Value):
    """A mapping: values under known constant keys, and the join of all others (None: there are none)."""

    __slots__ = ("items", "other")
    items: tuple[tuple[Any, Value], ...]
    other: Value | None

    def __new__(cls, items: dict[Any, Value], other: Value | None = None) -> Dict:
        depth = max([0, *(v.depth for v in items.values())]) + 1
        if other is not None:
            depth = max(depth, other.depth + 1)
        if len(items) > 4 * MAX_ITEMS or depth > MAX_DEPTH:
            values = [*items.values(), *([other] if other is not None else [])]
            other = UNKNOWN if depth > MAX_DEPTH else join_all(values)
            items, depth = {}, 1 + (other.depth if other is not UNKNOWN else 0)
        ordered = tuple(items.items())
        key = (cls, ordered, other)
        return _interned.get(key) or _make(cls, key, depth)

    def as_dict(self) -> dict[Any, Value]:
        return dict(self.items)

    def _describe(self) -> str:
        known = ", ".join(f"{k!r}: {v.label}" for k, v in self.items)
        return f"dict({known}; {self.other.label if self.other else ''})"


class Union(Value):
    """One of several values; never nested, ordered by label."""

    __slots__ = ("parts",)
    parts: tuple[Value, ...]

    def __new__(cls, parts: tuple[Value, ...]) -> Union:
        key = (cls, parts)
        return _interned.get(key) or _make(cls, key, max(p.depth for p in parts))

    def _describe(self) -> str:
        return " | ".join(p.label for p in self.parts)


UNKNOWN = Unknown()
NONE = Const(None)
TRUE = Const(True)
FALSE = Const(False)
NUMPY = Numpy()
INT, FLOAT, BOOL, STR = Host("int"), Host("float"), Host("bool"), Host("str")
NEVER = Host("never")  # the outcome of a call that has not returned yet: whatever else there is covers it
SETTINGS = Host("settings")  # an object that holds settings, and whatever is read from it
NUMBER, OBJECT, SHAPE, DTYPE = Host("number"), Host("object"), Host("shape"), Host("dtype")
_ANSWERS: dict[Value, tuple[str | None, str | None]] = {TRUE: ("", None), FALSE: (None, ""), BOOL: ("", "")}
_KIND_OF = {bool: BOOL, int: INT, float: FLOAT, str: STR}

_joins: dict[tuple[Value, Value], Value] = {}


def join(a: Value, b: Value) -> Value:
    """The least value that covers both."""
    if a is b or b is NEVER:
        return a
    if a is NEVER:
        return b
    found = _joins.get((a, b))
    if found is None:
        found = _joins[(a, b)] = _joins[(b, a)] = _join(a, b)
    return found


def join_all(values: Any) -> Value:
    """The join of any number of values; unknown for none."""
    result: Value | None = None
    for value in values:
        result = value if result is None else join(result, value)
    return UNKNOWN if result is None else result


def _join(a: Value, b: Value) -> Value:
    if a is UNKNOWN or b is UNKNOWN:
        known = b if a is UNKNOWN else a
        # A tensor on one path stays visible, with less certainty; everything else is lost.
        tensors = [p for p in parts_of(known) if isinstance(p, Tensor)]
        if tensors:
            weak = [t.with_(confidence=min(t.confidence, LOW)) for t in tensors]
            return _union([*weak, UNKNOWN])
        return UNKNOWN
    return _union([*parts_of(a), *parts_of(b)])


def parts_of(value: Value) -> tuple[Value, ...]:
    """The members of a union, or the value itself."""
    return value.parts if value.__class__ is Union else (value,)


def placed(value: Value, kind: str) -> Value:
    """A value of which a comment says that it lives on the "host", or that it is a tensor on the "device"."""
    if isinstance(value, Seq):
        if value.items is not None:
            return Seq(value.kind, tuple(placed(item, kind) for item in value.items))
        return Seq(value.kind, None, placed(value.element, kind) if value.element is not None else None)
    if kind == "device":
        tensors = [p for p in parts_of(value) if isinstance(p, Tensor)]
        if not tensors:
            return Tensor("cuda")
        return join_all([t.with_(device="cuda", confidence=HIGH) for t in tensors])
    known = [p.with_(device="cpu") if isinstance(p, Tensor) and p.device != "pinned" else p for p in parts_of(value)]
    return join_all([OBJECT if p is UNKNOWN else p for p in known])


def _union(parts: list[Value]) -> Value:
    merged: list[Value] = []
    for part in parts:
        if part in merged:
            continue
        for index, present in enumerate(merged):
            both = _merge(present, part)
            if both is not None:
                merged[index] = both
                break
        else:
            merged.append(part)
    merged = list(dict.fromkeys(merged))
    if len(merged) == 1:
        return merged[0]
    if len(merged) > MAX_PARTS and not (len(merged) <= MAX_FUNCTIONS and all(p.__class__ is Func for p in merged)):
        tensors = [p for p in merged if isinstance(p, Tensor)]
        if not tensors:
            return UNKNOWN
        merged = [*tensors, UNKNOWN]
    return Union(tuple(sorted(merged, key=lambda p: p.label)))


def _merge(a: Value, b: Value) -> Value | None:
    """One value for two of the same sort, or None where they are better kept apart."""
    if a.__class__ is not b.__class__ and not (a.__class__ in _PLAIN and b.__class__ in _PLAIN):
        return None
    if isinstance(a, ExtInstance) and isinstance(b, ExtInstance) and a.name == b.name:
        if isinstance(a.detail, (Seq, Dict)) and isinstance(b.detail, (Seq, Dict)):
            return ExtInstance(a.name, join(a.detail, b.detail))  # containers of modules
        return None
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.device != b.device:
            return None
        return Tensor(
            a.device,
            a.rank if a.rank == b.rank else 1 if a.rank and b.rank else None,
            a.dtype if a.dtype == b.dtype else "",
            min(a.confidence, b.confidence),
            # What is a tensor in any case is one in all.
            min(a.variant, b.variant) if a.variant and b.variant else None,
        )
    if isinstance(a, Const) and isinstance(b, Const):
        if a.value is None or b.value is None or isinstance(a.value, str) or isinstance(b.value, str):
            return None
        return _host_join(kind_of(a), kind_of(b))
    if isinstance(a, Answer) or isinstance(b, Answer):
        both = answer_of(a), answer_of(b)
        if both[0] is not None and both[1] is not None:
            return Answer(_either(both[0][0], both[1][0]), _either(both[0][1], both[1][1]))
    if isinstance(a, Host) and isinstance(b, Host):
        return _host_join(a.kind, b.kind)
    if isinstance(a, Host) and isinstance(b, Const) and b.value is not None:
        return _host_join(a.kind, kind_of(b))
    if isinstance(b, Host) and isinstance(a, Const) and a.value is not None:
        return _host_join(b.kind, kind_of(a))
    if isinstance(a, Device) and isinstance(b, Device):
        return Device("")
    if isinstance(a, Seq) and isinstance(b, Seq):
        kind = a.kind if a.kind == b.kind else "list"
        if a.items is not None and b.items is not None and len(a.items) == len(b.items):
            return Seq(kind, tuple(join(x, y) for x, y in zip(a.items, b.items, strict=True)))
        if kind == "tuple" and a.items is not None and b.items is not None:
            return None  # of different lengths: what is where stays known of each
        element = a.element or b.element if a.element is None or b.element is None else join(a.element, b.element)
        return Seq(kind, None, element)
    if isinstance(a, Dict) and isinstance(b, Dict):
        return _join_dicts(a, b)
    return None


_PLAIN = (Const, Host, Answer)


def answer_of(value: Value) -> tuple[str | None, str | None] | None:
    """`yes` and `no` of `Answer`, for any value of which it is known that it is a bool."""
    return (value.yes, value.no) if isinstance(value, Answer) else _ANSWERS.get(value)


def answer_in_case(value: Value, case: str) -> Value:
    """A bool as it is where only a special case gives it."""
    answer = answer_of(value)
    return value if answer is None else Answer(*(None if cases is None else cases or case for cases in answer))


def _either(one: str | None, two: str | None) -> str | None:
    """In which cases one of two answers is given."""
    if one is None or two is None:
        return two if one is None else one
    return min(one, two)


def special_cases(value: Value) -> tuple[str, str]:
    """In which special cases a value is true, and in which it is false; "" where these are no special ones."""
    if value.__class__ is not Answer:
        if value.__class__ is not Union or not any(p.__class__ is Answer for p in value.parts):
            return "", ""
    cases: tuple[set[str], set[str]] = set(), set()
    for part in parts_of(value):
        outcome, answer = truth(part), answer_of(part) or ("", "")
        for index in (0, 1):
            if outcome is not bool(index):
                cases[index].add(answer[index] or "")
    return tuple(min(c, default="") for c in cases)  # type: ignore[return-value]


def _join_dicts(a: Dict, b: Dict) -> Dict:
    one, two = a.as_dict(), b.as_dict()
    items: dict[Any, Value] = {}
    for key in [*one, *(k for k in two if k not in one)]:
        if key in one and key in two:
            items[key] = join(one[key], two[key])
        else:
            items[key] = one.get(key) or two[key]
    others = [o for o in (a.other, b.other) if o is not None]
    return Dict(items, join_all(others) if others else None)


def kind_of(value: Value) -> str:
    """The name of a host value's type."""
    if value.__class__ is Host or value.__class__ is Answer:
        return value.kind
    if isinstance(value, Const):
        kind = _KIND_OF.get(type(value.value))
        return kind.kind if kind is not None else "object"
    return "str" if isinstance(value, TextWith) else "object"


def _host_join(a: str, b: str) -> Value:
    if a == b:
        return Host(a)
    numbers = {"int", "float", "bool", "number"}
    if a in numbers and b in numbers:
        return NUMBER
    return OBJECT


def widen(value: Value) -> Value:
    """The value without its constants: what an argument or attribute of that kind may be elsewhere."""
    if isinstance(value, Const):
        if value.value is None:
            return UNKNOWN
        return _KIND_OF.get(type(value.value), OBJECT)
    if isinstance(value, Union):
        return join_all([p if p is NONE else widen(p) for p in value.parts])
    if isinstance(value, Seq) and value.items is not None:
        return Seq(value.kind, None, widen(value.element) if value.element is not None else UNKNOWN)
    if isinstance(value, Dict):
        return Dict({}, UNKNOWN)
    return value


def on_device(value: Value) -> tuple[list[Tensor], int]:
    """The parts of a value that may be tensors on the device, and how sure it is that one of them is."""
    found = [p for p in parts_of(value) if isinstance(p, Tensor) and p.device in ("cuda", "")]
    return found, max((t.confidence if t.device else LOW for t in found), default=LOW)


def only_in(tensors: list[Tensor]) -> Variant | None:
    """The variant that all of some tensors rest on; None where one of them is a tensor in any case."""
    variants = [t.variant for t in tensors]
    return min(v for v in variants if v) if variants and all(variants) else None


def is_host(value: Value) -> bool:
    """True where the value is certainly no tensor and its use costs no wait."""
    return isinstance(value, (Const, Host, TextWith, Device, Ext, ModuleRef, Func, Class, Numpy))


def truth(value: Value) -> bool | None:
    """The truth value where it is certain, else None."""
    kind = value.__class__
    if kind is Const:
        return bool(value.value)  # type: ignore[attr-defined]
    if kind is Union:
        outcomes = {truth(p) for p in value.parts}  # type: ignore[attr-defined]
        return outcomes.pop() if len(outcomes) == 1 else None
    if kind in _TRUE:
        return True
    if isinstance(value, Seq) and value.items is not None:
        return bool(value.items)
    if kind is Answer:
        return True if value.no is None else False if value.yes is None else None  # type: ignore[attr-defined]
    return True if isinstance(value, Dict) and value.items else None


_TRUE = frozenset((Func, Bound, Class, ModuleRef, Partial, Compiled, Device))
