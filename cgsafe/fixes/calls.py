"""Transformers of calls: another function, other arguments."""

from __future__ import annotations

import ast
from typing import Any

import libcst as cst

from cgsafe.fixes import transformer
from cgsafe.fixes.arguments import (
    appended,
    argument,
    expression,
    extensible,
    function_named,
    keyword_of,
    plain,
    prepended,
    repeatable,
)
from cgsafe.fixes.target import Rewrite, Target


@transformer("add-keyword")
def add_keyword(at: Target, name: str, value: str, most: str = "", function: str = "") -> Rewrite | None:
    """`f(a)` becomes `f(a, name=value)`, `f(a, name=None)` gets the value; with at most `most` arguments by position.

    `function`: the beginning of the full name that the called function must have.
    """
    call = at.node
    if not isinstance(call, ast.Call) or not extensible(call):
        return None
    if (most and len(call.args) > int(most)) or (function and not at.file.qualified(call.func).startswith(function)):
        return None
    present = keyword_of(call, name)
    if present is not None:
        is_open = isinstance(present, ast.Constant) and present.value is None
        return Rewrite([at.replace(present, value)]) if is_open else None
    tree = at.parse(call)
    if not isinstance(tree, cst.Call):
        return None
    return Rewrite([at.rendered(call, appended(tree, argument(expression(value), name)))])


@transformer("copy-without-waiting")
def copy_without_waiting(at: Target) -> Rewrite | None:
    """`x.to(device)`, `x.cuda()` and `y.copy_(x)` get `non_blocking=True`."""
    call = at.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    return add_keyword(at, "non_blocking", "True", "1") if call.func.attr in ("to", "cuda", "copy_") else None


@transformer("call-function")
def call_function(at: Target, old: str, new: str, item: str = "", parameters: str = "") -> Rewrite | None:
    """`old(...)` becomes `new(...)` and, with `item`, that part of its result: "[0]", "[:2]".

    `old` and `new` are full names. `parameters`: old=new names of parameters that are called differently, and the
    keywords that may be given at all, with commas; "" where both take the same, except `out`.
    """
    call = at.node
    if not isinstance(call, ast.Call) or not plain(call) or at.file.qualified(call.func) != old:
        return None
    renamed = dict(pair.partition("=")[::2] for pair in parameters.split(",") if pair)
    if any(k.arg == "out" or (renamed and k.arg not in renamed) for k in call.keywords):
        return None
    if item and isinstance(at.parent(call), ast.Attribute):
        return None  # fields of the result by name
    name = at.file.named(new)
    tree = at.parse(call)
    if name is None or not isinstance(tree, cst.Call):
        return None
    args = [
        a.with_changes(keyword=cst.Name(renamed[a.keyword.value] or a.keyword.value)) if a.keyword and renamed else a
        for a in tree.args
    ]
    result: cst.BaseExpression = function_named(tree, old, name[0] if _moves(old, new, call) else new)
    result = result.with_changes(args=args)
    if item:
        result = _item(result, item)
    return Rewrite([at.rendered(call, result), *name[1]] if _moves(old, new, call) else [at.rendered(call, result)])


def _moves(old: str, new: str, call: ast.Call) -> bool:
    """Whether the new function must be named anew: it is elsewhere, or the old one was imported by itself."""
    return isinstance(call.func, ast.Name) or old.rpartition(".")[0] != new.rpartition(".")[0]


def _item(tree: cst.BaseExpression, item: str) -> cst.BaseExpression:
    subscript: Any = expression(f"x{item}")
    lpar, rpar = tree.lpar, tree.rpar
    return subscript.with_changes(value=tree.with_changes(lpar=[], rpar=[]), lpar=lpar, rpar=rpar)


@transformer("data-to-full")
def data_to_full(at: Target, kind: str = "") -> Rewrite | None:
    """`torch.tensor(2.0, device=d)` becomes `torch.full((), 2.0, device=d)`, which is filled on the device.

    `kind`: of the data, where it is known to be one number. Both infer the same dtype of a Python number. A numpy number
    is a `float` too, but has a dtype of its own; lists whose length is only known at run time may be empty.
    """
    call = at.node
    if not isinstance(call, ast.Call) or not plain(call):
        return None
    data = keyword_of(call, "data") or (call.args[0] if call.args else None)
    if (
        data is None
        or len(call.args) > 1
        or {k.arg for k in call.keywords}
        - {
            "data",
            "dtype",
            "device",
            "requires_grad",
        }
    ):
        return None
    has_dtype = keyword_of(call, "dtype") is not None
    known = kind and not at.is_open_parameter(data) and (has_dtype or kind in ("int", "bool"))
    size, value, safe = "()", data, bool(known) or _host_number(at, data)
    if isinstance(data, (ast.List, ast.Tuple)) and data.elts:
        first = data.elts[0]
        if not _number(first) or any(ast.dump(e) != ast.dump(first) for e in data.elts):
            return None
        size, value, safe = f"({len(data.elts)},)", first, True
    elif isinstance(data, ast.BinOp) and isinstance(data.op, ast.Mult):
        sides = [data.left, data.right]
        lists = [s for s in sides if isinstance(s, ast.List) and len(s.elts) == 1 and _number(s.elts[0])]
        counts = [s for s in sides if not isinstance(s, ast.List)]
        if lists and counts:
            count = counts[0]
            safe = isinstance(count, ast.Constant) and isinstance(count.value, int) and count.value > 0
            size, value = f"({at.text(count)},)", lists[0].elts[0]
        elif not kind:
            return None
    elif not kind and not _host_number(at, data):
        return None
    return _filled(at, call, data, size, value, safe, has_dtype)


def _filled(
    at: Target, call: ast.Call, data: ast.expr, size: str, value: ast.expr, safe: bool, has_dtype: bool
) -> Rewrite | None:
    tree = at.parse(call)
    name = at.file.qualified(call.func)
    if not isinstance(tree, cst.Call):
        return None
    changes = []
    if name in ("torch.tensor", "torch.as_tensor"):
        written = at.file.named("torch.full")
        if written is None:
            return None
        if isinstance(call.func, ast.Name):
            tree = function_named(tree, name, written[0])
            changes = written[1]
        else:
            tree = function_named(tree, name, "torch.full")
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "new_tensor" and not name:
        tree = tree.with_changes(func=tree.func.with_changes(attr=cst.Name("new_full")))
        safe = safe and has_dtype  # a number that the tensor's own dtype cannot hold is treated differently
    else:
        return None
    by_name = keyword_of(call, "data") is not None
    args = []
    for arg in tree.args:
        is_data = arg.keyword.value == "data" if by_name and arg.keyword else not by_name and arg is tree.args[0]
        if is_data:
            if value is not data:
                arg = arg.with_changes(value=expression(at.text(value)))
            if by_name:
                arg = arg.with_changes(keyword=cst.Name("fill_value"))
        args.append(arg)
    first = argument(expression(size), "" if not by_name else "size")
    return Rewrite([at.rendered(call, prepended(tree.with_changes(args=args), first)), *changes], safe)


def _host_number(at: Target, node: ast.expr) -> bool:
    """A number, whatever else: a literal, `torch.finfo(...).min`, `math.inf`, `float("-inf")`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        node = node.operand
    if isinstance(node, ast.Attribute):
        inside = node.value.func if isinstance(node.value, ast.Call) else node
        return at.file.qualified(inside) in ("torch.finfo", "torch.iinfo", "math.inf", "math.pi", "math.nan")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
        return len(node.args) == 1 and isinstance(node.args[0], ast.Constant)
    return _number(node)


def _number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


@transformer("masked-fill-to-where")
def masked_fill_to_where(at: Target) -> Rewrite | None:
    """`x.masked_fill(mask, value)` becomes `torch.where(mask, value, x)`, and in place `x.copy_(torch.where(...))`.

    Not the same where the value's dtype is wider than that of `x`.
    """
    call = at.node
    if not isinstance(call, ast.Call) or not plain(call) or not isinstance(call.func, ast.Attribute):
        return None
    values: list[ast.expr | None] = list(call.args)
    name = at.file.qualified(call.func)
    values = values if name else [call.func.value, *values]
    for parameter in ("input", "mask", "value")[len(values) :]:
        values.append(keyword_of(call, parameter))
    if len(values) != 3 or name not in ("", "torch.masked_fill") or len(call.args) + len(call.keywords) > 3:
        return None
    base, mask, value = values
    where = at.file.named("torch.where")
    if base is None or mask is None or value is None or where is None:
        return None
    if not all(repeatable(base) or repeatable(v) for v in (mask, value)):
        return None  # it would be evaluated after them
    text = f"{where[0]}({at.text(mask)}, {at.text(value)}, {at.text(base)})"
    if call.func.attr == "masked_fill_":
        if not repeatable(base):
            return None
        text = f"{at.text(base)}.copy_({text})"
    elif call.func.attr != "masked_fill":
        return None
    if "#" in at.text(call) or "\n" in at.text(base):
        return None  # comments would be lost
    return Rewrite([at.replace(call, text), *where[1]])


_FACTORIES = ("torch.arange", "torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.eye")
_ROUNDED = ("torch.linspace", "torch.logspace")  # the last bit may differ between devices
_KEEPING = set(  # methods that give the very same values on each device
    "tril triu view reshape unsqueeze squeeze expand repeat t transpose permute flatten contiguous "
    "long int bool float half bfloat16 double clone".split()
)


@transformer("make-on-device")
def make_on_device(at: Target) -> Rewrite | None:
    """`torch.arange(n).to(device)` becomes `torch.arange(n, device=device)`; `x.copy_(torch.ones(n))` likewise."""
    call = at.node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not plain(call):
        return None
    if {k.arg for k in call.keywords} - {"device", "non_blocking"}:
        return None
    method, receiver = call.func.attr, call.func.value
    given = keyword_of(call, "device") or (call.args[0] if call.args else None)
    if method == "copy_":
        if len(call.args) != 1 or not repeatable(receiver):
            return None
        made, device = call.args[0], f"{at.text(_base(receiver))}.device"
    elif method == "cuda" and given is None:
        made, device = receiver, '"cuda"'
    elif method in ("to", "cuda") and given is not None and len(call.args) <= 1 and _names_device(given):
        made, device = receiver, at.text(given)
    else:
        return None
    factory = _factory(at, made)
    if factory is None:
        return None
    node, safe = factory
    tree = at.parse(node)
    if not isinstance(tree, cst.Call):
        return None
    change = at.rendered(node, appended(tree, argument(expression(device), "device")))
    if method == "copy_":
        return Rewrite([change], safe)
    # What follows the receiver, `.to(device)`, goes.
    start, end = at.file.span(receiver)[1], at.file.span(call)[1]
    gone = at.file.text[start:end]
    if "#" in gone or gone.lstrip()[:1] != ".":
        return None
    return Rewrite([change, (start, end, "")], safe)


def _base(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _names_device(node: ast.expr) -> bool:
    """`x.device`, `self.device`, "cuda:0": an argument of `to` that is a device, and not a dtype or a tensor."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return (name == "device" or name.endswith("_device")) and repeatable(node)


def _factory(at: Target, node: ast.expr) -> tuple[ast.Call, bool] | None:
    """The call that makes a tensor, below methods that only shape it; and whether each device fills in the same values."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPING:
        if at.file.qualified(node.func):
            return None
        inner: ast.expr = node.func.value
        node = inner
    if not isinstance(node, ast.Call) or not plain(node):
        return None
    name = at.file.qualified(node.func)
    if {k.arg for k in node.keywords} & {"device", "out", "pin_memory", "generator", "layout"}:
        return None
    if name in _ROUNDED:
        return node, False
    if name not in _FACTORIES:
        return None
    whole = name != "torch.arange" or len(node.args) + len([k for k in node.keywords if k.arg != "dtype"]) == 1
    return node, whole or all(isinstance(a, ast.Constant) and isinstance(a.value, int) for a in node.args[2:])


@transformer("unwrap-call")
def unwrap_call(at: Target, function: str) -> Rewrite | None:
    """`function(f, ...)` becomes `f`, where `f` is a function of this file or a method: what it is, is there to see."""
    call = at.node
    if not isinstance(call, ast.Call) or at.file.qualified(call.func) != function or not call.args:
        return None
    inner = call.args[0]
    owner = inner.value if isinstance(inner, ast.Attribute) else None
    is_method = isinstance(owner, ast.Name) and owner.id == "self"
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    is_function = isinstance(inner, ast.Name) and any(
        isinstance(s, functions) and s.name == inner.id for s in at.file.tree.body
    )
    if not (is_method or is_function) or isinstance(at.statement(), ast.Return) or "#" in at.text(call):
        return None
    return Rewrite([at.replace(call, at.text(inner))])
