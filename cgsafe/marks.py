"""Comments that tell the walk something it cannot see: `not-captured`, `host` and `device`.

They are resolved to places in the code when a file is indexed, since they change what the walk finds.
"""

from __future__ import annotations

import ast
from typing import Any

from cgsafe.comments import MARKERS, WORD, Comments, Directive

_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_Assignments = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def marks_of(text: str, tree: ast.Module) -> dict[str, Any] | None:
    """What the markers of a text mean, as plain data; None where it has none.

    `cut`: lines of `def` and `class`; `values`: line of an assignment -> (kind, names); `params`: line of a `def` ->
    its parameters by name -> kind.
    """
    if WORD not in text:
        return None
    return resolve(Comments(text), tree)[0]


def resolve(comments: Comments, tree: ast.Module) -> tuple[dict[str, Any] | None, list[tuple[Directive, str]]]:
    """The marks, and the markers that mean nothing where they stand, with what is wrong."""
    wanted = [d for d in comments.directives if d.kind in MARKERS and not d.fault]
    if not wanted:
        return None, []
    cut: list[int] = []
    values: dict[int, tuple[str, tuple[str, ...]]] = {}
    params: dict[int, dict[str, str]] = {}
    useless: list[tuple[Directive, str]] = []
    nodes = [n for n in ast.walk(tree) if isinstance(n, (*_Functions, ast.ClassDef, *_Assignments))]
    for directive in wanted:
        held = [n for n in nodes if directive.covers(n.lineno)]
        if directive.kind == "not-captured":
            found = [n.lineno for n in held if isinstance(n, (*_Functions, ast.ClassDef))]
            cut.extend(found)
            if not found:
                useless.append((directive, "it belongs on the line of a `def` or a `class`, or above it"))
            continue
        assignments = [n for n in held if isinstance(n, _Assignments) and n.value is not None]
        for node in assignments:
            values[node.lineno] = (directive.kind, directive.names or ())
        named = [
            (n.lineno, name) for n in held if isinstance(n, _Functions) for name in _parameters(n, directive, comments)
        ]
        for line, name in named:
            params.setdefault(line, {})[name] = directive.kind
        if not assignments and not named:
            useless.append((directive, "it belongs on the line of an assignment or of a parameter, or above it"))
    if not cut and not values and not params:
        return None, useless
    return {"cut": tuple(sorted(set(cut))), "values": values, "params": params}, useless


def _parameters(node: Any, directive: Directive, comments: Comments) -> list[str]:
    """The parameters that a marker in a function's head is about: the named ones, or those on its line."""
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if arguments.vararg is not None:
        every.append(arguments.vararg)
    if arguments.kwarg is not None:
        every.append(arguments.kwarg)
    if directive.names is not None:
        return [a.arg for a in every if a.arg in directive.names]
    line = max(directive.line, node.lineno)
    if line == directive.line and not comments.lines[line - 1][: directive.column - 1].strip():
        line = min((a.lineno for a in every if a.lineno > line), default=0)  # above a parameter, in the parentheses
    return [a.arg for a in every if a.lineno == line and a.arg not in ("self", "cls")]


def is_cut(definition: Any) -> bool:
    """Whether a function or class, or the class that a method belongs to, is marked as not captured."""
    marks = definition.file.raw.get("marks")
    if marks is None:
        return False
    owner = getattr(definition, "cls", None)
    return definition.line in marks["cut"] or (owner is not None and owner.line in marks["cut"])
