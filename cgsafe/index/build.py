"""Builds the index of one file from its syntax tree: imports, functions, classes and module-level names.

Function bodies are not kept: the walk parses the few that it reaches from their own lines. The result is plain data
(tuples, dicts, strings, numbers), so that it can be cached and sent between processes cheaply.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from typing import Any

from cgsafe.comments import WORD
from cgsafe.marks import marks_of

# Words without which a file opens no capture, compiles nothing and registers no custom op. Plain substrings: they are
# looked for in every file, and `str.find` is ten times as fast as a pattern.
_OPENERS = ("graph", "capture_begin", ".replay(", "reduce-overhead", "max-autotune")  # one is in each word on captures
_TRIGGERS = {
    "capture": (
        "graph(",
        "cuda.graph",
        "import graph",
        "capture_begin",
        "make_graphed_callables",
        '"reduce-overhead"',
        "'reduce-overhead'",
        '"max-autotune"',
    ),
    "around": (
        "cuda.graph(",
        "graphs.graph(",
        "import graph",
        "capture_begin",
        ".replay(",
        "make_graphed_callables",
        '"reduce-overhead"',
        "'reduce-overhead'",
        '"max-autotune"',
        "'max-autotune'",
        '"cudagraphs"',
        '"triton.cudagraphs"',
    ),
    "op": ("custom_op", "Library(", "triton_op", ".impl("),
}
_NAMES = ("cuda.graph", "import graph")  # words that may go on as another name
_PLACEHOLDERS = ("Any", "object", "type")  # what stands in for a class of a package that is not installed
_INSTANTIATED = re.compile(r"([A-Z]\w+)\(")


def build(text: str) -> dict[str, Any]:
    """The index of a file's text.

    Raises SyntaxError, ValueError, RecursionError or MemoryError as `ast.parse` does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checked code's odd escapes are not our user's concern
        tree = ast.parse(text)
    index: dict[str, Any] = {
        "imports": {},  # local name -> (module, attribute or None, level)
        "stars": [],  # (module, level)
        "functions": {},  # qualified name -> (first line, def line, last line, class or "", decorators)
        "classes": {},  # qualified name -> see _class
        "names": {},  # module-level name -> [(line, end line)] of its assignments
        "triggers": {},  # word -> lines
        "instantiates": (),
        "commented": WORD in text,  # has comments of ours, perhaps
    }
    _statements(tree.body, index, "")
    opens = any(word in text for word in _OPENERS)
    for kind, words in _TRIGGERS.items():
        if not opens and kind != "op":
            continue
        lines = sorted({line for word in words if word in text for line in _lines_of(word, text)})
        if lines:
            index["triggers"][kind] = tuple(lines)
    index["instantiates"] = _instantiated(text, index["classes"])
    if index["commented"] and (marks := marks_of(text, tree)) is not None:
        index["marks"] = marks
    return index


def _instantiated(text: str, classes: dict[str, Any]) -> tuple[str, ...]:
    """The capitalised names that classes with a `forward` call: what these are made of."""
    names: set[str] = set()
    lines: list[str] | None = None
    for info in classes.values():
        if "forward" in info["methods"]:
            if lines is None:
                lines = text.split("\n")
            _, first, last = info["lines"]
            names.update(_INSTANTIATED.findall("\n".join(lines[first:last])))
    return tuple(sorted(names))


def _lines_of(word: str, text: str) -> list[int]:
    lines, line, last = [], 1, 0
    at = text.find(word)
    while at >= 0:
        line += text.count("\n", last, at)
        last = at
        if _is_whole(word, text, at):
            lines.append(line)
        at = text.find(word, at + 1)
    return lines


def _is_whole(word: str, text: str, at: int) -> bool:
    """False where a word that begins or ends with a name is a part of a longer one, or stands in a comment line."""
    end = at + len(word)
    if word in _NAMES and end < len(text) and (text[end].isalnum() or text[end] == "_"):
        return False
    if word == "graph(" and at and (text[at - 1].isalnum() or text[at - 1] == "_"):
        return False
    return not text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith("#")


def _statements(body: Iterable[ast.stmt], index: dict[str, Any], cls: str) -> None:
    for node in body:
        kind = node.__class__
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            _function(node, index, cls)  # type: ignore[arg-type]
        elif kind is ast.ClassDef:
            _class(node, index, cls)  # type: ignore[arg-type]
        elif kind is ast.Import:
            for alias in node.names:  # type: ignore[attr-defined]
                if alias.asname:
                    index["imports"][alias.asname] = (alias.name, None, 0)
                else:
                    top = alias.name.partition(".")[0]
                    index["imports"].setdefault(top, (top, None, 0))
        elif kind is ast.ImportFrom:
            module, level = node.module or "", node.level  # type: ignore[attr-defined]
            for alias in node.names:  # type: ignore[attr-defined]
                if alias.name == "*":
                    index["stars"].append((module, level))
                else:
                    index["imports"][alias.asname or alias.name] = (module, alias.name, level)
        elif kind is ast.Assign:
            for target in node.targets:  # type: ignore[attr-defined]
                _name(target, node, index, cls)
        elif kind is ast.AnnAssign or kind is ast.AugAssign:
            _name(node.target, node, index, cls)  # type: ignore[attr-defined]
        elif kind is ast.If or kind is ast.For or kind is ast.While:
            _statements(node.body, index, cls)  # type: ignore[attr-defined]
            _statements(node.orelse, index, cls)  # type: ignore[attr-defined]
        elif kind is ast.With:
            _statements(node.body, index, cls)  # type: ignore[attr-defined]
        elif kind is ast.Try or kind.__name__ == "TryStar":
            # The main path last: what a fallback defines is overruled by it.
            for handler in node.handlers:  # type: ignore[attr-defined]
                _statements(handler.body, index, cls)
            _statements(node.body, index, cls)  # type: ignore[attr-defined]
            for handler in node.handlers:  # type: ignore[attr-defined]
                _drop_placeholders(handler.body, index)
            _statements(node.orelse, index, cls)  # type: ignore[attr-defined]
            _statements(node.finalbody, index, cls)  # type: ignore[attr-defined]


def _drop_placeholders(body: list[ast.stmt], index: dict[str, Any]) -> None:
    """`X = object` where `from package import X` failed: what runs on a GPU has the package, and means its `X`.

    None, flags and functions stay: code asks for these, and has another way for them.
    """
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in _PLACEHOLDERS:
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in index["imports"]:
                    index["names"].pop(target.id, None)


def _name(target: ast.expr, node: ast.stmt, index: dict[str, Any], cls: str) -> None:
    if isinstance(target, ast.Name):
        span = (node.lineno, node.end_lineno)
        where = index["classes"][cls]["names"] if cls else index["names"]
        where.setdefault(target.id, []).append(span)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            _name(element, node, index, cls)


def _function(node: ast.FunctionDef, index: dict[str, Any], cls: str) -> None:
    qualified = f"{cls}.{node.name}" if cls else node.name
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    decorators = tuple(dotted(d) for d in node.decorator_list)
    if any(d.endswith((".setter", ".deleter")) for d in decorators) or "overload" in decorators:
        return
    if decorators and decorators[-1] == "typing.overload":
        return
    index["functions"][qualified] = (first, node.lineno, node.end_lineno, cls, decorators)
    if cls:
        index["classes"][cls]["methods"][node.name] = qualified


def _class(node: ast.ClassDef, index: dict[str, Any], outer: str) -> None:
    qualified = f"{outer}.{node.name}" if outer else node.name
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    index["classes"][qualified] = {
        "lines": (first, node.lineno, node.end_lineno),
        "bases": tuple(ast.unparse(b) for b in node.bases),
        "decorators": tuple(dotted(d) for d in node.decorator_list),
        "methods": {},
        "names": {},
    }
    _statements(node.body, index, qualified)


def dotted(node: ast.expr) -> str:
    """The dotted name of an expression, without call arguments; "" where it has none."""
    if isinstance(node, ast.Call):
        return dotted(node.func)
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
        return ".".join(reversed(parts))
    return ""
