"""Arguments of calls in libcst trees: adding one keeps the layout, be it one line or a line for each."""

from __future__ import annotations

import ast

import libcst as cst

_NEXT = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def expression(text: str) -> cst.BaseExpression:
    return cst.parse_expression(text)


def argument(value: cst.BaseExpression, keyword: str = "") -> cst.Arg:
    """An argument; `keyword=value` without spaces."""
    if not keyword:
        return cst.Arg(value)
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return cst.Arg(value, keyword=cst.Name(keyword), equal=tight)


def prepended(call: cst.Call, first: cst.Arg) -> cst.Call:
    """The call with one more argument in front."""
    if call.args:
        first = first.with_changes(comma=_NEXT)
    return call.with_changes(args=[first, *call.args])


def appended(call: cst.Call, new: cst.Arg) -> cst.Call:
    """The call with one more argument at the end. Comments stay with the argument that they follow."""
    if not call.args:
        return call.with_changes(args=[new])
    *others, last = call.args
    if isinstance(last.comma, cst.Comma):
        closing = last.comma.whitespace_after
        comma, new = last.comma, new.with_changes(comma=last.comma)
        if isinstance(closing, cst.ParenthesizedWhitespace):
            comma = comma.with_changes(whitespace_after=_indented(call, closing))
            new = new.with_changes(comma=last.comma.with_changes(whitespace_after=_bare(closing)))
        else:
            comma = _NEXT
    else:
        closing = last.whitespace_after_arg
        comma = _NEXT
        last = last.with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
        if isinstance(closing, cst.ParenthesizedWhitespace):
            comma = cst.Comma(whitespace_after=_indented(call, closing))
            closing = _bare(closing)
        new = new.with_changes(whitespace_after_arg=closing)
    return call.with_changes(args=[*others, last.with_changes(comma=comma), new])


def _indented(call: cst.Call, closing: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    """The white space before the closing bracket, but with the indentation of arguments."""
    commas = [arg.comma.whitespace_after for arg in call.args[:-1] if isinstance(arg.comma, cst.Comma)]
    for space in [call.whitespace_before_args, *commas]:
        if isinstance(space, cst.ParenthesizedWhitespace):
            return closing.with_changes(indent=space.indent, last_line=space.last_line)
    return closing


def _bare(space: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    """The same line break without comments and empty lines."""
    first = cst.TrailingWhitespace(newline=space.first_line.newline)
    return space.with_changes(first_line=first, empty_lines=[])


def function_named(call: cst.Call, old: str, new: str) -> cst.Call:
    """The call of another function; where only the last part of the name differs, the rest stays as written."""
    function = call.func
    if isinstance(function, cst.Attribute) and old.rpartition(".")[0] == new.rpartition(".")[0]:
        return call.with_changes(func=function.with_changes(attr=cst.Name(new.rpartition(".")[2])))
    return call.with_changes(func=expression(new))


def keyword_of(node: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((k.value for k in node.keywords if k.arg == name), None)


def plain(node: ast.Call) -> bool:
    """No `*args` and no `**kwargs`: all arguments are there to see."""
    return extensible(node) and all(k.arg for k in node.keywords)


def extensible(node: ast.Call) -> bool:
    """Whether a named argument can be added: not after `*args`, nor beside a generator without parentheses of its own."""
    return not any(isinstance(a, (ast.Starred, ast.GeneratorExp)) for a in node.args)


def repeatable(node: ast.expr) -> bool:
    """Names, attributes and constant subscripts: evaluating it twice, or later, makes no difference."""
    if isinstance(node, ast.Attribute):
        return repeatable(node.value)
    if isinstance(node, ast.Subscript):
        return repeatable(node.value) and all(
            isinstance(n, (ast.Name, ast.Constant, ast.Slice, ast.Tuple, ast.UnaryOp, ast.USub, ast.Load))
            for n in ast.walk(node.slice)
        )
    return isinstance(node, (ast.Name, ast.Constant))
