"""Questions to one file whose answers outlive most changes of it: pure functions of its text and index.

The walk asks them (`Walker.ask`), and what it recalls later is still good where the answer is the same
(`cgsafe.recall`). Answers are plain data, and hold no line numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A file as the questions see it."""

    index: dict[str, Any]
    lines: list[str]

    def function(self, qualname: str) -> str | None:
        """The text of a function, decorators included; None where there is none of that name."""
        entry = self.index["functions"].get(qualname)
        return "\n".join(self.lines[entry[0] - 1 : entry[2]]) if entry is not None else None

    def span(self, first: int, last: int) -> str:
        return "\n".join(self.lines[first - 1 : last])


def binding(file: Asked, name: str) -> Any:
    """What a name is bound to at the top of a file."""
    index = file.index
    function = index["functions"].get(name)
    names = index["names"].get(name)
    imported = index["imports"].get(name)
    known = function is not None or names is not None or imported is not None or name in index["classes"]
    return (
        function and function[4],
        name in index["classes"],
        names and tuple(file.span(first, last) for first, last in names),
        imported,
        None if known else tuple(index["stars"]),
    )


def class_body(file: Asked, qualname: str) -> Any:
    """What a class says, without the bodies of its methods."""
    info = file.index["classes"].get(qualname)
    if info is None:
        return None
    first, line, _ = info["lines"]
    functions = file.index["functions"]
    methods = tuple((name, method, functions[method][4]) for name, method in info["methods"].items())
    names = tuple((name, tuple(file.span(*span) for span in spans)) for name, spans in info["names"].items())
    return info["bases"], info["decorators"], file.span(first, line), methods, names


def _global(file: Asked, name: str) -> bool:
    text = "\n".join(file.lines)
    return f"global {name}" in text or (f", {name}" in text and "global " in text)


def _has(file: Asked, word: str) -> bool:
    return any(word in line for line in file.lines)


def _decorated(file: Asked) -> Any:
    """The functions at the top of a file that have decorators."""
    return tuple((name, entry[4]) for name, entry in file.index["functions"].items() if entry[4] and not entry[3])


_SELF_TARGET = re.compile(r"self\.(\w+)\s*(?:=(?!=)|:[^=\n]+=(?!=)|,|\)|[-+*/|&@%^]=|//=|\*\*=|>>=|<<=)")
_SELF_NAMED = re.compile(r"""(?:register_buffer|register_parameter|setattr\(\s*self,|add_module)\W*["'](\w+)["']""")
_NAMING = ("register_buffer", "register_parameter", "setattr", "add_module")


def assigned_names(text: str) -> set[str]:
    """The attributes of `self` that a method may set, as far as its text tells."""
    if "self" not in text:
        return set()
    found = set(_SELF_TARGET.findall(text))
    if any(word in text for word in _NAMING):  # plain words are found much faster than one of several by a pattern
        found.update(_SELF_NAMED.findall(text))
    return found


def _sets(file: Asked, qualname: str) -> Any:
    text = file.function(qualname)
    return tuple(sorted(assigned_names(text))) if text is not None else None


def _abstract(file: Asked, qualname: str) -> Any:
    """What tells whether a method is there for subclasses to define."""
    text = file.function(qualname)
    if text is None:
        return None
    entry = file.index["functions"][qualname]
    raises = "NotImplementedError" in text
    bases = file.index["classes"][entry[3]]["bases"] if entry[3] in file.index["classes"] else ()
    if not raises and not any(b.partition("[")[0].rpartition(".")[2] == "Protocol" for b in bases):
        return entry[4], False, ""
    try:
        source = "if 1:\n" + text if text[:1] in (" ", "\t", "\f") else text
        node: Any = ast.parse(source).body[0]
        node = node.body[0] if isinstance(node, ast.If) else node
        body = node.body
    except (SyntaxError, ValueError, RecursionError, AttributeError):
        return entry[4], raises, "unread"
    real = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return entry[4], raises, type(real[0]).__name__ if real else ""


def _stored(file: Asked, name: str) -> Any:
    """The lines that put something into a container at the top of a file, and the functions they stand in."""
    pattern = re.compile(rf"\b{re.escape(name)}\s*(?:\[|\.(?:append|add|update|setdefault|insert)\()")
    found = []
    for number, line in enumerate(file.lines, 1):
        if pattern.search(line):
            holder = innermost(file.index["functions"], number)
            entry = file.index["functions"][holder] if holder is not None else None
            found.append((holder, entry and entry[3], line if holder is not None else file.span(number, number + 20)))
    return tuple(found)


def _filled(file: Asked, qualname: str, name: str) -> Any:
    """The lines of a class that name a container of its body, and the functions they stand in."""
    info = file.index["classes"].get(qualname)
    if info is None:
        return None
    _, first, last = info["lines"]
    place = re.compile(rf"\b(?:cls|{re.escape(qualname.rpartition('.')[2])})\.{re.escape(name)}\b")
    functions = file.index["functions"]
    holders = {innermost(functions, n) for n in range(first, last + 1) if place.search(file.lines[n - 1])}
    return tuple(sorted((h, file.function(h)) for h in holders if h is not None))


def innermost(functions: dict[str, Any], line: int) -> str | None:
    """The innermost function around a line."""
    found = None
    for name, (first, _, last, _, _) in functions.items():
        if first <= line <= last and (found is None or first > functions[found][0]):
            found = name
    return found


def rebinding(file: Asked, name: str) -> tuple[str, ...]:
    """The functions that declare a name `global` and set it."""
    pattern = re.compile(rf"^\s*global\b.*\b{re.escape(name)}\b")
    lines = [n for n, text in enumerate(file.lines, 1) if "global" in text and pattern.match(text)]
    if not lines:
        return ()
    sets = re.compile(rf"\b{re.escape(name)}\s*(?::[^=\n]+)?(?:,[^=]*)?[-+*/|&]?=(?!=)")
    found = []
    for qualified, (first, _, last, _, _) in file.index["functions"].items():
        if any(first <= line <= last for line in lines):
            if any(sets.search(text) for text in file.lines[first - 1 : last]):
                found.append(qualified)
    return tuple(found)


def reads_pattern(name: str) -> re.Pattern[str]:
    """Finds places that read a tensor from an attribute of that name: neither set nor called."""
    return re.compile(rf"\.{re.escape(name)}\b(?!\s*(?:\(|(?::[^=\n]+)?=(?!=)))")


def _reads_outside(file: Asked, name: str, qualname: str) -> bool:
    """True where code outside of a function reads an attribute of that name."""
    entry = file.index["functions"].get(qualname)
    first, last = (entry[0], entry[2]) if entry is not None else (1, 0)
    pattern = reads_pattern(name)
    return any(pattern.search(text) for text in (*file.lines[: first - 1], *file.lines[last:]))


ASKED: dict[str, Callable[..., Any]] = {
    "global": _global,
    "has": _has,
    "decorated": _decorated,
    "sets": _sets,
    "abstract": _abstract,
    "stored": _stored,
    "filled": _filled,
    "rebinds": rebinding,
    "reads outside": _reads_outside,
}
