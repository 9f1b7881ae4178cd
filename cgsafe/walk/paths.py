"""Dotted paths: the names under which an environment keeps what attributes hold."""

from __future__ import annotations

import ast


def dotted_path(node: ast.expr) -> str | None:
    """`a.b.c` for an attribute chain on a name, else None; the tree keeps it, since it is asked for at every run."""
    kind = node.__class__
    if kind is ast.Name:
        return node.id  # type: ignore[attr-defined,no-any-return]
    if kind is not ast.Attribute:
        return None
    try:
        return node.path  # type: ignore[attr-defined,no-any-return]
    except AttributeError:
        base = dotted_path(node.value)  # type: ignore[attr-defined]
        path = node.path = f"{base}.{node.attr}" if base is not None else None  # type: ignore[attr-defined]
        return path
