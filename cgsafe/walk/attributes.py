"""Attributes of instances and classes: what constructors, class bodies, annotations and other methods give them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST, Place
from cgsafe.index.asked import assigned_names
from cgsafe.index.trail import TRAIL, Cell
from cgsafe.values import (
    MAX_PARTS,
    NONE,
    UNKNOWN,
    Bound,
    Class,
    Const,
    Dict,
    Func,
    Instance,
    Seq,
    Tensor,
    Value,
    join,
    join_all,
    parts_of,
)
from cgsafe.walk.annotations import annotation_in_file
from cgsafe.walk.arguments import Arguments, bind
from cgsafe.walk.defs import ClassDef, FunctionDef
from cgsafe.walk.entry import open_value, or_captured, root_arguments

if TYPE_CHECKING:
    from cgsafe.walk.classes import ClassTable


MAX_IMPLEMENTATIONS = 3  # of an abstract method; more are not followed
MAX_ANSWERS = 8  # the same, of one that only asks: without arguments
MAX_SUBCLASSES = 40
MAX_HOT_SUBCLASSES = 400  # in a hot path, where models are reached through a protocol alone
_BARE_BASES = ("abc.ABC", "builtins.object", "typing.Generic", "typing.Protocol")


class Attributes:
    """Mixin of ClassTable: answers what an attribute holds."""

    # -- attributes ------------------------------------------------------------------------------------------------

    def attribute(self: ClassTable, instance: Instance, name: str, frame: Any, node: ast.AST | None) -> Value | None:
        """What an attribute of an instance holds; None where nothing is known of it."""
        state = instance.state
        if state.generic and frame is not None and frame.region.hot:
            implemented = self._hot_implementations(instance.definition, name)
            if implemented is not None:
                return implemented  # not remembered: captured code follows fewer
        if name in state.known:
            TRAIL.deps.add(state)
            return state.known[name]
        if self.constructing or self.walker.shallow:
            value = self._attribute(instance, name, frame, node)
        else:
            with state:
                value = self._attribute(instance, name, frame, node)
        if value is not None and self.walker.by_package.of(instance.definition.file.module).names_host(name):
            from cgsafe.walk.calls import on_host

            value = on_host(value)
            if name in self.walker.by_package.of(instance.definition.file.module).declared:
                value = or_captured(value)
        if not self.constructing and not self.walker.shallow:
            found = self.find(instance.definition, name)
            depends = name in state.attributes and _may_move(state.attributes[name])  # on who asks: see `_moved`
            if not depends and (found is None or not isinstance(found[1], FunctionDef) or not is_property(found[1])):
                state.known[name] = value
        return value

    def _attribute(self: ClassTable, instance: Instance, name: str, frame: Any, node: ast.AST | None) -> Value | None:
        definition, state = instance.definition, instance.state
        self.ensure_made(instance)
        found = self.find(definition, name)
        if found is not None and isinstance(found[1], FunctionDef) and is_property(found[1]):
            return self.read_property(found[1], found[0], instance, frame, node)
        if state.generic and found is not None and isinstance(found[1], FunctionDef) and self.is_abstract(found[1]):
            if self._asks(found[1]):
                implemented = self.implementations(definition, name, MAX_ANSWERS)
                # Of very many those beside the abstract one stand for all.
                implemented = implemented or self.implementations(definition, name, MAX_ANSWERS, beside=True)
            else:
                implemented = self.implementations(definition, name, MAX_IMPLEMENTATIONS)
            if implemented:
                return join_all(implemented)
        value = state.attributes.get(name)
        if value is not None:
            if _may_move(value):
                return self._moved(instance, name, value, frame)
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

    def _moved(self: ClassTable, instance: Instance, name: str, made: Value, frame: Any) -> Value:
        """A tensor that the constructor leaves on the CPU: where another method moves it, only that one sees it there."""
        late = self.late(instance, name)
        if late is None or not any(isinstance(p, Tensor) and not _may_move(p) for p in parts_of(late)):
            return made
        reader = frame.node.definition if frame is not None else None
        moves = any(method is reader for method, _ in self._assigning[instance.definition][name])
        return made if moves else late

    def lacks(self: ClassTable, value: Value, name: str) -> bool:
        """True for an object that surely has no such attribute."""
        if not isinstance(value, Instance) or any(e not in _BARE_BASES for e in self.externals(value.definition)):
            return False
        return self.find(value.definition, "__getattr__") is None and self.attribute(value, name, None, None) is None

    def _hot_implementations(self: ClassTable, definition: ClassDef, name: str) -> Value | None:
        """Methods that stand for an abstract one; None where it is not abstract, or nothing stands for it."""

        def work() -> Value | None:
            found = self.find(definition, name)
            methods: list[Value] = []
            if found is not None and isinstance(found[1], FunctionDef) and self.is_abstract(found[1]):
                if not is_property(found[1]):
                    methods = self.implementations(definition, name, MAX_HOT_SUBCLASSES, MAX_HOT_SUBCLASSES)
            # As many as a union holds, in the order of their files: each stands for the others.
            return join_all(methods[:MAX_PARTS]) if methods else None

        return self._hot.of((definition, name), work)  # type: ignore[no-any-return]

    def implementations(
        self: ClassTable, definition: ClassDef, name: str, limit: int, most: int = MAX_SUBCLASSES, beside: bool = False
    ) -> list[Value]:
        """The methods that the known subclasses have for an abstract one; none where there are too many to follow.

        `beside`: only those subclasses count that lie in the same file, and inherit from none in others.
        """
        found: dict[FunctionDef, Value] = {}
        seen: set[ClassDef] = set()
        waiting = [definition]
        while waiting:
            cls = waiting.pop(0)
            for sub in self.subclasses(cls):
                if sub in seen or (beside and sub.file is not definition.file):
                    continue
                seen.add(sub)
                waiting.append(sub)
                method = sub.methods.get(name)
                if method is None or self.is_abstract(method):
                    continue
                value = self.member(sub, name, method, self.generic(sub))
                if value is not None:
                    found[method] = value
            if len(seen) > most or len(found) > limit:
                return []
        return list(found.values())

    def _asks(self: ClassTable, function: FunctionDef) -> bool:
        try:
            shape = self.walker.shape(function)
        except (SyntaxError, ValueError, RecursionError):
            return False
        return len(shape.params) == 1 and not shape.kwonly

    def is_abstract(self: ClassTable, function: FunctionDef) -> bool:
        """`raise NotImplementedError` as all of a body, an abstract method, or a method that a protocol only names."""
        TRAIL.deps.add(_about(function, "abstract"))
        if function.cls is not None:
            TRAIL.deps.add(function.cls.cell)
        known = self._abstract.get(function)
        if known is None:
            known = self._abstract[function] = self._is_abstract(function)
        return known

    def _is_abstract(self: ClassTable, function: FunctionDef) -> bool:
        if any(d.endswith("abstractmethod") for d in function.decorators):
            return True
        text = self.walker.raw_text(function.file)
        named = self._is_protocol(function.cls)
        if not named and not any(
            "NotImplementedError" in line for line in text.lines[function.first - 1 : function.last]
        ):
            return False
        try:
            body = function.shape(text).body
        except (SyntaxError, ValueError, RecursionError):
            return False
        real = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        if named and not real:
            return True  # `...`, or nothing but a docstring
        return bool(real) and isinstance(real[0], ast.Raise)

    def _is_protocol(self: ClassTable, definition: ClassDef | None) -> bool:
        info = definition.file.raw["classes"].get(definition.qualname) if definition is not None else None
        bases = info["bases"] if info is not None else ()  # a class inside a function is not in the index
        return any(b.partition("[")[0].rpartition(".")[2] == "Protocol" for b in bases)

    def _open_field(self: ClassTable, definition: ClassDef, name: str, default: Value) -> Value:
        annotated = self._annotation(definition, name)
        if annotated is not None and annotated is not UNKNOWN:
            return annotated
        return open_value(default)

    def read_property(
        self: ClassTable, function: FunctionDef, owner: ClassDef, instance: Value, frame: Any, node: Any
    ) -> Value:
        region = frame.region if frame is not None else HOST
        called = self.walker.call(function, owner.scope, Arguments([instance]), region)
        if frame is not None and node is not None:
            frame.record_call(node, called)
        return called.outcome

    def member(self: ClassTable, owner: ClassDef, name: str, what: Any, receiver: Value | None) -> Value | None:
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

    def _statement(self: ClassTable, owner: ClassDef, name: str) -> tuple[ast.stmt | None, int]:
        key = (owner, name)
        found = self._statements.get(key)
        if found is None:
            found = self._statements[key] = self._parse_statement(owner, name)
        return found

    def _parse_statement(self: ClassTable, owner: ClassDef, name: str) -> tuple[ast.stmt | None, int]:
        what = owner.names.get(name)
        if isinstance(what, ast.stmt):
            return what, owner.offset
        if not what:
            return None, 0
        first, last = what[-1]
        try:
            body, offset = self.walker.raw_text(owner.file).parse(first, last)
        except SyntaxError:
            return None, 0
        for statement in body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if statement.target.id == name:
                    return statement, offset
            elif isinstance(statement, ast.Assign):
                return statement, offset
        return None, 0

    def _class_name(self: ClassTable, owner: ClassDef, name: str) -> Value | None:
        key = (owner, name)
        TRAIL.deps.add(owner.cell)
        found = self._class_names.get(key)
        if found is not None:
            return found
        if key in self._active:
            self.walker.touch(self._active[key])
            return UNKNOWN
        floor = self._active[key] = self.walker.enter()
        before, self.walker.shallow = self.walker.shallow, False
        try:
            with owner.cell:
                value = self._evaluate_class_name(owner, name)
        finally:
            del self._active[key]
            self.walker.shallow = before
            settled = self.walker.leave(floor)
        if value is not None and settled:
            self._class_names[key] = value
        return value

    def _evaluate_class_name(self: ClassTable, owner: ClassDef, name: str) -> Value | None:
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
        result = frame.eval(value)
        if (isinstance(result, Seq) and result.items == ()) or (isinstance(result, Dict) and not result.items):
            from cgsafe.walk.registries import fill_of_class

            return fill_of_class(self.walker, owner, name, result)
        return result

    def _field_default(self: ClassTable, frame: Any, call: ast.Call) -> Value | None:
        for keyword in call.keywords:
            if keyword.arg == "default":
                result: Value = frame.eval(keyword.value)
                return result
            if keyword.arg in ("default_factory", "factory"):
                result = frame.call_value(frame.eval(keyword.value), Arguments(), call)
                return result
        return None

    def _statement_annotation(self: ClassTable, owner: ClassDef, name: str) -> ast.expr | None:
        statement, _ = self._statement(owner, name)
        return statement.annotation if isinstance(statement, ast.AnnAssign) else None

    def annotated(self: ClassTable, definition: ClassDef, name: str) -> Value | None:
        """What the annotation of a class-level name promises; None where it has none."""
        return self._annotation(definition, name)

    def _annotation(self: ClassTable, definition: ClassDef, name: str) -> Value | None:
        key = (definition, name)
        TRAIL.deps.add(definition.cell)
        if key not in self._annotations:
            self._annotations[key] = None  # a class whose annotation leads back to it ends here
            with definition.cell:
                self._annotations[key] = self._read_annotation(definition, name)
        return self._annotations[key]

    def _read_annotation(self: ClassTable, definition: ClassDef, name: str) -> Value | None:
        for entry in self.mro(definition):
            if isinstance(entry, ClassDef) and name in entry.names:
                node = self._statement_annotation(entry, name)
                if node is not None:
                    return annotation_in_file(self.walker, entry.file, node)
        return None

    # -- attributes that other methods set ---------------------------------------------------------------------------

    def late(self: ClassTable, instance: Instance, name: str) -> Value | None:
        """What methods other than the constructor assign to an attribute; None where none does."""
        definition = instance.definition
        TRAIL.deps.add(definition.cell)
        table = self._assigning.get(definition)
        if table is None:
            table = self._assigning[definition] = {}
            with definition.cell:
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

    def made_at(self: ClassTable, definition: ClassDef, name: str) -> Place | None:
        """Where the constructor gives an attribute its value."""
        init = self.initializer(definition)
        if init is None:
            return None
        method = init[1]
        text = self.walker.raw_text(method.file)
        try:
            body = self.walker.shape(method).body
        except (SyntaxError, ValueError, RecursionError):
            return None
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
                    line, end = statement.lineno + method.offset, (statement.end_lineno or 0) + method.offset
                    return Place(
                        method.file.path,
                        line,
                        text.column(line, statement.col_offset),
                        end,
                        text.column(end, statement.end_col_offset or 0),
                        method.qualname,
                    )
        return None

    def setters(self: ClassTable, definition: ClassDef, name: str) -> set[FunctionDef]:
        """The methods other than the constructor that may set an attribute, by the text of their lines."""
        self.late(self.generic(definition), name)
        return {m for m, _ in self._assigning[definition].get(name, ()) if not self.walker.tables.sets_up(m.name)}

    def changers(self: ClassTable, definition: ClassDef, name: str) -> list[FunctionDef]:
        """The methods other than the constructor that set an attribute to something that depends on their arguments."""
        self.late(self.generic(definition), name)
        return [m for m, _ in self._assigning[definition].get(name, ()) if _depends(self.walker, m, name)]

    def _late_values(self: ClassTable, method: FunctionDef, owner: ClassDef) -> list[tuple[str, Value]]:
        """What one method assigns to attributes of its object, from arguments of which only the kinds are known.

        Calls are not followed there: such methods (`load_model`, `capture`) reach half of a program.
        """
        found = self._late.get(method)
        if found is None:
            cell = Cell()
            self._late[method] = [], cell  # while it runs
            with cell:
                found = self._late[method] = self._run_for(method, owner, self.generic(owner)), cell
        else:
            TRAIL.deps.add(found[1])
        return found[0]

    def _assigned_by(self: ClassTable, method: FunctionDef) -> frozenset[str]:
        TRAIL.deps.add(_about(method, "sets"))
        found = self._assigners.get(method)
        if found is None:
            if method.name in ("__init__", "__post_init__"):
                found = frozenset()
            else:
                lines = self.walker.raw_text(method.file).lines[method.first - 1 : method.last]
                found = frozenset(assigned_names("\n".join(lines)))
            self._assigners[method] = found
        return found

    def _run_for(self: ClassTable, method: FunctionDef, owner: ClassDef, instance: Instance) -> list[tuple[str, Value]]:
        """The values that one method assigns to attributes of its first argument."""
        from cgsafe.walk.frame import Frame
        from cgsafe.walk.walker import Node

        walker = self.walker
        before, walker.shallow = walker.shallow, True
        try:
            shape = walker.shape(method)
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


def _depends(walker: Any, method: FunctionDef, name: str) -> bool:
    """True where a method sets the attribute from its own parameters, or counts in it."""
    try:
        shape = walker.shape(method)
    except (SyntaxError, ValueError, RecursionError):
        return False
    given = {*shape.named[1:], *shape.globals}
    for statement in shape.body:
        for node in ast.walk(statement):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if _assigns(node) else []  # type: ignore[attr-defined]
            if not any(isinstance(t, ast.Attribute) and t.attr == name for t in targets):
                continue
            value = node.value  # type: ignore[attr-defined]
            if isinstance(node, ast.AugAssign):
                return True
            if value is not None and any(isinstance(n, ast.Name) and n.id in given for n in ast.walk(value)):
                return True
    return False


def _assigns(node: ast.AST) -> bool:
    return isinstance(node, (ast.AnnAssign, ast.AugAssign))


def _may_move(value: Value) -> bool:
    """True for a tensor that is not on the GPU, or not known to be."""
    return isinstance(value, Tensor) and value.device in ("cpu", "")


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _about(function: FunctionDef, kind: str) -> Any:
    """The leaf of a question about a function's text. What lies in a function was looked at with that."""
    return ("q", function.unit[1], kind, function.unit[2]) if function.known else function.unit


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
