"""Classes: their inheritance, and the instances that calling them makes."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST, MAKING, Region
from cgsafe.index.trail import TRAIL, Cell, Memo
from cgsafe.values import (
    NONE,
    SETTINGS,
    Class,
    Ext,
    Instance,
    Value,
    join,
    parts_of,
)
from cgsafe.walk.arguments import Arguments, bind
from cgsafe.walk.attributes import Attributes
from cgsafe.walk.decorators import decorate_class
from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.entry import root_arguments
from cgsafe.walk.facts import TENSOR_CLASSES

if TYPE_CHECKING:
    from cgsafe.walk.walker import Walker

MAX_STATE_DEPTH = 5  # objects that hold objects that hold ...; deeper ones are known by their class only
_MODULE_BASES = ("torch.nn.", "lightning.", "pytorch_lightning.")


class State(Cell):
    """The outcome of constructing an object: what its attributes hold."""

    __slots__ = (
        "args",
        "attributes",
        "definition",
        "depth",
        "generic",
        "hooks",
        "known",
        "label",
        "placeholders",
        "started",
        "transient",
    )

    def __init__(self, definition: ClassDef, args: Any, label: str, depth: int, generic: bool, transient: bool = False):
        super().__init__()  # what the object and what was read from it rest on
        self.definition = definition
        self.args = args
        self.attributes: dict[str, Value] = {}
        self.known: dict[str, Value | None] = {}  # attributes as they were found once the object was complete
        self.placeholders: set[str] = set()  # attributes of which the constructor only says that they are None for now
        self.hooks: list[tuple[str, Value]] = []
        self.label = label
        self.depth = depth
        self.generic = generic
        self.transient = transient  # made by captured code
        self.started = False


class ClassTable(Attributes):
    """Answers questions about classes; shared by all frames of a walker."""

    def __init__(self, walker: Walker):
        self.walker = walker
        self.states: dict[Any, State] = {}
        self._generic: dict[tuple[ClassDef, bool], Instance] = {}
        self._class_names: dict[tuple[ClassDef, str], Value] = {}
        self._active: dict[Any, float] = {}
        self._assigners: dict[FunctionDef, frozenset[str]] = {}
        self.constructing: list[State] = []
        self._is_module: dict[ClassDef, bool] = {}
        self._decorated: set[ClassDef] = set()
        self._decorating: list[ClassDef] = []  # whose decorators are at work: what is found meanwhile may still change
        self._found: dict[tuple[ClassDef, str], tuple[ClassDef, Any] | None] = {}
        self._abstract: dict[FunctionDef, bool] = {}
        self._hot = Memo()
        self._is_settings: dict[ClassDef, bool] = {}
        self.promised: dict[tuple[ClassDef, str], Value] = {}  # annotations of attributes that start out empty
        self._assigning: dict[ClassDef, dict[str, list[tuple[FunctionDef, ClassDef]]]] = {}
        self._late: dict[FunctionDef, tuple[list[tuple[str, Value]], Cell]] = {}
        self._statements: dict[tuple[ClassDef, str], tuple[ast.stmt | None, int]] = {}
        self._annotations: dict[tuple[ClassDef, str], Value | None] = {}
        self._subclasses: dict[str, list[ClassDef]] | None = None

    # -- inheritance -----------------------------------------------------------------------------------------------

    def mro(self, definition: ClassDef) -> list[ClassDef | str]:
        """The class and its bases in lookup order; a base outside the checked code is its dotted name."""
        if definition.mro is None:
            definition.mro = [definition]  # a class that is its own base ends here
            linear: list[ClassDef | str] = []
            with definition.cell:
                for base in definition.bases:
                    value = self._base(definition, base)
                    for part in parts_of(value):
                        if isinstance(part, Class) and part.definition is not definition:
                            linear.extend(self.mro(part.definition))
                        elif isinstance(part, Ext):
                            linear.append(part.name)
            # Keep the last mention of each, as the real order does for a diamond.
            seen: set[Any] = set()
            result: list[ClassDef | str] = []
            for entry in reversed(linear):
                if entry not in seen:
                    seen.add(entry)
                    result.append(entry)
            definition.mro = [definition, *reversed(result)]
        else:
            TRAIL.deps.add(definition.cell)
        return definition.mro

    def _base(self, definition: ClassDef, node: ast.expr) -> Value:
        from cgsafe.walk.frame import Frame
        from cgsafe.walk.walker import Node

        if isinstance(node, ast.Subscript):
            node = node.value
        frame = Frame(self.walker, Node(None, HOST, (), definition.scope), None, definition.file, definition.offset)
        return frame.eval(node)

    def externals(self, definition: ClassDef) -> list[str]:
        return [b for b in self.mro(definition) if isinstance(b, str)]

    def is_module(self, definition: ClassDef) -> bool:
        """True for subclasses of torch.nn.Module, known bases of other packages included."""
        TRAIL.deps.add(definition.cell)
        found = self._is_module.get(definition)
        if found is None:
            tables = self.walker.tables
            found = any(b.startswith(_MODULE_BASES) or tables.is_module_base(b) for b in self.externals(definition))
            self._is_module[definition] = found
        return found

    def is_tensor(self, definition: ClassDef) -> bool:
        """True for subclasses of tensors and parameters: what their constructors keep besides the data decides nothing."""
        return any(b in TENSOR_CLASSES for b in self.externals(definition))

    def find(self, definition: ClassDef, name: str) -> tuple[ClassDef, Any] | None:
        """The class in the lookup order that defines `name`, and the definition there."""
        key = (definition, name)
        TRAIL.deps.add(definition.cell)
        try:
            return self._found[key]
        except KeyError:
            pass
        busy = len(self._decorating)
        with definition.cell:
            found = self._find(definition, name)
        if not busy:
            self._found[key] = found
        return found

    def _find(self, definition: ClassDef, name: str) -> tuple[ClassDef, Any] | None:
        for entry in self.mro(definition):
            if isinstance(entry, str):
                continue
            if entry.decorators and entry not in self._decorated:
                self._decorated.add(entry)
                self._decorating.append(entry)
                with entry.cell:
                    decorate_class(self.walker, entry)
                self._decorating.pop()
            if name in entry.overrides:
                return entry, entry.overrides[name]
            if name in entry.methods:
                return entry, entry.methods[name]
            if name in entry.names:
                return entry, entry.names[name]
        return None

    def run_as_forward(self, definition: ClassDef) -> tuple[ClassDef, Any] | None:
        """What calling a module runs: its `forward`, or by profile the method that the forward of a base picks by name."""
        found = self.find(definition, "forward")
        names = self.walker.tables.dispatched
        if found is None or not names or found[0].name not in names or found[0] is definition:
            return found
        for name in names[found[0].name]:
            picked = self.find(definition, name)
            if picked is not None and picked[0] is not found[0] and isinstance(picked[1], FunctionDef):
                return picked
        return found

    def find_after(self, definition: ClassDef, after: ClassDef, name: str) -> tuple[ClassDef, Any] | None:
        """As `find`, past the class `after`: what super() sees."""
        order = self.mro(definition)
        try:
            start = order.index(after) + 1
        except ValueError:
            start = 1
        for entry in order[start:]:
            if isinstance(entry, str):
                continue
            if name in entry.methods:
                return entry, entry.methods[name]
            if name in entry.names:
                return entry, entry.names[name]
        return None

    def subclasses(self, definition: ClassDef) -> list[ClassDef]:
        """The known classes that name this one as a base, directly (by the last part of the base's name)."""
        TRAIL.deps.add(("w", "subclasses", definition.name))
        if self._subclasses is None:
            table: dict[str, list[tuple[Any, str]]] = {}
            for path in sorted(self.walker.project.files):
                file = self.walker.project.files[path]
                if not self.walker.tables.is_run(path):
                    continue  # the same classes once more
                for qualified, info in file.raw["classes"].items():
                    for base in info["bases"]:
                        table.setdefault(base.partition("[")[0].rpartition(".")[2], []).append((file, qualified))
            self._subclasses = table  # type: ignore[assignment]
        found = []
        for file, qualified in self._subclasses.get(definition.name, ()):  # type: ignore[union-attr, misc]
            candidate = self.walker.definitions.class_(file, qualified)
            if definition in self.mro(candidate)[1:]:
                found.append(candidate)
        return found

    # -- instances -------------------------------------------------------------------------------------------------

    def is_settings(self, definition: ClassDef) -> bool:
        """True for classes that hold settings: what is read from their objects is no tensor."""
        TRAIL.deps.add(definition.cell)
        found = self._is_settings.get(definition)
        if found is None:
            names = self.walker.by_package.of(definition.file.module).host_objects
            found = any(self.bare_name(e) in names for e in self.mro(definition))
            self._is_settings[definition] = found
        return found

    @staticmethod
    def bare_name(entry: ClassDef | str) -> str:
        """The name of a class, in the checked code or outside of it, without its module."""
        return entry.rpartition(".")[2] if isinstance(entry, str) else entry.name

    def any_of(self, definition: ClassDef) -> Value:
        """An object of which only the class is known, as a value."""
        return SETTINGS if self.is_settings(definition) else self.generic(definition)

    def initializer(self, definition: ClassDef) -> tuple[ClassDef, FunctionDef] | None:
        """The written constructor that calling the class runs; None where it is generated or there is none."""
        for entry in self.mro(definition):
            if isinstance(entry, str):
                continue
            method = entry.methods.get("__init__")
            if method is not None:
                return entry, method
            if any("dataclass" in d for d in entry.decorators):
                return None
        return None

    def generic(self, definition: ClassDef, transient: bool = False) -> Instance:
        """An instance of which only the class is known."""
        key = (definition, transient)
        found = self._generic.get(key)
        if found is None:
            label = "any made there" if transient else "any"
            found = self._generic[key] = Instance(definition, State(definition, None, label, 1, True, transient))
        return found

    def instantiate(self, definition: ClassDef, args: Arguments, transient: bool = False) -> Value:
        """The object that calling the class makes; `transient` where captured code makes it."""
        if self.is_settings(definition):
            return SETTINGS
        if self.walker.shallow or self.is_tensor(definition):
            return self.generic(definition, transient)
        init = self.initializer(definition)
        if init is not None:
            function = init[1]
            try:
                shape = self.walker.shape(function)
            except (SyntaxError, ValueError, RecursionError):
                return self.generic(definition, transient)
            bound = bind(self.walker, function, shape, args.prepend(NONE), HOST)
        elif self.is_dataclass(definition):
            bound = self._fields_given(definition, args)
        else:
            bound = ()
        depth = 1 + max([0, *(b.depth for b in _flat(bound))])
        if depth > MAX_STATE_DEPTH:
            return self.generic(definition, transient)
        key = (definition, bound, transient)
        state = self.states.get(key)
        if state is None:
            label = _short(f"({', '.join(b.label for b in _flat(bound))})" if bound else "()")
            if transient:
                label += " made there"
            state = self.states[key] = State(definition, bound, label, depth, False, transient)
            instance = Instance(definition, state)
            with state:
                self._construct(instance, args, MAKING if transient and not self.is_module(definition) else HOST)
            return instance
        TRAIL.deps.add(state)
        return Instance(definition, state)

    def _fields_given(self, definition: ClassDef, args: Arguments) -> tuple[Any, ...]:
        names = self.field_names(definition)
        given = dict(zip(names, args.positional, strict=False))
        given.update({k: v for k, v in args.keywords.items() if k in names})
        return tuple((name, given[name]) for name in names if name in given)

    def is_dataclass(self, definition: ClassDef) -> bool:
        """True for dataclasses, NamedTuples and their like: the class-level annotations are the constructor's arguments."""
        for entry in self.mro(definition):
            if isinstance(entry, str):
                if entry.rpartition(".")[2] in ("NamedTuple", "TypedDict", "BaseModel", "Struct"):
                    return True
            elif any(
                d.rpartition(".")[2] in ("dataclass", "define", "frozen", "attrs", "s") for d in entry.decorators
            ) or any("dataclass" in d for d in entry.decorators):
                return True
        return False

    def is_namedtuple(self, definition: ClassDef) -> bool:
        return any(isinstance(e, str) and e.endswith("NamedTuple") for e in self.mro(definition))

    def field_names(self, definition: ClassDef) -> list[str]:
        names: dict[str, None] = {}
        for entry in reversed(self.mro(definition)):
            if isinstance(entry, ClassDef):
                for name in entry.names:
                    if self._statement_annotation(entry, name) is not None:
                        names[name] = None
        return list(names)

    def _construct(self, instance: Instance, args: Arguments, where: Region) -> None:
        state, definition = instance.state, instance.definition
        state.started = True
        init = self.initializer(definition)
        if init is not None:
            self.constructing.append(state)
            depth, self.walker.host_depth = self.walker.host_depth, 0
            try:
                self.walker.call(init[1], init[0].scope, args.prepend(instance), where)
            finally:
                self.constructing.pop()
                self.walker.host_depth = depth
        elif state.args:
            for name, value in state.args:
                state.attributes[name] = value
            post = self.find(definition, "__post_init__")
            if post is not None and isinstance(post[1], FunctionDef):
                self.constructing.append(state)
                try:
                    self.walker.call(post[1], post[0].scope, Arguments([instance]), where)
                finally:
                    self.constructing.pop()

    def ensure_made(self, instance: Instance) -> None:
        """Run the constructor of an object of which only the class is known, unless that was done."""
        if not instance.state.started:
            with instance.state:
                self._start_generic(instance)
        else:
            TRAIL.deps.add(instance.state)

    def _start_generic(self, instance: Instance) -> None:
        """Construct an instance of which only the class is known from arguments of which only the kinds are."""
        state = instance.state
        state.started = True
        init = self.initializer(instance.definition)
        if init is None:
            return
        walker = self.walker
        before = walker.shallow, walker.host_depth
        walker.shallow, walker.host_depth = False, 0
        self.constructing.append(state)
        try:
            args = root_arguments(self.walker, init[1], instance, HOST)
            self.walker.call(init[1], init[0].scope, args, HOST)
        except (SyntaxError, ValueError, RecursionError):
            return
        finally:
            self.constructing.pop()
            walker.shallow, walker.host_depth = before

    def store(self, instance: Instance, name: str, value: Value, certain: bool) -> None:
        """An attribute is set; it counts only while the object is being made (later writes are found by `late`)."""
        state = instance.state
        if state not in self.constructing:
            return
        if not certain and name in state.attributes:
            value = join(state.attributes[name], value)
        state.attributes[name] = value
        state.placeholders.discard(name)

    def changed(self, instance: Instance, given: Mapping[str, Value]) -> Instance:
        """The object that another becomes where its owner sets attributes of it, while the owner is being made."""
        before, definition = instance.state, instance.definition
        TRAIL.deps.add(before)
        depth = max([before.depth, *(1 + v.depth for v in given.values())])
        if depth > MAX_STATE_DEPTH:
            return instance
        key = (before, tuple(given.items()))
        state = self.states.get(key)
        if state is None:
            label = f"{before.label} with {', '.join(f'{name}={v.label}' for name, v in given.items())}"
            state = self.states[key] = State(definition, before.args, _short(label), depth, False, before.transient)
            with state:
                TRAIL.deps.add(before)
                state.attributes = {**before.attributes, **given}
                state.placeholders = before.placeholders - given.keys()
                state.hooks = [*before.hooks]
                state.started = True
        else:
            TRAIL.deps.add(state)
        return Instance(definition, state)

    def add_hook(self, instance: Instance, kind: str, hook: Value) -> None:
        if (kind, hook) not in instance.state.hooks:
            instance.state.hooks.append((kind, hook))


def _short(label: str) -> str:
    return label if len(label) <= 200 else hashlib.blake2b(label.encode(errors="replace"), digest_size=8).hexdigest()


def _flat(bound: Any) -> list[Value]:
    return [b[1] if isinstance(b, tuple) else b for b in bound]
