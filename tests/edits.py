"""Random edits of Python files, for tests that compare what a run recalls with what a run from scratch finds."""

from __future__ import annotations

import ast
import random
import re


def edited(text: str, rng: random.Random) -> tuple[str, str]:
    """(what was done, the new text); another text that parses."""
    while True:
        kind = rng.choice(list(EDITS))
        new = EDITS[kind](text.split("\n"), ast.parse(text), rng)
        if new is None or new == text:
            continue
        try:
            ast.parse(new)
        except (SyntaxError, ValueError):
            continue
        return kind, new


def _functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.body[0].lineno > n.lineno]


def _insert(lines, statement, *new):
    first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
    indent = " " * statement.col_offset
    return "\n".join([*lines[: first - 1], *(indent + line if line else "" for line in new), *lines[first - 1 :]])


def _in_function(*choices):
    def make(lines, tree, rng):
        functions = _functions(tree)
        if not functions:
            return None
        function = rng.choice(functions)
        names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")] or ["torch"]
        text = rng.choice(choices).format(rng.choice(names))
        return _insert(lines, rng.choice(function.body[1:] or function.body), text)

    return make


def _comment_on_top(lines, tree, rng):
    return "\n".join(["# a comment", "", *lines])


def _default(lines, tree, rng):
    places = [n for n, line in enumerate(lines) if re.search(r"=\s*(True|False|None|\d+)[,)]", line)]
    if not places:
        return None
    at = rng.choice(places)
    others = {"True": "False", "False": "True", "None": "0"}
    lines[at] = re.sub(
        r"=(\s*)(True|False|None|\d+)([,)])", lambda m: f"={m[1]}{others.get(m[2], 'None')}{m[3]}", lines[at], count=1
    )
    return "\n".join(lines)


def _rename(lines, tree, rng):
    functions = _functions(tree)
    if not functions:
        return None
    name = rng.choice(functions).name
    return re.sub(rf"\bdef {name}\(", f"def {name}_x(", "\n".join(lines), count=1)


def _subclass(lines, tree, rng):
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    if not classes:
        return None
    name = rng.choice(classes).name
    body = "    def forward(self, x):\n        return x if x.sum() > 0 else super().forward(x)\n"
    return "\n".join(lines) + f"\n\nclass Added{name}({name}):\n{body}"


def _drop(kinds):
    def make(lines, tree, rng):
        nodes = [n for n in tree.body if isinstance(n, kinds)]
        if not nodes:
            return None
        node = rng.choice(nodes)
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return "\n".join([*lines[: first - 1], *lines[node.end_lineno :]])

    return make


def _rebind(lines, tree, rng):
    names = [n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))]
    names += [n.targets[0].id for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)]
    return "\n".join(lines) + f"\n{rng.choice(names)} = None\n" if names else None


EDITS = {
    "an item": _in_function("{0}.sum().item()", "if {0}.any(): pass"),
    "an attribute": _in_function("self.weight = None", "self.scale = {0}", "global _state; _state = 1"),
    "a comment": _in_function("# a comment"),
    "a blank line": _in_function(""),
    "a comment on top": _comment_on_top,
    "a default": _default,
    "a renamed function": _rename,
    "a subclass": _subclass,
    "a class less": _drop(ast.ClassDef),
    "an import less": _drop((ast.Import, ast.ImportFrom)),
    "a name bound again": _rebind,
}
