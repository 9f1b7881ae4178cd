"""Whole files as syntax trees, with what their names stand for: host code around captures is read, not walked."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from cgsafe.index.project import File
from cgsafe.index.trail import TRAIL

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Function:
    """A function or method, nested ones included; also the body of a module, whose name is empty."""

    def __init__(self, module: Module, node: Any, qualname: str, cls: Klass | None, outer: Function | None):
        self.module = module
        self.node = node
        self.qualname = qualname
        self.name = qualname.rpartition(".")[2]
        self.cls = cls
        self.outer = outer
        self.inner: list[Function] = []
        self._own: list[ast.AST] | None = None
        self._parents: dict[ast.AST, ast.AST] = {}
        self._assigned: dict[str, list[tuple[ast.stmt, ast.expr | None]]] | None = None

    @property
    def own(self) -> list[Any]:
        """All nodes of the body in source order, without those of nested functions and classes (but with these)."""
        if self._own is None:
            found: list[ast.AST] = []
            stack: list[ast.AST] = []
            for statement in reversed(self.node.body):
                self._parents[statement] = self.node
                stack.append(statement)
            while stack:
                node = stack.pop()
                found.append(node)
                if isinstance(node, _SCOPES):
                    continue
                children = list(ast.iter_child_nodes(node))
                for child in children:
                    self._parents[child] = node
                stack.extend(reversed(children))
            self._own = found
        return self._own

    def calls(self) -> Iterator[ast.Call]:
        return (n for n in self.own if isinstance(n, ast.Call))

    def parents(self, node: ast.AST) -> Iterator[Any]:
        """What a node stands in, innermost first, up to this function's own node."""
        assert self.own is not None
        here = self._parents.get(node)
        while here is not None:
            yield here
            here = self._parents.get(here)

    def statement(self, node: ast.AST) -> Any:
        """The statement that a node is part of."""
        if isinstance(node, ast.stmt):
            return node
        return next((p for p in self.parents(node) if isinstance(p, ast.stmt)), node)

    def loop_of(self, node: ast.AST) -> Any:
        """The innermost loop around a node, or None."""
        return next((p for p in self.parents(node) if isinstance(p, (ast.For, ast.While, ast.AsyncFor))), None)

    @property
    def assigned(self) -> dict[str, list[tuple[Any, Any]]]:
        """Source of a target (`x`, `self.x`) -> (statement, value) of its assignments; value None where unpacked."""
        if self._assigned is None:
            self._assigned = {}
            for node in self.own:
                for target, value in targets(node):
                    path = path_of(target)
                    if path is not None:
                        self._assigned.setdefault(path, []).append((node, value))
        return self._assigned

    @property
    def parameters(self) -> dict[str, ast.arg]:
        if not self.name:
            return {}
        args = self.node.args
        return {a.arg: a for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}

    def defaults(self) -> dict[str, ast.expr]:
        if not self.name:
            return {}
        args = self.node.args
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        found = dict(zip(reversed(names), reversed(args.defaults), strict=False))
        found.update({a.arg: d for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None})
        return found

    def value_before(self, name: str, line: int) -> tuple[Any, Any] | None:
        """The last assignment to a name or path that stands above a line."""
        found = [row for row in self.assigned.get(name, ()) if row[0].lineno < line]
        return found[-1] if found else None


class Klass:
    """A class of a file."""

    def __init__(self, module: Module, node: ast.ClassDef, qualname: str):
        self.module = module
        self.node = node
        self.qualname = qualname
        self.name = qualname.rpartition(".")[2]
        self.methods: dict[str, Function] = {}
        self._attributes: dict[str, list[tuple[Function | None, Any, Any]]] | None = None
        self._annotations: dict[str, ast.expr] | None = None

    @property
    def attributes(self) -> dict[str, list[tuple[Any, Any, Any]]]:
        """Attribute -> (method or None, statement, value) of what is assigned to it, in the class or through self."""
        if self._attributes is None:
            self._attributes = {}
            for statement in self.node.body:
                for target, value in targets(statement):
                    if isinstance(target, ast.Name):
                        self._attributes.setdefault(target.id, []).append((None, statement, value))
            for method in self.methods.values():
                for path, rows in method.assigned.items():
                    if path.startswith("self.") and path.count(".") == 1:
                        for statement, value in rows:
                            self._attributes.setdefault(path[5:], []).append((method, statement, value))
        return self._attributes

    @property
    def annotations(self) -> dict[str, ast.expr]:
        """Annotations in the class body, and of attributes of self."""
        if self._annotations is None:
            self._annotations = {}
            every = [*self.node.body, *(n for m in self.methods.values() for n in m.own)]
            for node in every:
                if isinstance(node, ast.AnnAssign):
                    path = path_of(node.target)
                    if path is not None:
                        self._annotations.setdefault(path.removeprefix("self."), node.annotation)
        return self._annotations


class Module:
    """One file."""

    def __init__(self, file: File, tree: ast.Module, text: Any):
        self.file = file
        self.tree = tree
        self.text = text
        self.functions: list[Function] = []
        self.classes: dict[str, Klass] = {}
        self.imports: dict[str, tuple[str, str | None, int]] = dict(file.index["imports"])
        self.body = Function(self, tree, "", None, None)
        self.functions.append(self.body)
        self._collect(tree.body, "", None, None)
        self.by_name = {f.qualname: f for f in reversed(self.functions) if f.name}
        nested = any(line[:1] == " " and "import " in line for line in text.lines)
        for node in ast.walk(tree) if nested else ():
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imports.setdefault(alias.asname or alias.name, (node.module or "", alias.name, node.level))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    self.imports.setdefault(local, (alias.name if alias.asname else local, None, 0))

    def _collect(self, body: Iterable[ast.AST], holder: str, cls: Klass | None, outer: Function | None) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function = Function(self, node, f"{holder}.{node.name}" if holder else node.name, cls, outer)
                self.functions.append(function)
                if cls is not None:
                    cls.methods.setdefault(node.name, function)
                if outer is not None:
                    outer.inner.append(function)
                self._collect(node.body, function.qualname, None, function)
            elif isinstance(node, ast.ClassDef):
                klass = Klass(self, node, f"{holder}.{node.name}" if holder else node.name)
                self.classes[klass.qualname] = klass
                self._collect(node.body, klass.qualname, klass, None)
            elif isinstance(node, ast.stmt):
                self._collect(_substatements(node), holder, cls, outer)


def _substatements(node: ast.stmt) -> list[ast.AST]:
    found: list[ast.AST] = []
    for field in ("body", "orelse", "finalbody"):
        found.extend(getattr(node, field, ()))
    for handler in getattr(node, "handlers", ()):
        found.extend(handler.body)
    for case in getattr(node, "cases", ()):
        found.extend(case.body)
    return found


class Code:
    """All files that are read this way, and name resolution between them."""

    def __init__(self, walker: Any):
        self.walker = walker
        self.project = walker.project
        self.tables = walker.tables
        self._modules: dict[str, Module | None] = {}

    def importers(self, name: str) -> list[File]:
        """The files that import something of this name."""
        return list(dict.fromkeys(file for file, _ in self.project.importers(name)))

    def module(self, file: File) -> Module | None:
        TRAIL.deps.add(("t", file.path))
        if file.path not in self._modules:
            text = self.walker.text(file)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tree = ast.parse("\n".join(text.lines))
                self._modules[file.path] = Module(file, tree, text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._modules[file.path] = None
        return self._modules[file.path]

    def dotted(self, module: Module, node: ast.AST) -> str:
        """The full dotted name of an expression, through the imports of its file; "" where it has none."""
        path = path_of(node)
        if path is None:
            return ""
        head, _, rest = path.partition(".")
        imported = module.imports.get(head)
        if imported is not None:
            name, attribute, level = imported
            base = name if level == 0 else self.project.absolute(module.file, name, level)
            head = f"{base}.{attribute}" if attribute else base
        full = f"{head}.{rest}" if rest else head
        return str(self.tables.canonical(full))

    def resolve(self, module: Module, node: ast.AST | None, records: bool = False) -> Klass | Function | None:
        """The class or function of the checked code that a name or dotted name stands for.

        With `records`, other files are only looked into where they say something about graphs.
        """
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            node = ast.Name(node.value)
        if isinstance(node, ast.Name):
            if node.id in module.classes:
                return module.classes[node.id]
            if node.id in module.by_name:
                return module.by_name[node.id]
            imported = module.imports.get(node.id)
            if imported is None:
                return None
            name, attribute, level = imported
            if attribute is None:
                return None
            entity = self.project.member(self.project.absolute(module.file, name, level), attribute, module.file)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            imported = module.imports.get(node.value.id)
            if imported is None:
                return None
            name, attribute, level = imported
            base = self.project.absolute(module.file, name, level)
            full = f"{base}.{attribute}" if attribute else base
            entity = self.project.member(full, node.attr, module.file)
        else:
            return None
        if entity is None or entity.file is None or entity.kind not in ("class", "function"):
            return None
        if records and "around" not in entity.file.index["triggers"]:
            return None
        other = self.module(entity.file)
        if other is None:
            return None
        if entity.kind == "class":
            return other.classes.get(entity.name)
        return other.by_name.get(entity.name)

    # -- what values are -------------------------------------------------------------------------------------------

    def class_of(self, function: Function, node: ast.AST, line: int = 1 << 30, depth: int = 0) -> Klass | None:
        """The class of the checked code that an expression is an instance of."""
        if depth > 8:
            return None
        module = function.module
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in _CHAINED:
                return self.class_of(function, node.func.value, line, depth + 1)
            found = self.resolve(module, node.func)
            return found if isinstance(found, Klass) else None
        if isinstance(node, ast.Name):
            if node.id == "self" and function.cls is not None:
                return function.cls
            row = function.value_before(node.id, line)
            if row is not None:
                return self.class_of(function, row[1], row[0].lineno, depth + 1) if row[1] is not None else None
            parameter = function.parameters.get(node.id)
            if parameter is not None:
                return self._annotated(module, parameter.annotation) or self._passed(function, node.id, depth)
            if function.outer is not None:
                return self.class_of(function.outer, node, 1 << 30, depth + 1)
            if function.name:
                return self.class_of(module.body, node, 1 << 30, depth + 1)
            return None
        path = path_of(node)
        if path is not None and path.startswith("self.") and path.count(".") == 1 and function.cls is not None:
            for method, statement, value in function.cls.attributes.get(path[5:], ()):
                if value is not None and method is not None:
                    found = self.class_of(method, value, statement.lineno, depth + 1)
                    if found is not None:
                        return found
            return self._annotated(module, function.cls.annotations.get(path[5:]))
        return None

    def _passed(self, function: Function, name: str, depth: int) -> Klass | None:
        """The class of what calls in the same file pass as a parameter, where they agree."""
        if depth > 4 or function.outer is not None:
            return None
        wanted: Any = function.cls if function.name == "__init__" else function if function.cls is None else None
        if wanted is None:
            return None
        names = [a.arg for a in (*function.node.args.posonlyargs, *function.node.args.args)]
        position = names.index(name) - (1 if function.cls is not None else 0) if name in names else -1
        found: set[Klass] = set()
        for holder in function.module.functions:
            for call in holder.calls():
                if self.resolve(function.module, call.func) is not wanted:
                    continue
                given = next((k.value for k in call.keywords if k.arg == name), None)
                if given is None and 0 <= position < len(call.args):
                    given = call.args[position]
                if given is not None:
                    cls = self.class_of(holder, given, call.lineno, depth + 2)
                    if cls is not None:
                        found.add(cls)
        return found.pop() if len(found) == 1 else None

    def _annotated(self, module: Module, annotation: ast.expr | None) -> Klass | None:
        if annotation is None:
            return None
        for node in (annotation, *ast.walk(annotation)):
            found = self.resolve(module, node)
            if isinstance(found, Klass):
                return found
        return None

    def callee(self, function: Function, node: ast.Call) -> Function | None:
        """The function of the checked code that a call runs: of a module, its forward."""
        func = node.func
        found = self.resolve(function.module, func)
        if isinstance(found, Function):
            return found
        if isinstance(func, ast.Attribute):
            owner = self.class_of(function, func.value, node.lineno)
            if owner is not None and func.attr in owner.methods:
                return owner.methods[func.attr]
        target = self.class_of(function, func, node.lineno)
        if target is not None:
            return target.methods.get("forward") or target.methods.get("__call__")
        return None

    def is_tensor(self, function: Function, node: ast.AST | None, line: int = 1 << 30, depth: int = 0) -> bool:
        """True where an expression is certainly a tensor, as far as this file tells."""
        if node is None or depth > 8:
            return False
        if isinstance(node, ast.Call):
            name = self.dotted(function.module, node.func)
            if name.startswith("torch."):
                return makes_tensor(name)
            if isinstance(node.func, ast.Attribute):
                attr = node.func.attr
                if attr in _ONLY_TENSORS:
                    return True
                return attr in _KEEPS_TENSOR and self.is_tensor(function, node.func.value, line, depth + 1)
            return False
        if isinstance(node, ast.BinOp):
            return self.is_tensor(function, node.left, line, depth + 1) or self.is_tensor(
                function, node.right, line, depth + 1
            )
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.is_tensor(function, node.value, line, depth + 1)
        if isinstance(node, ast.UnaryOp):
            return not isinstance(node.op, ast.Not) and self.is_tensor(function, node.operand, line, depth + 1)
        if isinstance(node, ast.IfExp):
            return self.is_tensor(function, node.body, line, depth + 1)
        if isinstance(node, ast.Name):
            row = function.value_before(node.id, line)
            if row is not None:
                return self.is_tensor(function, row[1], row[0].lineno, depth + 1)
            parameter = function.parameters.get(node.id)
            if parameter is not None:
                return names_tensor(parameter.annotation)
            return function.outer is not None and self.is_tensor(function.outer, node, 1 << 30, depth + 1)
        path = path_of(node)
        if path is not None and path.startswith("self.") and path.count(".") == 1 and function.cls is not None:
            attr = path[5:]
            annotation = function.cls.annotations.get(attr)
            if annotation is not None and names_tensor(annotation):
                return True
            rows = function.cls.attributes.get(attr, ())
            return any(m is not None and self.is_tensor(m, v, s.lineno, depth + 1) for m, s, v in rows)
        return False


_CHAINED = frozenset(("apply", "bfloat16", "cuda", "double", "eval", "float", "half", "requires_grad_", "to", "train"))
_ONLY_TENSORS = frozenset(
    (
        "argmax", "bfloat16", "clone", "contiguous", "cumsum", "detach", "index_select", "masked_fill", "new_empty",
        "new_full", "new_ones", "new_zeros", "requires_grad_", "unsqueeze",
    )
)  # fmt: skip
_KEEPS_TENSOR = frozenset(
    (
        "add", "bool", "cuda", "div", "double", "expand", "flatten", "float", "half", "int", "long", "mul", "pin_memory",
        "repeat", "reshape", "squeeze", "sub", "sum", "t", "to", "transpose", "type", "view",
    )
)  # fmt: skip
_NO_TENSORS = frozenset(
    (
        "torch.compile", "torch.device", "torch.inference_mode", "torch.no_grad", "torch.enable_grad", "torch.is_tensor",
        "torch.manual_seed", "torch.Generator", "torch.Size", "torch.finfo", "torch.iinfo", "torch.load", "torch.numel",
        "torch.set_grad_enabled", "torch.autocast", "torch.get_default_dtype", "torch.set_default_device",
    )
)  # fmt: skip


def makes_tensor(name: str) -> bool:
    """`torch.zeros` and the like: functions of the package itself and of torch.nn.functional."""
    package, _, last = name.rpartition(".")
    return package in ("torch", "torch.nn.functional") and name not in _NO_TENSORS and (last[:1].islower())


def names_tensor(annotation: ast.AST | None) -> bool:
    """`torch.Tensor`, `Tensor | None`, `Optional[torch.Tensor]`."""
    if annotation is None:
        return False
    if isinstance(annotation, ast.Subscript) and path_of(annotation.value) not in ("Optional", "typing.Optional"):
        return False
    return any(
        (isinstance(n, ast.Attribute) and n.attr == "Tensor")
        or (isinstance(n, ast.Name) and n.id == "Tensor")
        or (isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.endswith("Tensor"))
        for n in ast.walk(annotation)
    )


_HOST_NAMES = frozenset(("int", "float", "bool", "str"))


def names_host(annotation: ast.AST | None, default: ast.AST | None) -> bool:
    """An int, float, bool or str, by annotation or by default."""
    if annotation is not None:
        names = {n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)}
        names |= {n.value for n in ast.walk(annotation) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        return bool(names & _HOST_NAMES) and names <= _HOST_NAMES | {"Optional", "Union"}
    return isinstance(default, ast.Constant) and isinstance(default.value, (int, float, bool, str))


def path_of(node: ast.AST) -> str | None:
    """`a.b.c` for an attribute chain on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
        return ".".join(reversed(parts))
    return None


def targets(node: ast.AST) -> Iterator[tuple[ast.expr, Any]]:
    """(target, value) of what a statement assigns; the value is None where it is unpacked or comes from a loop."""
    pairs: list[tuple[ast.expr, Any]] = []
    if isinstance(node, ast.Assign):
        pairs = [(t, node.value) for t in node.targets]
    elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(node, ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        pairs = [(node.target, None)]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        pairs = [(i.optional_vars, None) for i in node.items if i.optional_vars is not None]
    while pairs:
        target, value = pairs.pop(0)
        if isinstance(target, (ast.Tuple, ast.List)):
            values: list[Any] = [None] * len(target.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                values = list(value.elts)
            pairs.extend(zip(target.elts, values, strict=True))
        elif isinstance(target, ast.Starred):
            pairs.append((target.value, None))
        else:
            yield target, value


def names_in(node: ast.AST) -> set[str]:
    """All plain names that an expression reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def paths_in(node: ast.AST) -> set[str]:
    """All names and attribute paths that an expression reads, the longest form of each and its beginnings."""
    found = set()
    for n in ast.walk(node):
        if isinstance(n, (ast.Name, ast.Attribute)):
            path = path_of(n)
            if path is not None:
                found.add(path)
    return found


def source(node: ast.AST) -> str:
    """The source of an expression on one line, shortened."""
    from cgsafe.walk.frame import source_of

    return source_of(node)
