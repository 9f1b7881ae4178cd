"""Module-level containers that start empty and are filled elsewhere: by decorators, statements and constructors."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST
from cgsafe.index.asked import innermost
from cgsafe.values import UNKNOWN, Class, Const, Dict, Func, Seq, Value, join_all

if TYPE_CHECKING:
    from cgsafe.index.project import File
    from cgsafe.walk.defs import ClassDef
    from cgsafe.walk.walker import Walker

MAX_ENTRIES = 64


def fill(walker: Walker, file: File, name: str, empty: Value) -> Value:
    """The container `name` of a module with what the known files put into it, as far as that can be seen."""
    walker.ask(file, "stored", name)
    lines = walker.raw_text(file).lines
    stored = re.compile(rf"\b{re.escape(name)}\s*(?:\[|\.(?:append|add|update|setdefault|insert)\()")
    places = [number for number, line in enumerate(lines, 1) if stored.search(line)]
    items: dict[Any, Value] = {}
    others: list[Value] = []
    functions = file.raw["functions"]
    for number in places:
        holder = innermost(functions, number)
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


def fill_of_class(walker: Walker, owner: ClassDef, name: str, empty: Value) -> Value:
    """The container `name` of a class body with what a classmethod of it, used as a decorator, puts into it."""
    place = rf"\b(?:cls|{re.escape(owner.name)})\.{re.escape(name)}"
    stored = re.compile(rf"{place}\s*(?:\[.*\]\s*=\s*(\w+)\s*(?:#|$)|\.(?:append|add)\((\w+)\))")
    if owner.scope is not None or owner.qualname not in owner.file.raw["classes"]:
        return empty  # a class inside a function
    walker.ask(owner.file, "filled", owner.qualname, name)
    lines = walker.raw_text(owner.file).lines
    _, first, last = owner.file.raw["classes"][owner.qualname]["lines"]
    functions = owner.file.raw["functions"]
    found: list[Value] = []
    for number in range(first, last + 1):
        match = stored.search(lines[number - 1])
        if match is not None and _is_given(lines, number, match[1] or match[2]):
            holder = innermost(functions, number) or ""
            if holder.startswith(f"{owner.qualname}."):
                method = holder[len(owner.qualname) + 1 :].partition(".")[0]
                found.extend(_under(walker, owner, f"{owner.name}.{method}"))
    if not found or len(found) > MAX_ENTRIES:
        return empty
    values = join_all(found)
    return Seq(empty.kind, None, values) if isinstance(empty, Seq) else Dict({}, values)


def _is_given(lines: list[str], number: int, name: str) -> bool:
    """True for a parameter of the innermost function around a line."""
    for line in reversed(lines[: number - 1]):
        match = re.match(r"\s*def \w+\((.*)", line)
        if match is not None:
            return re.search(rf"\b{re.escape(name)}\b", match[1]) is not None
    return False


def _under(walker: Walker, owner: ClassDef, decorator: str) -> list[Value]:
    """The functions under a decorator that is a method of a class."""
    found: list[Value] = []
    for other, kind, qualified in walker.project.decorated(decorator.rpartition(".")[2]):
        if kind == "functions" and (other is owner.file or owner.name in other.raw["imports"]):
            decorators = other.raw["functions"][qualified][4]
            if any(d == decorator or d.endswith(f".{decorator}") for d in decorators):
                found.append(Func(walker.definitions.function(other, qualified)))
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
    for other, kind, qualified in walker.project.decorated(registrar):
        if other is not file and registrar not in other.raw["imports"]:
            continue
        if kind == "functions":
            lines = other.raw["functions"][qualified][:2]
            value: Value = Func(walker.definitions.function(other, qualified))
        else:
            lines = other.raw["classes"][qualified]["lines"][:2]
            value = Class(walker.definitions.class_(other, qualified))
        _put(walker, other, lines, registrar, value, items, others)


def _put(
    walker: Walker,
    file: File,
    lines: tuple[int, int],
    registrar: str,
    value: Value,
    items: dict[Any, Value],
    others: list[Value],
) -> None:
    text = "\n".join(walker.raw_text(file).lines[lines[0] - 1 : lines[1]])
    match = re.search(rf"""{re.escape(registrar)}\(\s*["']([^"']+)["']""", text)
    if match is not None:
        items[match.group(1)] = value
    else:
        others.append(value)
