"""Transformers of assignments, subscripts, decorators and capture sites."""

from __future__ import annotations

import ast
import re

from cgsafe.fixes import transformer
from cgsafe.fixes.calls import add_keyword
from cgsafe.fixes.patch import Change
from cgsafe.fixes.target import Rewrite, Target

_ASSIGNS = re.compile(r"((?:[ \t\f]|\\(?:\r\n|\r|\n))*)=[ \t]?")
# Calls that change nothing: where they stand in a statement does not matter.
_HARMLESS = ("float", "int", "bool", "len", "abs", "min", "max", "round")


@transformer("store-to-fill")
def store_to_fill(at: Target, rows: str = "") -> Rewrite | None:
    """`x[3] = value` becomes `x[3].fill_(value)`; with `rows`, `x[index] = value` becomes `x.index_fill_(0, index, value)`."""
    target, statement = at.node, at.statement()
    if not isinstance(target, ast.Subscript) or not isinstance(statement, ast.Assign):
        return None
    if len(statement.targets) != 1 or statement.targets[0] is not target:
        return None
    text = at.file.text
    end = at.file.span(target)[1]
    finish = at.file.span(statement)[1]
    sign = _ASSIGNS.match(text, end)
    if sign is None:
        return None
    moves = any(
        isinstance(n, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr))
        or (isinstance(n, ast.Call) and not (isinstance(n.func, ast.Name) and n.func.id in _HARMLESS))
        for n in ast.walk(statement.value)
    )  # the value was made before the target was looked up, and now it is after that
    safe = not moves and not at.is_open_parameter(target.value)
    between = text[end : sign.end()].replace("=", "", 1).rstrip(" \t")
    closing: Change = (finish, finish, ")")
    if isinstance(statement.value, (ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Tuple)):
        return None
    if not rows:
        return Rewrite([(end, sign.end(), f".fill_({between.lstrip()}"), closing], safe)
    base_end, index_end = at.file.span(target.value)[1], at.file.span(target.slice)[1]
    if isinstance(target.slice, (ast.Tuple, ast.Slice)) or not re.fullmatch(
        r"\s*\[\s*", text[base_end : _start(at, target)]
    ):
        return None
    if "#" in text[index_end:end] or text[index_end:end].strip() != "]":
        return None
    opening = text[base_end : _start(at, target)].replace("[", ".index_fill_(0, ", 1)
    return Rewrite(
        [(base_end, _start(at, target), opening), (index_end, sign.end(), ", " + between.lstrip()), closing], not moves
    )


def _start(at: Target, target: ast.Subscript) -> int:
    return at.file.span(target.slice)[0]


@transformer("list-to-slice")
def list_to_slice(at: Target) -> Rewrite | None:
    """`x[[2]]` becomes `x[2:3]`, `x[..., [-2, -1]]` becomes `x[..., -2:]`: the same elements, but a view of `x`."""
    node = at.node
    if not isinstance(node, ast.Subscript):
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    lists = [part for part in parts if isinstance(part, ast.List)]
    others = [part for part in parts if not isinstance(part, ast.List)]
    if len(lists) != 1 or not all(
        isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and (p.value is None or p.value is Ellipsis))
        for p in others
    ):
        return None
    picked = [_integer(element) for element in lists[0].elts]
    if not picked or None in picked or "#" in at.text(lists[0]):
        return None
    numbers = [n for n in picked if n is not None]
    first, last = numbers[0], numbers[-1]
    if numbers != list(range(first, last + 1)) or (first < 0 <= last):
        return None
    end = "" if last == -1 else str(last + 1)
    return Rewrite([at.replace(lists[0], f"{first}:{end}")], False)


def _integer(node: ast.expr) -> int | None:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    return sign * value if isinstance(value, int) and not isinstance(value, bool) else None


@transformer("remove-decorator")
def remove_decorator(at: Target) -> Rewrite | None:
    """Take a decorator away, with its line. A comment behind it stays."""
    node = at.node
    owner = at.parent(node)
    if not isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node not in owner.decorator_list:
        return None
    file = at.file
    start, end = file.span(node)
    begin = file.line_start(start)
    indent, sign, rest = file.text[begin:start].partition("@")
    if not sign or indent.strip(" \t\f") or rest.strip(" \t\f("):
        return None
    behind = file.text[end : file.line_end(end)]
    comment = behind.lstrip(" \t\f)")
    if comment and not comment.startswith("#"):
        return None
    if comment:
        return Rewrite([(begin + len(indent), end + len(behind) - len(comment), "")], False)
    return Rewrite([(begin, file.next_line(end), "")], False)


@transformer("capture-on-stream")
def capture_on_stream(at: Target, stream: str, statement: str = "") -> Rewrite | None:
    """`torch.cuda.graph(g)` becomes `torch.cuda.graph(g, stream=...)`, with the import that names the stream."""
    changes: list[Change] = []
    if statement:
        found = at.file.imports.importing(statement)
        if found is None:
            return None
        changes = found
    elif not _in_scope(at, ast.parse(stream, mode="eval").body):
        return None
    rewrite = add_keyword(at, "stream", stream, "2")
    return None if rewrite is None else Rewrite([*rewrite.changes, *changes], False)


def _in_scope(at: Target, expression: ast.expr) -> bool:
    """Whether an expression of names and attributes means something here: its name is bound in this function or above."""
    while isinstance(expression, ast.Attribute):
        expression = expression.value
    if not isinstance(expression, ast.Name):
        return False
    node: ast.AST | None = at.node
    while (node := at.parent(node) if node is not None else None) is not None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            for inner in ast.walk(node) if not isinstance(node, ast.Module) else _top(node):
                name = inner.id if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) else None
                if expression.id == (inner.arg if isinstance(inner, ast.arg) else name):
                    return True
    return False


def _top(module: ast.Module) -> list[ast.AST]:
    """What stands in no function and no class."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = [module]
    while stack:
        node = stack.pop()
        found.append(node)
        stack += [
            child
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
        ]
    return found
