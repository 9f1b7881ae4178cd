"""One run of a function body: its statements, its variables and the region it is in."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from cgsafe.events import Event, Place, Region, SiteEvent, varied
from cgsafe.index.project import File
from cgsafe.values import (
    LOW,
    NONE,
    UNKNOWN,
    Answer,
    Class,
    Const,
    Dict,
    Func,
    Instance,
    Seq,
    Union,
    Value,
    answer_in_case,
    join,
    join_all,
    parts_of,
    placed,
    truth,
)
from cgsafe.walk.annotations import annotation_in_file, annotation_value
from cgsafe.walk.arguments import strengthen
from cgsafe.walk.calls import Calls
from cgsafe.walk.conditions import DOUBT, Conditions
from cgsafe.walk.expressions import EXPRESSIONS, Expressions
from cgsafe.walk.fallbacks import Fallbacks
from cgsafe.walk.frozen import Frozen
from cgsafe.walk.indexing import Indexing
from cgsafe.walk.loops import Loops
from cgsafe.walk.memos import DEBUGGED, REMEMBERED, doubted, fills, finds, switched
from cgsafe.walk.once import ONCE, WAITS, Once, fills_once, moved_already
from cgsafe.walk.owned import set_on_held
from cgsafe.walk.paths import dotted_path
from cgsafe.walk.patterns import Patterns
from cgsafe.walk.stores import Stores
from cgsafe.walk.streams import Streams
from cgsafe.walk.withs import Withs

Env = dict[str, Value]


class Frame(Expressions, Calls, Conditions, Indexing, Withs, Loops, Patterns, Stores, Frozen, Streams, Fallbacks):
    """Executes statements on an environment of abstract values.

    `env` maps variable names, and dotted paths such as `self.x` that were assigned or narrowed here, to values.
    """

    def __init__(self, walker: Any, node: Any, shape: Any, file: File, offset: int):
        self.walker = walker
        self.tables = walker.by_package.of(file.module)
        self.node = node
        self.sink = node  # where events and calls go: another node inside a capture that opens here
        self.shape = shape
        self.file = file
        self.offset = offset
        self.region: Region = node.region
        self.env: Env = {}
        self.origins: dict[str, ast.expr] = {}
        self.fallbacks: dict[str, tuple[str, Value]] = {}  # names that are None only where something raised
        self.watch: list[tuple[str, Value]] | None = None  # collects assignments to attributes of `self`
        self.class_scope: Any = None
        self.augmenting = False  # `x += y` is at work: of a tensor, that changes x itself
        self.undecided: tuple[str, ...] = ()  # operands before the one at hand that may end its `and` or `or`
        self.branches = 0  # how many conditions the current statement stands under
        self.tests: list[ast.expr] = []  # those conditions, as far as they are `if`s
        self.loops: list[tuple[list[Env], list[Env]]] = []  # (environments at break, at continue)
        self.returned: list[Value] = []
        self.yielded: list[Value] = []
        self.has_paths = False
        self.heads: set[str] = set()  # what the paths in `env` begin with, or began
        self.host_sources: set[str] = set()  # pinned buffers, by name, that captured code copied from
        self.unrolled = 0  # comprehensions that are being run item by item
        self.entered_streams = 0  # by the `with` statement at hand
        self.default_device = ""  # of an enclosing `with torch.device(...)`
        self.stream_stack: tuple[str, ...] = ()  # streams of the enclosing `with torch.cuda.stream(...)`
        self.streams_seen: list[str] = []
        self.marks: dict[str, Any] | None = file.raw.get("marks")  # what comments say of values

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, args: tuple[Value, ...]) -> Value:
        """Run the function on bound parameter values; returns the join of what it returns."""
        shape, env = self.shape, self.env
        names = list(shape.params)
        if shape.vararg is not None:
            names.append(shape.vararg)
        names.extend(shape.kwonly)
        if shape.kwarg is not None:
            names.append(shape.kwarg)
        marked = self.marks["params"].get(self.node.definition.line, {}) if self.marks is not None else {}
        for name, value in zip(names, args, strict=False):
            if name in marked:
                value = placed(value, marked[name])
            env[name] = value
            if name in shape.cells:
                self.node.cells[name] = value
        if self.region.captured:
            self.note_unbroken()
        falls = self.block(shape.body)
        if shape.is_generator:
            return Seq("list", None, join_all(self.yielded))
        if falls:
            self.returned.append(NONE)
        if not self.returned:
            self.node.raises = True
            result: Value = UNKNOWN
        else:
            result = join_all(self.returned)
            if isinstance(result, Answer) and (outcome := truth(result)) is not None:
                result = Const(outcome)
        if shape.returns is not None and (result is UNKNOWN or UNKNOWN in parts_of(result)):
            annotated = annotation_value(self.walker, self.node.definition, shape.returns, self.region)
            result = strengthen(result, annotated)
        return result

    def run_module(self, body: list[ast.stmt]) -> None:
        """Run statements of a module or class body."""
        self.block(body)

    def block(self, body: list[ast.stmt]) -> bool:
        """Run statements in order; False where the end cannot be reached."""
        table = _STATEMENTS
        for statement in body:
            handler = table.get(statement.__class__)
            if handler is not None and not handler(self, statement):
                return False
        return True

    # -- places and events -----------------------------------------------------------------------------------------

    def place(self, node: Any) -> Place:
        text = self.walker.raw_text(self.file)
        line, end = node.lineno + self.offset, (node.end_lineno or node.lineno) + self.offset
        definition = self.node.definition
        return Place(
            self.file.path,
            line,
            text.column(line, node.col_offset),
            end,
            text.column(end, node.end_col_offset or 0),
            definition.qualname if definition is not None else "<module>",
        )

    def emit(self, kind: type[Event], node: ast.AST, confidence: int, **details: Any) -> None:
        """State an event; only what happens in captured or traced code is of interest, sites always."""
        from cgsafe.findings import Confidence

        here = self.region
        if not here.captured and not here.traced and not issubclass(kind, SiteEvent):
            return
        key = (kind, node.lineno, node.col_offset, details.get("form") or details.get("how") or "")  # type: ignore[attr-defined]
        doubt = self.env.get(DOUBT) if self.has_paths else None
        if self.has_paths and ONCE in self.env and issubclass(kind, WAITS):
            confidence = LOW  # a warm-up has run it
        if isinstance(doubt, Const):
            confidence = LOW
            details["why"] = "; ".join(t for t in (details.get("why", ""), doubt.value) if t)
        present = self.sink.events.get(key)
        if present is not None and present.confidence >= confidence:
            return
        source = details.pop("source", None) or source_of(node)
        place = self.place(node)
        mark = self.tables.accepting_mark(self.walker.raw_text(self.file).lines[place.line - 1])
        if mark:
            if not self.walker.keep_accepted:
                return
            here = varied(here, accepted=mark)
        self.sink.events[key] = kind(
            place=place,
            region=here,
            source=source,
            confidence=Confidence(confidence),
            **details,
        )

    def record_call(self, node: Any, called: Any, note: str = "") -> None:
        """Note that this line calls another node of the graph."""
        if called.streams:
            self.note_stream_call(called)
        self.sink.calls.setdefault((node.lineno + self.offset, called), note)

    # -- variables -------------------------------------------------------------------------------------------------

    def bind_name(self, name: str, value: Value, origin: ast.expr | None = None) -> None:
        if self.has_paths and name in self.heads:
            prefix = name + "."
            for key in [k for k in self.env if k.startswith(prefix)]:
                del self.env[key]
        self.env[name] = value
        if self.fallbacks:
            self.fallbacks.pop(name, None)
        if origin is not None and (self.branches == 0 or name not in self.origins):
            self.origins[name] = origin
        else:
            self.origins.pop(name, None)  # bound in several places: none of them is "the" origin
        shape = self.shape
        if shape is not None and name in shape.cells:
            cells = self.node.cells
            present = cells.get(name)
            cells[name] = value if present is None or present is value else join(present, value)

    def note_path(self, path: str) -> None:
        """From now on `env` holds something under a dotted path."""
        self.has_paths = True
        self.heads.add(path.partition(".")[0])

    def assign(self, target: ast.expr, value: Value, origin: ast.expr | None = None) -> None:
        kind = target.__class__
        if kind is ast.Name:
            self.bind_name(target.id, value, origin)  # type: ignore[attr-defined]
            if self.shape is not None and target.id in self.shape.globals:  # type: ignore[attr-defined]
                self.note_global(target, target.id, value, origin)  # type: ignore[attr-defined]
        elif kind is ast.Tuple or kind is ast.List:
            self.unpack(target.elts, value, target, origin)  # type: ignore[attr-defined]
        elif kind is ast.Attribute:
            self.assign_attribute(target, value, origin)  # type: ignore[arg-type]
        elif kind is ast.Subscript:
            self.assign_item(target, value)  # type: ignore[arg-type]
        elif kind is ast.Starred:
            element = self.element_of(value, target)
            self.assign(target.value, Seq("list", None, element))  # type: ignore[attr-defined]

    def unpack(self, targets: list[ast.expr], value: Value, node: ast.AST, origin: ast.expr | None = None) -> None:
        if isinstance(value, Instance) and self.walker.classes.is_namedtuple(value.definition):
            names = self.walker.classes.field_names(value.definition)
            if len(names) == len(targets):
                value = Seq("tuple", tuple(self.attribute(value, n, None) for n in names))
        if isinstance(value, Seq) and value.items is not None and len(value.items) == len(targets):
            if not any(isinstance(t, ast.Starred) for t in targets):
                sources: list[ast.expr | None] = [origin] * len(targets)
                if isinstance(origin, (ast.Tuple, ast.List)) and len(origin.elts) == len(targets):
                    sources = list(origin.elts)
                for target, item, source in zip(targets, value.items, sources, strict=True):
                    self.assign(target, item, source)
                return
        if isinstance(value, Seq) and value.items is not None and len(value.items) >= len(targets) - 1:
            at = next((n for n, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
            if at is not None:
                after = len(targets) - at - 1
                middle = value.items[at : len(value.items) - after]
                for target, item in zip(targets[:at], value.items, strict=False):
                    self.assign(target, item)
                self.assign(targets[at].value, Seq("list", middle))  # type: ignore[attr-defined]
                for target, item in zip(targets[at + 1 :], value.items[len(value.items) - after :], strict=True):
                    self.assign(target, item)
                return
        element = self.element_of(value, node)
        for target in targets:
            self.assign(target, element, origin)

    def assign_attribute(self, target: ast.Attribute, value: Value, origin: ast.expr | None) -> None:
        base = self.eval(target.value)
        path = dotted_path(target)
        self.note_attribute(target, base, target.attr, value, origin)
        if path is not None:
            self.env[path] = value
            self.note_path(path)
            if origin is not None:
                self.origins[path] = origin
            if self.shape is not None and self.shape.params and path == f"{self.shape.params[0]}.{target.attr}":
                known = self.node.stores.get(target.attr)
                self.node.stores[target.attr] = value if known is None else join(known, value)
                if self.branches or self.returned:
                    self.node.maybe = {*self.node.maybe, target.attr}
            elif self.walker.classes.constructing and not self.region.captured and not self.walker.shallow:
                set_on_held(self, target.value, target.attr, value)
        for part in parts_of(base):
            if isinstance(part, Instance):
                self.walker.classes.store(part, target.attr, value, self.branches == 0)
                if isinstance(origin, ast.Constant) and value is NONE and self.branches == 0:
                    part.state.placeholders.add(target.attr)
            elif isinstance(part, Class) and isinstance(target.value, ast.Name):
                self.override(part, target.attr, value)
        if self.watch is not None and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.watch.append((target.attr, value))

    def override(self, cls: Class, name: str, value: Value) -> None:
        """`cls.forward = ...`: counts while a class decorator runs."""
        if self.walker.decorating is cls.definition:
            cls.definition.overrides[name] = value

    # -- environments ----------------------------------------------------------------------------------------------

    @staticmethod
    def merge(one: Env | None, two: Env | None) -> Env | None:
        if one is None:
            return two
        if two is None or one is two:
            return one
        merged: Env = {}
        for key, value in one.items():
            other = two.get(key)
            if other is None:
                if "." not in key:
                    merged[key] = value
            else:
                merged[key] = value if value is other else join(value, other)
        for key, value in two.items():
            if key not in one and "." not in key:
                merged[key] = value
        return merged

    # -- statements ------------------------------------------------------------------------------------------------

    def do_expr(self, node: ast.Expr) -> bool:
        value = node.value
        if value.__class__ is ast.Constant:
            return True
        self.eval(value)
        return not self.walker.tables.never_returns(value)

    def do_assign(self, node: ast.Assign) -> bool:
        value = self.eval(node.value)
        if self.marks is not None:
            return self.assign_marked(node, node.targets, value)
        for target in node.targets:
            self.assign(target, value, node.value)
        return True

    def assign_marked(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, targets: list[Any], value: Value) -> bool:
        """An assignment in a file whose comments tell where some values live."""
        assert self.marks is not None
        kind, names = self.marks["values"].get(node.lineno + self.offset, ("", ()))
        for target in targets:
            self.assign(target, placed(value, kind) if kind and not names else value, node.value)
        for name in names:
            self.bind_name(name, placed(self.env.get(name, UNKNOWN), kind))
        return True

    def do_ann_assign(self, node: ast.AnnAssign) -> bool:
        if node.value is None:
            return True
        value = self.eval(node.value)
        if value is UNKNOWN or UNKNOWN in parts_of(value):
            annotated = annotation_in_file(self.walker, self.file, node.annotation)
            value = strengthen(value, annotated)
        elif isinstance(node.target, ast.Attribute) and (value is NONE or isinstance(value, (Seq, Dict, Const))):
            annotated = annotation_in_file(self.walker, self.file, node.annotation)
            for part in parts_of(self.eval(node.target.value)):
                if isinstance(part, Instance):
                    self.walker.classes.promised[(part.definition, node.target.attr)] = annotated
            if value is NONE and annotated is not UNKNOWN:
                value = join(NONE, annotated)  # a place that somebody fills later, and what with
        if self.marks is not None:
            return self.assign_marked(node, [node.target], value)
        self.assign(node.target, value, node.value)
        return True

    def do_aug_assign(self, node: ast.AugAssign) -> bool:
        target = node.target
        load: ast.expr
        if isinstance(target, ast.Name):
            load = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        elif isinstance(target, ast.Attribute):
            load = ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
        else:
            load = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
        value = self.binary(node.op, self.eval(load), self.eval(node.value), node)
        self.note_counter(node, value)
        self.augmenting = True
        if self.marks is not None:
            self.assign_marked(node, [target], value)
        else:
            self.assign(target, value)
        self.augmenting = False
        return True

    def do_return(self, node: ast.Return) -> bool:
        value = NONE if node.value is None else self.eval(node.value)
        if self.has_paths and isinstance(doubt := self.env.get(DOUBT), Const):
            value = answer_in_case(value, doubt.value)
        self.returned.append(value)
        return False

    def do_raise(self, node: ast.Raise) -> bool:
        # What a raise evaluates happens on a way out that a capture does not take and survive.
        return False

    def do_if(self, node: ast.If) -> bool:
        form = "elif" if "is_elif" in node.__dict__ else "if"
        if len(node.orelse) == 1 and node.orelse[0].__class__ is ast.If:
            node.orelse[0].is_elif = True  # type: ignore[attr-defined]
        outcome, when_true, when_false = self.condition(node.test, form, node)
        if outcome is None and self.region.captured and self.region.explicit:
            self.note_branch(node)
        once, stored, moved = fills_once(self, node) if self.is_assumed() else Once()
        before = self.env
        within = self.env.get(ONCE)
        fallbacks = dict(self.fallbacks) if self.fallbacks else {}
        falls_one = falls_two = False
        env_one: Env | None = None
        env_two: Env | None = None
        certain = outcome is not None
        if not certain:
            self.branches += 1
            self.tests.append(node.test)
        where = self.region
        if outcome is not False:
            self.env = dict(before) if not certain else before
            self.refine([*when_true, (ONCE, Const(stored))] if once in ("body", "message") else when_true)
            doubt = self.doubt_of(node) if where.captured else ""
            if doubt:
                self.region = doubted(where, doubt)
            falls_one = self.block(node.body)
            if doubt:
                self.region = where
            env_one = self.env if falls_one else None
            if moved and env_one is not None and moved in env_one:
                env_one[moved] = moved_already(env_one[moved])
            if once == "message" and not certain:
                env_one = None  # what others leave for one call is there when they call, not while a graph is recorded
        if outcome is not True:
            self.env = dict(before) if not certain else before
            self.refine(when_false)
            falls_two = self.block(node.orelse)
            env_two = self.env if falls_two else None
        if not certain:
            self.branches -= 1
            self.tests.pop()
        merged = self.merge(env_one, env_two)
        self.env = merged if merged is not None else before
        if once in ("body", "message") and within is None:
            self.env.pop(ONCE, None)
        if len(self.fallbacks) > len(fallbacks) and not certain:
            self.keep_fallbacks(fallbacks, env_two)
        if once == "rest" and not falls_one:
            self.refine([(ONCE, Const(stored))])
        if falls_one and falls_two:
            self._moved_if(node.body)
        if where.captured and self.shape is not None and node.body[0].__class__ is ast.Return and not node.orelse:
            if self.tables.warms and finds(node, self.shape.body):
                self.region = doubted(where, REMEMBERED)
            elif self.tables.switches and isinstance(node.test, ast.UnaryOp) and node in self.shape.body:
                if switched(node.test, self.tables.switches):
                    self.region = doubted(where, DEBUGGED)
        return falls_one or falls_two

    def doubt_of(self, node: ast.If) -> str:
        """Why the body of a condition may not be what a capture runs."""
        if self.tables.warms and fills(node, self.origins, self.shape.locals if self.shape is not None else ()):
            return REMEMBERED
        if (
            self.tables.switches
            and not isinstance(node.test, ast.UnaryOp)
            and switched(node.test, self.tables.switches)
        ):
            return DEBUGGED
        return ""

    def is_assumed(self) -> bool:
        """True in code that counts as captured though no capture of it is seen: nor is the warm-up before it."""
        return self.region.captured and not self.region.explicit

    def _moved_if(self, body: list[ast.stmt]) -> None:
        """Whoever moves a tensor under a condition moves it where that is needed: elsewhere it hardly is on the CPU."""
        for statement in body:
            if statement.__class__ is not ast.Assign or len(statement.targets) != 1:  # type: ignore[attr-defined]
                continue
            call = statement.value  # type: ignore[attr-defined]
            if call.__class__ is not ast.Call or call.func.__class__ is not ast.Attribute:
                continue
            path = dotted_path(statement.targets[0]) if call.func.attr in ("to", "cuda") else None  # type: ignore[attr-defined]
            value = self.env.get(path) if path is not None else None
            if path is not None and isinstance(value, Union):
                self.env[path] = moved_already(value)

    def do_assert(self, node: ast.Assert) -> bool:
        outcome, when_true, _ = self.condition(node.test, "assert", node)
        self.refine(when_true)
        return outcome is not False

    def do_delete(self, node: ast.Delete) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.env.pop(target.id, None)
        return True

    def do_function(self, node: Any) -> bool:
        definition = self.walker.definitions.nested(
            self.file, node, self.offset, self.node.definition, self.class_scope
        )
        scope = self.node if self.shape is not None else self.node.outer
        self.keep_defaults(definition, node.args)
        value: Value = Func(definition, scope)
        if node.decorator_list:
            from cgsafe.walk.decorators import apply

            for decorator in reversed(node.decorator_list):
                value = apply(self, decorator, value)
        self.bind_name(node.name, value)
        return True

    def keep_defaults(self, definition: Any, args: ast.arguments) -> None:
        """Defaults are evaluated where a function is defined, not where it is called."""
        from cgsafe.walk.entry import default_key

        if self.shape is None or not (args.defaults or args.kw_defaults):
            return
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        pairs = [*zip(reversed(names), reversed(args.defaults), strict=False)]
        pairs += [(a.arg, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None]
        for name, default in pairs:
            if not isinstance(default, ast.Constant):
                self.node.cells[default_key(definition, name)] = self.eval(default)

    def do_class(self, node: ast.ClassDef) -> bool:
        definition = self.walker.definitions.nested_class(
            self.file, node, self.offset, self.node.definition, self.node if self.shape is not None else None
        )
        self.bind_name(node.name, Class(definition))
        return True

    def do_import(self, node: ast.Import) -> bool:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            entity = self.walker.project.module_entity(name, self.file)
            self.bind_name(alias.asname or name, self.walker.entity(entity, self.file))
        return True

    def do_import_from(self, node: ast.ImportFrom) -> bool:
        module = self.walker.project.absolute(self.file, node.module or "", node.level)
        for alias in node.names:
            if alias.name == "*":
                continue
            entity = self.walker.project.member(module, alias.name, self.file)
            value = self.walker.entity(entity, self.file) if entity is not None else UNKNOWN
            self.bind_name(alias.asname or alias.name, value)
        return True


def source_of(node: ast.AST) -> str:
    """The source of an expression on one line, shortened."""
    try:
        text = ast.unparse(node)
    except Exception:
        return "<expression>"
    text = " ".join(text.split())
    return text if len(text) <= 100 else text[:97] + "..."


_STATEMENTS: dict[type, Callable[[Frame, Any], bool]] = {
    ast.Expr: Frame.do_expr,
    ast.Assign: Frame.do_assign,
    ast.AnnAssign: Frame.do_ann_assign,
    ast.AugAssign: Frame.do_aug_assign,
    ast.Return: Frame.do_return,
    ast.Raise: Frame.do_raise,
    ast.If: Frame.do_if,
    ast.For: Frame.do_for,
    ast.AsyncFor: Frame.do_for,
    ast.While: Frame.do_while,
    ast.Break: Frame.do_break,
    ast.Continue: Frame.do_continue,
    ast.Try: Frame.do_try,
    ast.With: Frame.do_with,
    ast.AsyncWith: Frame.do_with,
    ast.Assert: Frame.do_assert,
    ast.Delete: Frame.do_delete,
    ast.FunctionDef: Frame.do_function,
    ast.AsyncFunctionDef: Frame.do_function,
    ast.ClassDef: Frame.do_class,
    ast.Import: Frame.do_import,
    ast.ImportFrom: Frame.do_import_from,
    ast.Match: Frame.do_match,
}
EXPRESSIONS[ast.Call] = Frame.ev_call
EXPRESSIONS[ast.Subscript] = Frame.ev_subscript
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = Frame.do_try
