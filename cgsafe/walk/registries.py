"""Module-level containers that start empty and are filled elsewhere: by decorators, statements and constructors."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST
from cgsafe.values import UNKNOWN, Class, Const, Dict, Func, Seq, Value, join_all

if TYPE_CHECKING:
    from cgsafe.index.project import File
    from cgsafe.walk.walker import Walker

MAX_ENTRIES = 64


def fill(walker: Walker, file: File, name: str, empty: Value) -> Value:
    """The container `name` of a module with what the known files put into it, as far as that can be seen."""
    lines = walker.text(file).lines
    stored = re.compile(rf"\b{re.escape(name)}\s*(?:\[|\.(?:append|add|update|setdefault|insert)\()")
    places = [number for number, line in enumerate(lines, 1) if stored.search(line)]
    items: dict[Any, Value] = {}
    others: list[Value] = []
    functions = file.index["functions"]
    for number in places:
        holder = _holder(functions, number)
        if holder is None:
            _statement(walker, file, lines, number, items, others)
        elif re.search(rf"\b{re.escape(name)}\s*\[.*\]\s*=\s*self\b", lines[number - 1]) and functions[holder][3]:
            others.append(walker.classes.any_of(walker.definitions.class_(file, functions[holder][3])))
        else:
            _decorated(walker, file, holder.rpartition(".")[2], items, others)
    if len(items) + len(others) > MAX_ENTRIES:
        items, others = {}, [UNKNOWN]
    if isinstance(empty, Seq):
        values = [*items.values(), *others]
        return Seq(empty.kind, None, join_all(values) if values else UNKNOWN)
    return Dict(items, join_all(others) if others else (None if items else UNKNOWN))


def _holder(functions: dict[str, Any], line: int) -> str | None:
    """The innermost function around a line."""
    found = None
    for name, (first, _, last, _, _) in functions.items():
        if first <= line <= last and (found is None or first > functions[found][0]):
            found = name
    return found


def _statement(
    walker: Walker, file: File, lines: list[str], number: int, items: dict[Any, Value], others: list[Value]
) -> None:
    """`NAME[key] = value` or `NAME.append(value)` at module level."""
    from cgsafe.walk.frame import Frame
    from cgsafe.walk.walker import Node

    source = ""
    body: list[ast.stmt] = []
    for line in lines[number - 1 : number + 20]:
        source += line.strip() + "\n"
        try:
            body = ast.parse(source).body
            break
        except SyntaxError:
            continue
    frame = Frame(walker, Node(None, HOST, (), None), None, file, number - 1)
    for statement in body[:1]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
            key = frame.eval(statement.targets[0].slice)
            value = frame.eval(statement.value)
            if isinstance(key, Const):
                items[key.value] = value
            else:
                others.append(value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args:
            others.append(frame.eval(statement.value.args[-1]))


def _decorated(walker: Walker, file: File, registrar: str, items: dict[Any, Value], others: list[Value]) -> None:
    """Functions and classes under the decorator `registrar` of a file, wherever it is imported."""
    for path in sorted(walker.project.files):
        other = walker.project.files[path]
        if other is not file and registrar not in other.index["imports"]:
            continue
        for qualified, entry in other.index["functions"].items():
            if not entry[3] and any(d.rpartition(".")[2] == registrar for d in entry[4]):
                value: Value = Func(walker.definitions.function(other, qualified))
                _put(walker, other, (entry[0], entry[1]), registrar, value, items, others)
        for qualified, info in other.index["classes"].items():
            if any(d.rpartition(".")[2] == registrar for d in info["decorators"]):
                value = Class(walker.definitions.class_(other, qualified))
                _put(walker, other, info["lines"][:2], registrar, value, items, others)


def _put(
    walker: Walker,
    file: File,
    lines: tuple[int, int],
    registrar: str,
    value: Value,
    items: dict[Any, Value],
    others: list[Value],
) -> None:
    text = "\n".join(walker.text(file).lines[lines[0] - 1 : lines[1]])
    match = re.search(rf"""{re.escape(registrar)}\(\s*["']([^"']+)["']""", text)
    if match is not None:
        items[match.group(1)] = value
    else:
        others.append(value)
