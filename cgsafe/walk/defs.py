"""Functions and classes of the checked code as the walk sees them; their syntax trees are parsed when first needed."""

from __future__ import annotations

import ast
import warnings
from functools import cache
from typing import Any

from cgsafe.index.build import dotted
from cgsafe.index.project import File
from cgsafe.index.trail import TRAIL, Cell

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Text:
    """The lines of a file, split where Python splits them."""

    __slots__ = ("lines",)

    def __init__(self, text: str):
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def column(self, line: int, offset: int) -> int:
        """The column (from 1, in characters) of a byte offset as `ast` gives it."""
        if not 0 < line <= len(self.lines):
            return offset + 1
        text = self.lines[line - 1]
        if text.isascii():
            return offset + 1
        return len(text.encode()[:offset].decode(errors="replace")) + 1

    def parse(self, first: int, last: int) -> tuple[list[ast.stmt], int]:
        """The statements on some whole lines, and what to add to their line numbers."""
        lines = self.lines[first - 1 : last]
        indented = lines[0][:1] in (" ", "\t", "\f")
        source = "\n".join(lines)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if indented:
                body = ast.parse("if 1:\n" + source).body[0].body  # type: ignore[attr-defined]
                return body, first - 2
            return ast.parse(source).body, first - 1


class FunctionDef:
    """A function, method or lambda. One object per place in the code, so that it serves as a key."""

    __slots__ = (
        "cls",
        "decorators",
        "file",
        "first",
        "known",
        "label",
        "last",
        "line",
        "name",
        "node",
        "offset",
        "outer",
        "parsed",
        "qualname",
        "unit",
    )

    def __init__(
        self,
        file: File,
        qualname: str,
        first: int,
        line: int,
        last: int,
        cls: ClassDef | None = None,
        outer: FunctionDef | None = None,
        node: FunctionNode | None = None,
        offset: int = 0,
        decorators: tuple[str, ...] = (),
    ):
        self.file = file
        self.qualname = qualname
        self.name = qualname.rpartition(".")[2]
        self.first = first
        self.line = line
        self.last = last
        self.cls = cls
        self.outer = outer
        self.node = node
        self.offset = offset
        self.decorators = decorators
        self.known = node is None  # to the index; others are parts of what is, or of a statement
        self.unit = ("f", file.path, qualname)  # as a leaf, see `cgsafe.index.trail`
        self.label = f"{file.module}.{qualname}"
        if node is not None:
            # Counted from where its outermost function, or its statement, begins: lines above change no order.
            top = outer
            while top is not None and top.outer is not None:
                top = top.outer
            self.label += f":{line - top.first if top is not None else ast.unparse(node)}:{node.col_offset}"
        self.parsed: Shape | None = None

    def __repr__(self) -> str:
        return f"FunctionDef({self.label})"

    def shape(self, text: Text) -> Shape:
        """The parsed function; raises SyntaxError where its lines do not stand alone."""
        if self.parsed is None:
            if self.node is None:
                body, self.offset = text.parse(self.first, self.last)
                for statement in body:
                    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name == self.name:
                        self.node = statement
                        break
                else:
                    raise SyntaxError(f"no function {self.name} at {self.file.path}:{self.line}")
            lines = text.lines[self.first - 1 : self.last]
            deep = any("lambda" in line or ":=" in line or "yield" in line for line in lines)
            self.parsed = Shape(self.node, deep)
        return self.parsed


class Shape:
    """What of a function's tree the walk asks for at every call."""

    __slots__ = (
        "annotations",
        "body",
        "cells",
        "defaults",
        "globals",
        "is_generator",
        "kwarg",
        "kwonly",
        "locals",
        "named",
        "params",
        "returns",
        "vararg",
    )

    def __init__(self, node: FunctionNode, deep: bool = True):
        args = node.args
        self.params = [a.arg for a in (*args.posonlyargs, *args.args)]
        self.vararg = args.vararg.arg if args.vararg else None
        self.kwonly = [a.arg for a in args.kwonlyargs]
        self.kwarg = args.kwarg.arg if args.kwarg else None
        self.named = (*self.params, *self.kwonly)
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        self.annotations: dict[str, ast.expr] = {a.arg: a.annotation for a in every if a.annotation is not None}
        if args.vararg and args.vararg.annotation:
            self.annotations[args.vararg.arg] = args.vararg.annotation
        if args.kwarg and args.kwarg.annotation:
            self.annotations[args.kwarg.arg] = args.kwarg.annotation
        self.defaults: dict[str, ast.expr] = {}
        for name, default in zip(reversed(self.params), reversed(args.defaults), strict=False):
            self.defaults[name] = default
        for name, keyword_default in zip(self.kwonly, args.kw_defaults, strict=True):
            if keyword_default is not None:
                self.defaults[name] = keyword_default
        self.returns: ast.expr | None = None
        if isinstance(node, ast.Lambda):
            self.body: list[ast.stmt] = [ast.copy_location(ast.Return(node.body), node.body)]
        else:
            self.body = node.body
            self.returns = node.returns
        self.locals: set[str] = {*self.params, *self.kwonly}
        if self.vararg:
            self.locals.add(self.vararg)
        if self.kwarg:
            self.locals.add(self.kwarg)
        self.globals: set[str] = set()
        self.is_generator = False
        self.cells: set[str] = set()  # names that nested functions read
        self._scan(self.body, deep)
        self.locals -= self.globals

    def _scan(self, body: list[Any], deep: bool) -> None:
        """Find the names that are bound here and those that nested functions read.

        Not `deep`: expressions hold no lambda, no walrus and no yield, so only statements and their targets count.
        """
        stack: list[Any] = list(body)
        while stack:
            node = stack.pop()
            kind = node.__class__
            if kind is ast.Constant or node is None or kind is str:
                continue
            if kind is ast.Name:
                if node.ctx.__class__ is not ast.Load:
                    self.locals.add(node.id)
                continue
            if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef or kind is ast.ClassDef:
                self.locals.add(node.name)
                self.cells.update(_names(node))
                continue
            if kind is ast.Lambda:
                self.cells.update(_names(node))
                continue
            if kind is ast.Yield or kind is ast.YieldFrom:
                self.is_generator = True
            elif kind is ast.Global or kind is ast.Nonlocal:
                self.globals.update(node.names)
            elif kind is ast.Import or kind is ast.ImportFrom:
                for alias in node.names:
                    self.locals.add((alias.asname or alias.name).partition(".")[0])
            elif kind is ast.ExceptHandler and node.name:
                self.locals.add(node.name)
            elif kind is ast.MatchAs or kind is ast.MatchStar:
                if node.name:
                    self.locals.add(node.name)
            elif kind is ast.MatchMapping and node.rest:
                self.locals.add(node.rest)
            for field in _fields(kind, deep):
                child = getattr(node, field, None)
                if child.__class__ is list:
                    stack.extend(child)
                elif child is not None:
                    stack.append(child)


@cache
def _fields(kind: type[ast.AST], deep: bool) -> tuple[str, ...]:
    """The fields of a kind of node in which names are bound."""
    return tuple(f for f in kind._fields if f not in _PLAIN and (deep or f not in _VALUES))


# Fields that hold no nodes, or such as bind nothing, and those of statements that hold nothing but values.
_PLAIN = frozenset(
    ("attr", "conversion", "ctx", "id", "is_async", "level", "module", "op", "ops", "simple", "type_comment")
)
_VALUES = frozenset(("value", "test", "iter", "exc", "cause", "msg", "context_expr", "subject", "guard", "annotation"))


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if n.__class__ is ast.Name}  # type: ignore[attr-defined]


class ClassDef:
    """A class. One object per place in the code."""

    __slots__ = (
        "bases",
        "cell",
        "decorators",
        "file",
        "label",
        "line",
        "methods",
        "mro",
        "name",
        "names",
        "offset",
        "overrides",
        "qualname",
        "scope",
        "unit",
    )

    def __init__(self, file: File, qualname: str, line: int, decorators: tuple[str, ...], scope: Any = None):
        self.file = file
        self.qualname = qualname
        self.name = qualname.rpartition(".")[2]
        self.line = line
        self.decorators = decorators
        self.scope = scope
        self.unit = ("c", file.path, qualname)  # as a leaf, see `cgsafe.index.trail`
        self.cell = Cell()  # what its bases, its decorators and its own names rest on
        self.label = f"{file.module}.{qualname}" if scope is None else f"{file.module}.{qualname}:{scope.label}"
        self.bases: list[ast.expr] = []
        self.methods: dict[str, FunctionDef] = {}
        self.names: dict[str, list[tuple[int, int]] | ast.stmt] = {}  # spans in the file, or the statement itself
        self.offset = 0
        self.mro: list[ClassDef | str] | None = None  # str: a class outside the checked code
        self.overrides: dict[str, Any] = {}  # attributes that class decorators replaced

    def __repr__(self) -> str:
        return f"ClassDef({self.label})"


class Definitions:
    """All functions and classes met so far."""

    def __init__(self, texts: Any):
        self._texts = texts  # callable: File -> Text
        self._functions: dict[Any, FunctionDef] = {}
        self._classes: dict[Any, ClassDef] = {}

    def function(self, file: File, qualname: str) -> FunctionDef:
        key = (file.path, qualname)
        found = self._functions.get(key)
        if "." not in qualname:
            TRAIL.deps.add(("r", file.path, qualname))
        if found is None:
            first, line, last, cls, decorators = file.raw["functions"][qualname]
            owner = self.class_(file, cls) if cls else None
            found = self._functions.get(key)  # made on the way, by its class
            if found is None:
                found = FunctionDef(file, qualname, first, line, last, owner, decorators=decorators)
                self._functions[key] = found
        return found

    def nested(
        self, file: File, node: FunctionNode, offset: int, outer: FunctionDef | None, cls: ClassDef | None
    ) -> FunctionDef:
        """A function whose tree is at hand: defined inside another function, or a lambda."""
        key = (file.path, node.lineno + offset, node.col_offset)
        found = self._functions.get(key)
        if found is None:
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            holder = cls.qualname if cls is not None else outer.qualname if outer is not None else ""
            qualname = f"{holder}.{name}" if holder else name
            decorators = () if isinstance(node, ast.Lambda) else tuple(dotted(d) for d in node.decorator_list)
            found = FunctionDef(
                file,
                qualname,
                node.lineno + offset,
                node.lineno + offset,
                (node.end_lineno or node.lineno) + offset,
                cls if cls is not None else None,
                outer,
                node,
                offset,
                decorators,
            )
            self._functions[key] = found
        return found

    def class_(self, file: File, qualname: str) -> ClassDef:
        key = (file.path, qualname)
        found = self._classes.get(key)
        if found is None:
            info = file.raw["classes"][qualname]
            found = ClassDef(file, qualname, info["lines"][1], info["decorators"])
            self._classes[key] = found
            found.cell.deps = {found.unit}
            found.bases = [ast.parse(b, mode="eval").body for b in info["bases"]]
            found.names = dict(info["names"])
            for name, method in info["methods"].items():
                found.methods[name] = self.function(file, method)
        TRAIL.deps.add(found.cell)
        return found

    def nested_class(
        self, file: File, node: ast.ClassDef, offset: int, outer: FunctionDef | None, scope: Any
    ) -> ClassDef:
        """A class defined inside a function; one object per scope, since its bases may be closure variables."""
        key = (file.path, node.lineno + offset, node.col_offset, scope)
        found = self._classes.get(key)
        if found is None:
            holder = outer.qualname if outer is not None else ""
            qualname = f"{holder}.{node.name}" if holder else node.name
            decorators = tuple(dotted(d) for d in node.decorator_list)
            found = ClassDef(file, qualname, node.lineno + offset, decorators, scope)
            found.offset = offset
            found.label += f":{node.lineno}"
            found.bases = list(node.bases)
            self._classes[key] = found
            for statement in node.body:
                if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found.methods[statement.name] = self.nested(file, statement, offset, outer, found)
                elif isinstance(statement, ast.Assign):
                    for target in statement.targets:
                        if isinstance(target, ast.Name):
                            found.names[target.id] = statement
                elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    found.names[statement.target.id] = statement
        TRAIL.deps.add(found.cell)
        return found
