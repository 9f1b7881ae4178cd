"""The walker: runs functions on abstract arguments, once per distinct kind of call, and keeps what happened as a graph.

Each node of the graph is one function with one set of arguments in one kind of region; it holds the events of its own
lines and the calls to other nodes. Paths from roots to hazards are read off this graph afterwards.
"""

from __future__ import annotations

import ast
import hashlib
from typing import Any

from cgsafe.events import HOST, Event, Region
from cgsafe.index.asked import ASKED, Asked, reads_pattern
from cgsafe.index.project import Entity, File, Project
from cgsafe.index.trail import TRAIL, Cell, Memo, settled
from cgsafe.values import (
    NEVER,
    NONE,
    UNKNOWN,
    Class,
    Const,
    Dict,
    Ext,
    Func,
    Host,
    ModuleRef,
    Seq,
    Union,
    Value,
    join_all,
    widen,
)
from cgsafe.walk.arguments import Arguments, bind
from cgsafe.walk.declared import DeclaredFields
from cgsafe.walk.defs import ClassDef, Definitions, FunctionDef, Shape, Text
from cgsafe.walk.facts import FactsByPackage

MAX_STACK = 100  # calls deep; what lies deeper is unknown
MAX_HOST_DEPTH = 2  # calls of host code that are followed while objects are made and decorators applied
MAX_REPEATS = 3  # runs of a recursive function until its result stands still
MAX_REPEATED = 200  # functions that a repeat may run
MAX_SCOPE_DEPTH = 30
UNSURE = ("unsure",)  # a leaf: the outcome rests on more than what was looked at, and is not to be recalled
MAX_CONTEXTS = 5000  # kinds of call of one function; further ones are not followed, and counted


class Node:
    """One function on one set of arguments. Also the scope that functions defined in it close over."""

    __slots__ = (
        "_label",
        "args",
        "calls",
        "cells",
        "definition",
        "deps",
        "depth",
        "done",
        "events",
        "main",
        "maybe",
        "outer",
        "raises",
        "recursed",
        "region",
        "result",
        "result_is_entry",
        "site",
        "sites",
        "stores",
        "streams",
        "warm",
    )

    def __init__(self, definition: FunctionDef | None, region: Region, args: tuple[Value, ...], outer: Node | None):
        self.definition = definition
        self.region = region
        self.args = args
        self.outer = outer
        self.cells: dict[str, Value] = {}
        self.events: dict[Any, Event] = {}
        self.calls: dict[tuple[int, Node], str] = {}  # (line, callee) -> note
        self.sites: list[tuple[int, str, str, Node]] = []  # captures opened here: line, kind, reason, node of the body
        self.warm: set[Any] = set()  # compiled functions that ran here on the host, with the kinds of their arguments
        self.streams: list[Any] = []  # walk.streams.StreamOp: what captured code does with streams, in order
        self.site: Any = None  # of a capture's body: the place where the capture opens
        self.main: Any = None  # of a capture's body: the stream that captures, where it was given
        self.stores: dict[str, Value] = {}  # attributes of the first argument that are set here
        self.maybe: Any = ()  # those of them that may stay as they are
        self.result: Value = NEVER
        self.done = False
        self.deps: Any = ()  # what the outcome rests on, see `cgsafe.index.trail`
        self.recursed = False
        self.raises = False
        self.result_is_entry = False  # stands for the entry into a root, not for code
        self.depth = 1 + max([a.depth for a in args] + [outer.depth if outer is not None else 0])
        self._label: str | None = None

    @property
    def outcome(self) -> Value:
        """What the call returns; of a function that never does, nothing is known."""
        return UNKNOWN if self.done and self.result is NEVER else self.result

    @property
    def label(self) -> str:
        if self._label is None:
            text = repr(
                (
                    self.definition and self.definition.label,
                    [a.label for a in self.args],
                    self.outer and self.outer.label,
                )
            )
            self._label = hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
        return self._label

    def __repr__(self) -> str:
        return f"Node({self.definition}, {self.args})"


class Walker:
    """Holds everything that one process has found out. Its answers do not depend on the order of the questions."""

    def __init__(self, project: Project, read: Any, profile: str = ""):
        from cgsafe.walk.classes import ClassTable

        self.project = project
        self._read = read  # callable: path -> text
        self._profile = profile
        self._texts: dict[str, Text] = {}
        self.definitions = Definitions(self.text)
        self.by_package = FactsByPackage(profile)
        self.by_package.declared = self._declared
        self._fields: dict[tuple[str, ...], DeclaredFields] = {}
        self.tables = self.by_package.general
        self.keep_accepted = False  # walk what stands in blocks in which a wait is accepted, instead of leaving it out
        self.nodes: dict[Any, Node] = {}
        self._provisional: dict[Any, Node] = {}
        self._settled: dict[Any, Node] = {}  # by the arguments as they were given
        self._active: dict[Any, int] = {}  # key -> position on the stack
        self._low: list[float] = []  # per active call: the lowest stack position that its result depends on
        self._names: dict[tuple[str, str], tuple[Value, Any]] = {}
        self._missing: dict[tuple[str, str], Any] = {}  # names that a module does not define
        self._names_active: dict[tuple[str, str], float] = {}
        self._decorated: dict[Any, tuple[Value, Cell]] = {}
        self._decorating: dict[Any, float] = {}
        self.classes = ClassTable(self)
        self.contexts: dict[FunctionDef, int] = {}
        self.statistics: dict[str, int] = {"functions": 0, "cut_depth": 0, "cut_contexts": 0, "faults": 0}
        self.cuts: set[tuple[str, int]] = set()  # functions that were not followed: calls nest too deeply there
        self.faults: dict[tuple[str, int], str] = {}
        self.host_depth = 0  # how many calls of host code deep we are, since an object began to be made
        self.host_limit = MAX_HOST_DEPTH
        self.shallow = False  # calls into the checked code are not followed: only their annotations count
        self.reached: set[ClassDef] = set()  # modules whose forward some walked code calls
        self.capture_bodies: dict[Any, Node] = {}  # (node, line of the `with`) -> what runs inside
        self.compile_sites: dict[Any, Any] = {}
        self.taken_back: dict[Any, bool] = {}  # flags that only handlers of exceptions change: see walk.fallbacks
        self.capturing_compiles: dict[Any, Value] = {}  # torch.compile sites that record graphs of their own
        self.graphed_callables: dict[Any, tuple[Any, Value, Arguments]] = {}  # given to make_graphed_callables
        self.capturing_generators: set[FunctionDef] = set()  # context managers that yield inside a capture
        self.decorating: ClassDef | None = None  # the class whose decorators are being applied
        self.applying: Any = None  # the decorator that is being applied
        self.module_nodes: dict[str, Node] = {}  # path -> the node of a module body that was walked
        self.code: Any = None  # whole files, as `cgsafe.sites` reads them
        self.site_nodes: list[Node] = []  # what was stated about host code around captures
        self._ops: dict[str, Value] | None = None
        self._ops_cell = Cell()
        self._breaks = Memo()  # path -> name -> (decorator, state of the step)
        self.setting = Memo()  # see `walk.once.sets`
        self.annotations = Memo()
        self.answers: dict[Any, Any] = {}  # to questions about files
        self._attribute_reads: dict[tuple[str, str], str | None] = {}

    def apart(self) -> Walker:
        """One that knows nothing yet, for questions whose answers are to leave no trace in this one."""
        return Walker(self.project, self._read, self._profile)

    # -- texts and names -------------------------------------------------------------------------------------------

    # `text` notes that all of a file was looked at. Who looks at a part takes `raw_text`, and notes that part.

    def text(self, file: File) -> Text:
        TRAIL.deps.add(("t", file.path))
        return self.raw_text(file)

    def shape(self, definition: FunctionDef) -> Shape:
        """The parsed function; raises SyntaxError where its lines do not stand alone."""
        if definition.known:
            TRAIL.deps.add(definition.unit)
        return definition.parsed or definition.shape(self.raw_text(definition.file))

    def ask(self, file: File, kind: str, *what: Any) -> Any:
        """The answer to a question about a file."""
        leaf = ("q", file.path, kind, *what)
        TRAIL.deps.add(leaf)
        if leaf not in self.answers:
            self.answers[leaf] = ASKED[kind](Asked(file.raw, self.raw_text(file).lines), *what)
        return self.answers[leaf]

    def lines(self, file: File) -> list[str]:
        """The lines of a file; they are not kept where nobody needed them yet."""
        found = self._texts.get(file.path)
        return (found or Text(self._read(file.path))).lines

    def raw_text(self, file: File) -> Text:
        found = self._texts.get(file.path)
        if found is None:
            found = self._texts[file.path] = Text(self._read(file.path))
        return found

    def _declared(self, module: str, by: tuple[str, ...]) -> frozenset[str]:
        """The names that the code around a module declares to be on the host."""
        file = self.project.find_module(module)
        return self.declared_in(file, by) if file is not None else frozenset()

    def declared_in(self, file: File, by: tuple[str, ...]) -> frozenset[str]:
        """The same for a file. What that rests on is not noted: `cgsafe.around` sees to it."""
        outer, TRAIL.deps = TRAIL.deps, set()
        try:
            return self.fields_declared(by).names(file)
        finally:
            TRAIL.deps = outer

    def fields_declared(self, by: tuple[str, ...]) -> DeclaredFields:
        """What the checked code declares by a call."""
        fields = self._fields.get(by)
        if fields is None:
            fields = self._fields[by] = DeclaredFields(self.project, self._read, by[0], by[1])
        return fields

    def reads_attribute(self, name: str, but: str) -> bool:
        """True where a file other than `but` reads an attribute of that name."""
        TRAIL.deps.add(("w", "reads", name, but))
        return self.reader_of(name, but) is not None

    def reader_of(self, name: str, but: str) -> str | None:
        """The first file other than `but` that reads an attribute of that name."""
        if (name, but) not in self._attribute_reads:
            pattern = reads_pattern(name)
            spelled = f".{name}"
            found = None
            for path in sorted(self.project.files):
                if path != but and spelled in (text := self._read(path)) and pattern.search(text):
                    found = path
                    break
            self._attribute_reads[(name, but)] = found
        return self._attribute_reads[(name, but)]

    def eager_breaks(self, file: File) -> dict[str, tuple[str, frozenset[str]]]:
        """The functions of a file that run between graphs: name -> (decorator, state of the step that they read)."""
        return self._breaks.of(file.path, lambda: self._eager_breaks(file))  # type: ignore[no-any-return]

    def _eager_breaks(self, file: File) -> dict[str, tuple[str, frozenset[str]]]:
        found = {}
        for qualified, decorators in self.ask(file, "decorated"):
            marks = [d for d in decorators if self.tables.breaks_graph(d)]
            if marks:
                definition = self.definitions.function(file, qualified)
                found[qualified] = (marks[0], self.step_state(definition))
        return found

    def step_state(self, definition: FunctionDef) -> frozenset[str]:
        """The module-level variables, and getters without arguments, that a function asks for the state of a step."""
        file = definition.file
        try:
            body = self.shape(definition).body
        except (SyntaxError, ValueError, RecursionError):
            return frozenset()
        names = set()
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                    # A table that is asked for what an argument names is a registry, not the state of a step.
                    named = isinstance(node.slice, ast.Name) and node.slice.id in self.shape(definition).params
                    TRAIL.deps.add(("r", file.path, node.value.id))
                    if node.value.id in file.raw["names"] and not named:
                        names.add(node.value.id)
                elif (
                    isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not (node.args or node.keywords)
                ):
                    if node.func.id.startswith("get_"):
                        names.add(node.func.id)
        return frozenset(names)

    def module_name(self, file: File, name: str) -> Value | None:
        """The value of a name at module level; None where the module does not define it."""
        key = (file.path, name)
        found = self._names.get(key)
        if found is not None:
            TRAIL.deps.add(found[1])
            return found[0]
        missing = self._missing.get(key)
        if missing is not None:
            TRAIL.deps.add(missing)
            return None
        cell = Cell()
        with cell:
            entity = self.project.resolve(file, name)
            if entity is not None:
                floor = self.enter()
                value = self.entity(entity, file)
        if entity is None:
            self._missing[key] = settled(cell)  # mostly a builtin
            return None
        if self.leave(floor):
            self._names[key] = value, settled(cell)
        return value

    def entity(self, entity: Entity, asking: File) -> Value:
        """The value that a resolved name stands for."""
        if entity.kind == "external":
            base, _, last = self.tables.canonical(entity.name).rpartition(".")
            return self.tables.external_attribute(base, last) if base else Ext(last)
        if entity.kind == "module":
            return ModuleRef(entity.name)
        assert entity.file is not None
        if entity.kind == "function":
            return self.decorated(self.definitions.function(entity.file, entity.name), None)
        if entity.kind == "class":
            return Class(self.definitions.class_(entity.file, entity.name))
        return self._global(entity.file, entity.name)

    def _global(self, file: File, name: str) -> Value:
        """The value of a module-level variable: the join of what is assigned to it."""
        key = (file.path, name)
        found = self._names.get(key)
        if found is not None:
            TRAIL.deps.add(found[1])
            return found[0]
        if key in self._names_active:
            self.touch(self._names_active[key])
            return UNKNOWN
        floor = self._names_active[key] = self.enter()
        before = self.shallow, self.host_depth, self.host_limit
        self.shallow, self.host_depth, self.host_limit = False, 0, MAX_HOST_DEPTH
        cell = Cell()
        try:
            with cell:
                value = self._assigned(file, name)
        finally:
            del self._names_active[key]
            self.shallow, self.host_depth, self.host_limit = before
            settled = self.leave(floor)
        if settled:
            self._names[key] = value, cell
        return value

    # What is worked out while something else is still in the making may rest on less than the whole truth. It is then
    # good for the moment, but not remembered: or the outcome would depend on who asked first.

    def enter(self) -> float:
        """Begin to work something out; returns what `touch` and `leave` want to know."""
        self._low.append(float(len(self._active)))
        return len(self._active) - 0.5

    def touch(self, floor: float) -> None:
        """Something is asked for that is still in the making, since `floor`."""
        if self._low:
            self._low[-1] = min(self._low[-1], floor)

    def leave(self, floor: float) -> bool:
        """End what `enter` began; False where the outcome rests on something that is still in the making."""
        low = self._low.pop()
        if low < floor:
            self.touch(low)
            return False
        return True

    def _assigned(self, file: File, name: str) -> Value:
        from cgsafe.walk.frame import Frame

        TRAIL.deps.add(("r", file.path, name))
        TRAIL.deps.add(("r", file.path, "__getattr__"))
        spans = file.raw["names"][name]
        values: list[Value] = []
        for first, last in spans[-4:]:
            try:
                body, offset = self.raw_text(file).parse(first, last)
            except SyntaxError:
                return UNKNOWN
            frame = Frame(self, Node(None, HOST, (), None), None, file, offset)
            frame.run_module(body)
            value = frame.env.get(name)
            values.append(value if value is not None else UNKNOWN)
        value = join_all(values)
        if "__getattr__" in file.raw["functions"] and self.raw_text(file).lines[spans[0][0] - 1][:1].isspace():
            return widen(value)  # declared for type checkers only: what it holds is worked out by `__getattr__`
        if value is NONE:
            return UNKNOWN  # a place that somebody fills later
        if (isinstance(value, Seq) and value.items == ()) or (isinstance(value, Dict) and not value.items):
            from cgsafe.walk.registries import fill

            return fill(self, file, name, value)
        if isinstance(value, (Const, Host)) or value is UNKNOWN or isinstance(value, Union):
            if self.ask(file, "global", name):
                # Rebound at run time: only its type is left.
                return UNKNOWN if value is NONE or not isinstance(value, Const) else Host("object")
        return value

    # -- functions -------------------------------------------------------------------------------------------------

    def decorated(self, definition: FunctionDef, scope: Node | None) -> Value:
        """A function with its decorators applied."""
        value: Value = Func(definition, scope)
        if not definition.decorators:
            return value
        key = (definition, scope)
        found = self._decorated.get(key)
        if found is not None:
            TRAIL.deps.add(found[1])
            return found[0]
        transparent = self.by_package.of(definition.file.module).transparent
        if all(d.rpartition(".")[2] in transparent for d in definition.decorators):
            self._decorated[key] = value, Cell()
            return value
        if key in self._decorating:
            self.touch(self._decorating[key])
            return value
        floor = self._decorating[key] = self.enter()
        from cgsafe.walk.decorators import decorate

        before = self.shallow, self.host_depth, self.host_limit
        self.shallow, self.host_depth, self.host_limit = False, 0, MAX_HOST_DEPTH
        cell = Cell()
        try:
            with cell:
                result = decorate(self, definition, scope, value)
        finally:
            del self._decorating[key]
            self.shallow, self.host_depth, self.host_limit = before
            settled = self.leave(floor)
        if settled:
            self._decorated[key] = result, cell
        return result

    def call(self, definition: FunctionDef, scope: Node | None, args: Arguments, region: Region) -> Node:
        """Run a function on abstract arguments in a kind of region; the node holds the outcome."""
        try:
            shape = self.shape(definition)
        except (SyntaxError, ValueError, RecursionError):
            node = Node(definition, region, (), scope)
            node.done = True
            return node
        host = not region.captured and not region.traced
        if self.shallow or (host and self.host_depth >= self.host_limit and definition.name != "__init__"):
            return self._glance(definition, scope, shape, region)
        given = None
        if scope is None:
            # Outside of closures, the same arguments bind to the same values: what they led to is known at once.
            given = (definition, region, tuple(args.positional), tuple(args.keywords.items()), args.star, args.rest)
            settled = self._settled.get(given)
            if settled is not None:
                TRAIL.deps.add(settled)
                return settled
        bound = bind(self, definition, shape, args, region, scope)
        key = (definition, scope, region, bound)
        known = self.nodes.get(key) or self._provisional.get(key)
        if known is not None:
            TRAIL.deps.add(known)
            if not known.done:
                known.recursed = True
                position = self._active.get(key, 0)
                if self._low:
                    self._low[-1] = min(self._low[-1], position)
            elif given is not None and key in self.nodes:
                self._settled[given] = known
            return known
        node = Node(definition, region, bound, scope)
        TRAIL.deps.add(node)
        if len(self._active) >= MAX_STACK or node.depth > MAX_SCOPE_DEPTH + 4:
            self.statistics["cut_depth"] += 1
            if len(self._active) >= MAX_STACK:
                self.cuts.add((definition.file.path, definition.line))
            TRAIL.deps.add(UNSURE)  # how deep calls nest depends on where they began
            node.done = True
            return node
        count = self.contexts.get(definition, 0)
        if count >= MAX_CONTEXTS:
            self.statistics["cut_contexts"] += 1
            TRAIL.deps.add(UNSURE)
            node.done = True
            return node
        self.contexts[definition] = count + 1
        if host and definition.name != "__init__":
            self.host_depth += 1
            self._run(key, node, shape)
            self.host_depth -= 1
        else:
            self._run(key, node, shape)
        if given is not None and key in self.nodes:
            self._settled[given] = node
        return node

    def _glance(self, definition: FunctionDef, scope: Node | None, shape: Any, region: Region) -> Node:
        """A call that is not followed: its annotation says what comes back."""
        from cgsafe.walk.annotations import annotation_value

        node = Node(definition, region, (), scope)
        node.done = True
        if shape.returns is not None:
            node.result = annotation_value(self, definition, shape.returns, region)
        return node

    def _run(self, key: Any, node: Node, shape: Any) -> None:
        from cgsafe.walk.frame import Frame

        definition = node.definition
        assert definition is not None
        position = len(self._active)
        self.nodes[key] = node
        self._active[key] = position
        self._low.append(position)
        self.statistics["functions"] += 1
        outer, TRAIL.deps = TRAIL.deps, set()
        try:
            for _ in range(MAX_REPEATS):
                started = self.statistics["functions"]
                before = node.result
                node.recursed = False
                frame = Frame(self, node, shape, definition.file, definition.offset)
                try:
                    node.result = frame.run(node.args)
                except RecursionError:
                    self.statistics["cut_depth"] += 1
                    TRAIL.deps.add(UNSURE)
                    node.result = UNKNOWN
                if not node.recursed or node.result is before:
                    break
                if self.statistics["functions"] - started > MAX_REPEATED:
                    break  # a large knot of functions: once more would not pay
                self._provisional.clear()
        except Exception as error:  # a fault of the walk must not take the other findings with it
            self.statistics["faults"] += 1
            text = f"internal error while walking this function: {type(error).__name__}: {error}"
            self.faults.setdefault((definition.file.path, definition.line), text)
            if self.tables.debug:
                raise
            node.result = UNKNOWN
        finally:
            node.deps = tuple(TRAIL.deps)
            TRAIL.deps = outer
            node.done = True
            del self._active[key]
            low = self._low.pop()
        if low < position:
            # The result rests on a call that is still running: good for that call only.
            del self.nodes[key]
            self._provisional[key] = node
            if self._low:
                self._low[-1] = min(self._low[-1], low)
        elif self._provisional and position == 0:
            self._provisional.clear()

    def all_nodes(self) -> list[Node]:
        """Every node that was walked, those of captures and of module bodies included."""
        return [*self.nodes.values(), *self.module_nodes.values(), *self.capture_bodies.values(), *self.site_nodes]

    def module_path(self, node: Node) -> str:
        return next((path for path, present in self.module_nodes.items() if present is node), "")

    # -- compiled functions and operators --------------------------------------------------------------------------

    def custom_ops(self) -> dict[str, Value]:
        """Operator name -> the function of the checked code that is registered for it."""
        if self._ops is None:
            from cgsafe.walk.compiled import find_custom_ops

            self._ops = {}
            with self._ops_cell:
                self._ops = find_custom_ops(self)
        TRAIL.deps.add(self._ops_cell)
        return self._ops
