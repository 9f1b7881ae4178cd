"""What a type annotation says of a value."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST, Region
from cgsafe.values import (
    BOOL,
    DTYPE,
    FLOAT,
    INT,
    LOW,
    MEDIUM,
    NONE,
    NUMPY,
    OBJECT,
    SHAPE,
    STR,
    UNKNOWN,
    Class,
    Device,
    Dict,
    Ext,
    ExtInstance,
    Seq,
    Tensor,
    Value,
    join_all,
    parts_of,
)
from cgsafe.walk.facts import matches

if TYPE_CHECKING:
    from cgsafe.walk.defs import FunctionDef
    from cgsafe.walk.walker import Walker

_PLAIN: dict[str, Value] = {
    "builtins.int": INT,
    "builtins.float": FLOAT,
    "builtins.bool": BOOL,
    "builtins.str": STR,
    "builtins.bytes": OBJECT,
    "builtins.slice": OBJECT,
    "builtins.range": Seq("list", None, INT),
    "torch.device": Device(""),
    "torch.dtype": DTYPE,
    "torch.Size": SHAPE,
    "torch.types.Device": Device(""),
    "numpy.ndarray": NUMPY,
    "numpy.array": NUMPY,
    "numpy.typing.NDArray": NUMPY,
    "numpy.typing.ArrayLike": NUMPY,
    "builtins.list": Seq("list", None, UNKNOWN),
    "builtins.tuple": Seq("tuple", None, UNKNOWN),
    "builtins.set": Seq("set", None, UNKNOWN),
    "builtins.dict": Dict({}, UNKNOWN),
}
_SEQUENCES = {
    "builtins.list": "list",
    "builtins.set": "set",
    "builtins.frozenset": "set",
    "typing.List": "list",
    "typing.Sequence": "list",
    "typing.MutableSequence": "list",
    "typing.Iterable": "list",
    "typing.Iterator": "list",
    "typing.Collection": "list",
    "typing.Generator": "list",
    "typing.Set": "set",
    "typing.Deque": "list",
    "collections.abc.Sequence": "list",
    "collections.abc.Iterable": "list",
    "collections.abc.Iterator": "list",
    "collections.abc.Collection": "list",
    "collections.abc.Generator": "list",
    "collections.deque": "list",
}
_MAPPINGS = {
    "builtins.dict",
    "typing.Dict",
    "typing.Mapping",
    "typing.MutableMapping",
    "typing.DefaultDict",
    "typing.OrderedDict",
    "collections.abc.Mapping",
    "collections.abc.MutableMapping",
    "collections.OrderedDict",
    "collections.defaultdict",
}
_TENSORS = {
    "torch.Tensor": "",
    "torch.FloatTensor": "f",
    "torch.DoubleTensor": "f",
    "torch.HalfTensor": "f",
    "torch.BFloat16Tensor": "f",
    "torch.LongTensor": "i",
    "torch.IntTensor": "i",
    "torch.ByteTensor": "i",
    "torch.BoolTensor": "b",
    "torch.nn.Parameter": "f",
    "torch.nn.parameter.Parameter": "f",
    "torch.nn.Buffer": "",
    "torch.cuda.FloatTensor": "f",
    "torch.cuda.LongTensor": "i",
}
_INNER_FIRST = {
    "typing.Annotated",
    "typing_extensions.Annotated",
    "typing.Final",
    "typing.ClassVar",
    "typing.Required",
    "typing.NotRequired",
    "typing_extensions.NotRequired",
    "dataclasses.InitVar",
    "typing.Awaitable",
}


def annotation_value(walker: Walker, definition: FunctionDef, node: ast.expr, region: Region) -> Value:
    """The value that an annotation promises; unknown where it says nothing of use."""
    key = (node, definition.cls)
    return walker.annotations.of(key, lambda: _Reader(walker, definition.file, definition).read(node))  # type: ignore[no-any-return]


def annotation_in_file(walker: Walker, file: Any, node: ast.expr) -> Value:
    """As `annotation_value`, for an annotation at module or class level."""
    return _Reader(walker, file, None).read(node)


class _Reader:
    def __init__(self, walker: Walker, file: Any, definition: FunctionDef | None):
        self.walker = walker
        self.file = file
        self.definition = definition
        self.depth = 0

    def read(self, node: ast.expr) -> Value:
        self.depth += 1
        try:
            return self._read(node) if self.depth < 12 else UNKNOWN
        finally:
            self.depth -= 1

    def _read(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            if node.value is None:
                return NONE
            if isinstance(node.value, str):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        return self.read(ast.parse(node.value.strip(), mode="eval").body)
                except (SyntaxError, ValueError):
                    return UNKNOWN
            return UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self.either([node.left, node.right])
        if isinstance(node, ast.Subscript):
            return self.generic(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.named(node)
        return UNKNOWN

    def either(self, nodes: list[ast.expr]) -> Value:
        parts = [p for n in nodes for p in parts_of(self.read(n))]
        others = [p for p in parts if p is not NONE and not isinstance(p, Tensor)]
        if others:
            # Which of them it is, the annotation does not say: a tensor is one possibility.
            parts = [p.with_(confidence=LOW) if isinstance(p, Tensor) else p for p in parts]
        return join_all(parts)

    def resolve(self, node: ast.expr) -> Value | None:
        if isinstance(node, ast.Name):
            found = self.walker.module_name(self.file, node.id)
            if found is None and self.definition is not None and self.definition.cls is not None:
                if node.id == self.definition.cls.name:
                    return Class(self.definition.cls)
            if found is None:
                return Ext(f"builtins.{node.id}")
            return found
        if isinstance(node, ast.Attribute):
            base = self.resolve(node.value)
            if isinstance(base, Ext):
                return Ext(self.walker.tables.canonical(f"{base.name}.{node.attr}"))
            if base is not None:
                from cgsafe.walk.frame import Frame
                from cgsafe.walk.walker import Node

                frame = Frame(self.walker, Node(None, HOST, (), None), None, self.file, 0)
                return frame.attribute(base, node.attr, node)
        return None

    def named(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            alias = self.alias(node.id)
            if alias is not None:
                return alias
        value = self.resolve(node)
        if isinstance(value, Ext):
            return self.external(value.name)
        if isinstance(value, Class):
            return self.walker.classes.any_of(value.definition)
        return UNKNOWN

    def alias(self, name: str) -> Value | None:
        """What a name stands for that its module binds once, as in `Bounds = tuple[int, ...]`; None for other names."""
        entity = self.walker.project.resolve(self.file, name)
        file = entity.file if entity is not None and entity.kind not in ("class", "function") else None
        spans = file.raw["names"].get(entity.name, ()) if entity is not None and file is not None else ()  # as resolved
        if file is None or len(spans) != 1:
            return None
        try:
            body, _ = self.walker.raw_text(file).parse(*spans[0])
        except (SyntaxError, ValueError):
            return None
        value = getattr(body[0], "value", None) if len(body) == 1 else None
        if not isinstance(value, (ast.Subscript, ast.BinOp)):
            return None
        before, self.file = self.file, file
        try:
            return self.read(value)
        finally:
            self.file = before

    def external(self, name: str) -> Value:
        dtype = _TENSORS.get(name)
        if dtype is not None:
            return Tensor("cuda", None, dtype, MEDIUM)
        plain = _PLAIN.get(name)
        if plain is not None:
            return plain
        if name in _SEQUENCES:
            return Seq(_SEQUENCES[name], None, UNKNOWN)
        if name in _MAPPINGS:
            return Dict({}, UNKNOWN)
        if name in ("typing.Any", "typing.Callable", "collections.abc.Callable", "builtins.object", "typing.Self"):
            return UNKNOWN
        if name.startswith(("torch.nn.", "torch.cuda.", "torch.Generator", "torch.Stream", "torch.Event")):
            return ExtInstance(name)
        if matches(name, self.walker.tables.waiting_classes):
            return ExtInstance(name)
        return UNKNOWN

    def generic(self, node: ast.Subscript) -> Value:
        base = self.resolve(node.value)
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = base.name if isinstance(base, Ext) else ""
        if name == "typing.Optional":
            return join_all([NONE, *parts_of(self.read(inner[0]))])
        if name == "typing.Union":
            return self.either(inner)
        if name in _INNER_FIRST:
            return self.read(inner[0])
        if name in ("builtins.tuple", "typing.Tuple"):
            if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is Ellipsis:
                return Seq("tuple", None, self.read(inner[0]))
            return Seq("tuple", tuple(self.read(i) for i in inner))
        if name in _SEQUENCES:
            return Seq(_SEQUENCES[name], None, self.read(inner[0]))
        if name in _MAPPINGS:
            return Dict({}, self.read(inner[1]) if len(inner) > 1 else UNKNOWN)
        if name in ("typing.Literal", "typing_extensions.Literal"):
            first = inner[0]
            return STR if isinstance(first, ast.Constant) and isinstance(first.value, str) else UNKNOWN
        if isinstance(base, Class):
            return self.walker.classes.any_of(base.definition)
        if name.startswith(("jaxtyping.", "torchtyping.")):
            return self.read(inner[0])
        if name:
            return self.external(name)
        return UNKNOWN
