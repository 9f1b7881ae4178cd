"""Classes, their instances and what their attributes hold."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST
from cgsafe.values import (
    NONE,
    SETTINGS,
    UNKNOWN,
    Bound,
    Class,
    Const,
    Ext,
    Func,
    Instance,
    Tensor,
    Value,
    join,
    join_all,
    parts_of,
)
from cgsafe.walk.annotations import annotation_in_file
from cgsafe.walk.arguments import Arguments, bind
from cgsafe.walk.decorators import decorate_class
from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.entry import convention, open_value, root_arguments

if TYPE_CHECKING:
    from cgsafe.walk.walker import Walker

MAX_STATE_DEPTH = 5  # objects that hold objects that hold ...; deeper ones are known by their class only
_MODULE_BASES = ("torch.nn.", "lightning.", "pytorch_lightning.")


class State:
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
    )

    def __init__(self, definition: ClassDef, args: Any, label: str, depth: int, generic: bool):
        self.definition = definition
        self.args = args
        self.attributes: dict[str, Value] = {}
        self.known: dict[str, Value | None] = {}  # attributes as they were found once the object was complete
        self.placeholders: set[str] = set()  # attributes of which the constructor only says that they are None for now
        self.hooks: list[tuple[str, Value]] = []
        self.label = label
        self.depth = depth
        self.generic = generic
        self.started = False


class ClassTable:
    """Answers questions about classes; shared by all frames of a walker."""

    def __init__(self, walker: Walker):
        self.walker = walker
        self.states: dict[Any, State] = {}
        self._generic: dict[ClassDef, Instance] = {}
        self._class_names: dict[tuple[ClassDef, str], Value] = {}
        self._active: dict[Any, float] = {}
        self._assigners: dict[FunctionDef, frozenset[str]] = {}
        self._constructing: list[State] = []
        self._is_module: dict[ClassDef, bool] = {}
        self._decorated: set[ClassDef] = set()
        self._decorating: list[ClassDef] = []  # whose decorators are at work: what is found meanwhile may still change
        self._found: dict[tuple[ClassDef, str], tuple[ClassDef, Any] | None] = {}
        self._is_settings: dict[ClassDef, bool] = {}
        self._assigning: dict[ClassDef, dict[str, list[tuple[FunctionDef, ClassDef]]]] = {}
        self._late: dict[FunctionDef, list[tuple[str, Value]]] = {}
        self._statements: dict[tuple[ClassDef, str], tuple[ast.stmt | None, int]] = {}
        self._annotations: dict[tuple[ClassDef, str], Value | None] = {}
        self._subclasses: dict[str, list[ClassDef]] | None = None

    # -- inheritance -----------------------------------------------------------------------------------------------

    def mro(self, definition: ClassDef) -> list[ClassDef | str]:
        """The class and its bases in lookup order; a base outside the checked code is its dotted name."""
        if definition.mro is None:
            definition.mro = [definition]  # a class that is its own base ends here
            linear: list[ClassDef | str] = []
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
        found = self._is_module.get(definition)
        if found is None:
            tables = self.walker.tables
            found = any(b.startswith(_MODULE_BASES) or tables.is_module_base(b) for b in self.externals(definition))
            self._is_module[definition] = found
        return found

    def find(self, definition: ClassDef, name: str) -> tuple[ClassDef, Any] | None:
        """The class in the lookup order that defines `name`, and the definition there."""
        key = (definition, name)
        try:
            return self._found[key]
        except KeyError:
            pass
        busy = len(self._decorating)
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
                decorate_class(self.walker, entry)
                self._decorating.pop()
            if name in entry.overrides:
                return entry, entry.overrides[name]
            if name in entry.methods:
                return entry, entry.methods[name]
            if name in entry.names:
                return entry, entry.names[name]
        return None

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
        if self._subclasses is None:
            table: dict[str, list[tuple[Any, str]]] = {}
            for path in sorted(self.walker.project.files):
                file = self.walker.project.files[path]
                for qualified, info in file.index["classes"].items():
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
        found = self._is_settings.get(definition)
        if found is None:
            names = self.walker.tables.host_objects
            found = any((e.rpartition(".")[2] if isinstance(e, str) else e.name) in names for e in self.mro(definition))
            self._is_settings[definition] = found
        return found

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

    def generic(self, definition: ClassDef) -> Instance:
        """An instance of which only the class is known."""
        found = self._generic.get(definition)
        if found is None:
            found = Instance(definition, State(definition, None, "any", 1, True))
            self._generic[definition] = found
        return found

    def instantiate(self, definition: ClassDef, args: Arguments) -> Value:
        """The object that calling the class makes."""
        if self.is_settings(definition):
            return SETTINGS
        if self.walker.shallow:
            return self.generic(definition)
        init = self.initializer(definition)
        if init is not None:
            function = init[1]
            try:
                shape = function.shape(self.walker.text(function.file))
            except (SyntaxError, ValueError, RecursionError):
                return self.generic(definition)
            bound = bind(self.walker, function, shape, args.prepend(NONE), HOST)
        elif self.is_dataclass(definition):
            bound = self._fields_given(definition, args)
        else:
            bound = ()
        depth = 1 + max([0, *(b.depth for b in _flat(bound))])
        if depth > MAX_STATE_DEPTH:
            return self.generic(definition)
        key = (definition, bound)
        state = self.states.get(key)
        if state is None:
            label = f"({', '.join(b.label for b in _flat(bound))})" if bound else "()"
            if len(label) > 200:
                import hashlib

                label = hashlib.blake2b(label.encode(errors="replace"), digest_size=8).hexdigest()
            state = self.states[key] = State(definition, bound, label, depth, False)
            instance = Instance(definition, state)
            self._construct(instance, args)
            return instance
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

    def _construct(self, instance: Instance, args: Arguments) -> None:
        state, definition = instance.state, instance.definition
        state.started = True
        init = self.initializer(definition)
        if init is not None:
            self._constructing.append(state)
            depth, self.walker.host_depth = self.walker.host_depth, 0
            try:
                self.walker.call(init[1], init[0].scope, args.prepend(instance), HOST)
            finally:
                self._constructing.pop()
                self.walker.host_depth = depth
        elif state.args:
            for name, value in state.args:
                state.attributes[name] = value
            post = self.find(definition, "__post_init__")
            if post is not None and isinstance(post[1], FunctionDef):
                self._constructing.append(state)
                try:
                    self.walker.call(post[1], post[0].scope, Arguments([instance]), HOST)
                finally:
                    self._constructing.pop()

    def ensure_made(self, instance: Instance) -> None:
        """Run the constructor of an object of which only the class is known, unless that was done."""
        if not instance.state.started:
            self._start_generic(instance)

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
        self._constructing.append(state)
        try:
            args = root_arguments(self.walker, init[1], instance, HOST)
            self.walker.call(init[1], init[0].scope, args, HOST)
        except (SyntaxError, ValueError, RecursionError):
            return
        finally:
            self._constructing.pop()
            walker.shallow, walker.host_depth = before

    def store(self, instance: Instance, name: str, value: Value, certain: bool) -> None:
        """An attribute is set; it counts only while the object is being made (later writes are found by `late`)."""
        state = instance.state
        if state not in self._constructing:
            return
        if not certain and name in state.attributes:
            value = join(state.attributes[name], value)
        state.attributes[name] = value
        state.placeholders.discard(name)

    def add_hook(self, instance: Instance, kind: str, hook: Value) -> None:
        if (kind, hook) not in instance.state.hooks:
            instance.state.hooks.append((kind, hook))

    # -- attributes ------------------------------------------------------------------------------------------------

    def attribute(self, instance: Instance, name: str, frame: Any, node: ast.AST | None) -> Value | None:
        """What an attribute of an instance holds; None where nothing is known of it."""
        state = instance.state
        if name in state.known:
            return state.known[name]
        value = self._attribute(instance, name, frame, node)
        if value is not None and self.walker.tables.names_host(name):
            from cgsafe.walk.calls import on_host

            value = on_host(value)
        if not self._constructing and not self.walker.shallow:
            found = self.find(instance.definition, name)
            if found is None or not isinstance(found[1], FunctionDef) or not is_property(found[1]):
                state.known[name] = value
        return value

    def _attribute(self, instance: Instance, name: str, frame: Any, node: ast.AST | None) -> Value | None:
        definition, state = instance.definition, instance.state
        self.ensure_made(instance)
        found = self.find(definition, name)
        if found is not None and isinstance(found[1], FunctionDef) and is_property(found[1]):
            return self.read_property(found[1], found[0], instance, frame, node)
        value = state.attributes.get(name)
        if value is not None:
            if value is UNKNOWN or isinstance(value, Const):
                # A constant that other methods change is none.
                late = self.late(instance, name)
                if late is not None:
                    return late if value is UNKNOWN else join(value, late)
                if name in state.placeholders:
                    annotated = self._annotation(definition, name)
                    return UNKNOWN if annotated is None else join(NONE, annotated)
            return value
        if found is not None:
            value = self.member(found[0], name, found[1], instance)
            if value is not None:
                if state.generic and isinstance(value, Const):
                    return self._open_field(definition, name, value)
                if value is NONE:
                    late = self.late(instance, name)
                    annotated = self._annotation(definition, name)
                    extra = [v for v in (late, annotated) if v is not None and v is not UNKNOWN]
                    return join_all([NONE, *extra]) if extra else UNKNOWN
                return value
        late = self.late(instance, name)
        if late is not None and late is not UNKNOWN:
            return late
        annotated = self._annotation(definition, name)
        if annotated is not None:
            return annotated
        return late

    def _open_field(self, definition: ClassDef, name: str, default: Value) -> Value:
        annotated = self._annotation(definition, name)
        if annotated is not None and annotated is not UNKNOWN:
            return annotated
        return open_value(default)

    def read_property(self, function: FunctionDef, owner: ClassDef, instance: Value, frame: Any, node: Any) -> Value:
        region = frame.region if frame is not None else HOST
        called = self.walker.call(function, owner.scope, Arguments([instance]), region)
        if frame is not None and node is not None:
            frame.record_call(node, called)
        return called.outcome

    def member(self, owner: ClassDef, name: str, what: Any, receiver: Value | None) -> Value | None:
        """A class-level definition as seen through an instance (or through the class, where `receiver` is None)."""
        if isinstance(what, FunctionDef):
            value = self.walker.decorated(what, owner.scope)
            kind = binding(what)
            if kind == "static" or (receiver is None and kind != "class"):
                return value
            if kind == "class":
                target = Class(receiver.definition) if isinstance(receiver, Instance) else receiver or Class(owner)
                return Bound(value, target)
            return Bound(value, receiver) if receiver is not None else value
        if isinstance(what, Value):
            return Bound(what, receiver) if isinstance(what, Func) and receiver is not None else what
        named = self._class_name(owner, name)
        if isinstance(named, Func) and isinstance(receiver, Instance) and named.definition.name != "<lambda>":
            return Bound(named, receiver)
        return named

    def _statement(self, owner: ClassDef, name: str) -> tuple[ast.stmt | None, int]:
        key = (owner, name)
        found = self._statements.get(key)
        if found is None:
            found = self._statements[key] = self._parse_statement(owner, name)
        return found

    def _parse_statement(self, owner: ClassDef, name: str) -> tuple[ast.stmt | None, int]:
        what = owner.names.get(name)
        if isinstance(what, ast.stmt):
            return what, owner.offset
        if not what:
            return None, 0
        first, last = what[-1]
        try:
            body, offset = self.walker.text(owner.file).parse(first, last)
        except SyntaxError:
            return None, 0
        for statement in body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if statement.target.id == name:
                    return statement, offset
            elif isinstance(statement, ast.Assign):
                return statement, offset
        return None, 0

    def _class_name(self, owner: ClassDef, name: str) -> Value | None:
        key = (owner, name)
        found = self._class_names.get(key)
        if found is not None:
            return found
        if key in self._active:
            self.walker.touch(self._active[key])
            return UNKNOWN
        floor = self._active[key] = self.walker.enter()
        before, self.walker.shallow = self.walker.shallow, False
        try:
            value = self._evaluate_class_name(owner, name)
        finally:
            del self._active[key]
            self.walker.shallow = before
            settled = self.walker.leave(floor)
        if value is not None and settled:
            self._class_names[key] = value
        return value

    def _evaluate_class_name(self, owner: ClassDef, name: str) -> Value | None:
        from cgsafe.walk.frame import Frame
        from cgsafe.walk.walker import Node

        statement, offset = self._statement(owner, name)
        value = getattr(statement, "value", None)
        if value is None:
            return None
        frame = Frame(self.walker, Node(None, HOST, (), owner.scope), None, owner.file, offset)
        frame.class_scope = owner
        if isinstance(statement, ast.Assign) and not any(
            isinstance(t, ast.Name) and t.id == name for t in statement.targets
        ):
            frame.run_module([statement])
            return frame.env.get(name, UNKNOWN)
        if isinstance(value, ast.Call) and _last_name(value.func) in ("field", "Field", "attrib"):
            return self._field_default(frame, value)
        return frame.eval(value)

    def _field_default(self, frame: Any, call: ast.Call) -> Value | None:
        for keyword in call.keywords:
            if keyword.arg == "default":
                result: Value = frame.eval(keyword.value)
                return result
            if keyword.arg in ("default_factory", "factory"):
                result = frame.call_value(frame.eval(keyword.value), Arguments(), call)
                return result
        return None

    def _statement_annotation(self, owner: ClassDef, name: str) -> ast.expr | None:
        statement, _ = self._statement(owner, name)
        return statement.annotation if isinstance(statement, ast.AnnAssign) else None

    def annotated(self, definition: ClassDef, name: str) -> Value | None:
        """What the annotation of a class-level name promises; None where it has none."""
        return self._annotation(definition, name)

    def _annotation(self, definition: ClassDef, name: str) -> Value | None:
        key = (definition, name)
        if key not in self._annotations:
            self._annotations[key] = None  # a class whose annotation leads back to it ends here
            self._annotations[key] = self._read_annotation(definition, name)
        return self._annotations[key]

    def _read_annotation(self, definition: ClassDef, name: str) -> Value | None:
        for entry in self.mro(definition):
            if isinstance(entry, ClassDef) and name in entry.names:
                node = self._statement_annotation(entry, name)
                if node is not None:
                    return annotation_in_file(self.walker, entry.file, node)
        return None

    # -- attributes that other methods set ---------------------------------------------------------------------------

    def late(self, instance: Instance, name: str) -> Value | None:
        """What methods other than the constructor assign to an attribute; None where none does."""
        definition = instance.definition
        table = self._assigning.get(definition)
        if table is None:
            table = self._assigning[definition] = {}
            for entry in self.mro(definition):
                if isinstance(entry, ClassDef):
                    for method in entry.methods.values():
                        for assigned in self._assigned_by(method):
                            table.setdefault(assigned, []).append((method, entry))
        values = [
            value
            for method, entry in table.get(name, ())
            for assigned, value in self._late_values(method, entry)
            if assigned == name
        ]
        return join_all(values) if values else None

    def _late_values(self, method: FunctionDef, owner: ClassDef) -> list[tuple[str, Value]]:
        """What one method assigns to attributes of its object, from arguments of which only the kinds are known.

        Calls are not followed there: such methods (`load_model`, `capture`) reach half of a program.
        """
        found = self._late.get(method)
        if found is None:
            self._late[method] = []  # while it runs
            found = self._late[method] = self._run_for(method, owner, self.generic(owner))
        return found

    def _assigned_by(self, method: FunctionDef) -> frozenset[str]:
        found = self._assigners.get(method)
        if found is None:
            if method.name in ("__init__", "__post_init__"):
                found = frozenset()
            else:
                lines = self.walker.text(method.file).lines[method.first - 1 : method.last]
                text = "\n".join(lines)
                found = frozenset(_assigned_names(text)) if "self" in text else frozenset()
            self._assigners[method] = found
        return found

    def _run_for(self, method: FunctionDef, owner: ClassDef, instance: Instance) -> list[tuple[str, Value]]:
        """The values that one method assigns to attributes of its first argument."""
        from cgsafe.walk.frame import Frame
        from cgsafe.walk.walker import Node

        walker = self.walker
        before, walker.shallow = walker.shallow, True
        try:
            shape = method.shape(walker.text(method.file))
            args = root_arguments(walker, method, instance, HOST)
            bound = bind(walker, method, shape, args, HOST)
            frame = Frame(walker, Node(method, HOST, bound, owner.scope), shape, method.file, method.offset)
            frame.watch = []
            frame.run(bound)
            return frame.watch
        except (SyntaxError, ValueError, RecursionError):
            return []
        finally:
            walker.shallow = before


def _flat(bound: Any) -> list[Value]:
    return [b[1] if isinstance(b, tuple) else b for b in bound]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


_SELF_TARGET = re.compile(r"\bself\.(\w+)\s*(?:=(?!=)|:[^=\n]+=(?!=)|,|\)|[-+*/|&@%^]=|//=|\*\*=|>>=|<<=)")
_SELF_NAMED = re.compile(r"""(?:register_buffer|register_parameter|setattr\(\s*self,|add_module)\W*["'](\w+)["']""")


def _assigned_names(text: str) -> set[str]:
    return {*_SELF_TARGET.findall(text), *_SELF_NAMED.findall(text)}


def is_property(function: FunctionDef) -> bool:
    return any(
        d in ("property", "functools.cached_property", "cached_property", "abc.abstractproperty", "abstractproperty")
        or d.endswith((".getter", "cached_property", "classproperty"))
        for d in function.decorators
    )


def binding(function: FunctionDef) -> str:
    """ "static", "class" or "instance": what the first parameter of a method gets."""
    if "staticmethod" in function.decorators:
        return "static"
    if "classmethod" in function.decorators or function.name in ("__init_subclass__", "__class_getitem__"):
        return "class"
    return "instance" if function.name != "__new__" else "static"


__all__ = ["ClassTable", "State", "Tensor", "binding", "convention", "is_property"]
