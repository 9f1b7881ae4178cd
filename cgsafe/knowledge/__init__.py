"""Knowledge tables: what PyTorch calls give back, as readable TOML beside this file.

`load(name)` reads one table file, `tables()` bundles those about PyTorch, `parse_entry` and `parse_spec` turn their
texts into small tuples, on demand. Parsing all files takes about 20 ms, so the parsed form is kept in the user's cache
folder (then it is 1 ms); whatever is wrong with that copy, the files beside this one decide.

The language of a SPEC, in short (torch_functions.toml tells what each kind means):

    SPEC     = KIND ["@" POSITION] [":" DTYPE] | ("tuple" | "list") "(" SPEC {"," SPEC} ")"
    DTYPE    = bool | int | float (complex too) | num (int if the argument is bool, else as it is)
             | first (as the first tensor argument); after `host` another word: what kind of value
    POSITION = where `dim` stands when it is passed by position, counting the tensor as 0 (default 1)

An entry is a SPEC or an inline table:

    returns   the SPEC
    read      the host gets to see device values: "item" one of them, "list" many, "copy" the whole tensor,
              "size" how many there are (an output whose shape depends on the values)
    fails     the call fails under capture all the same; the text says what it does ("copies the state to the host")
    held      of an object's method: this argument of the constructor is read
    unless    ... but not under this condition
    only_if   ... and only under this condition
    when      other SPECs, by condition on parameters

A condition is `NAME` (the parameter is given, and neither None nor False), `-NAME` (it is not), `NAME=TEXT` (it is this
string, number, dtype or the like); `+` joins conditions that must hold together, in `unless` and `only_if` `|` joins
alternatives of these, `@2` behind a name tells its position (the tensor being 0) where
people pass it by position. For a module's layer and an object's method the parameters are those of its constructor.
"""

from __future__ import annotations

import marshal
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent

# Tensor results. What each means for device, dtype kind and rank is told in torch_functions.toml.
TENSOR_KINDS = frozenset(
    "like same nd kept vector matrix scalar elementwise reduce reduce-pair "
    "factory factory-like factory-same factory-scalar type-as to cpu pinned cuda type data".split()
)
HOST_DTYPES = frozenset("int float bool str shape device dtype number list tuple".split())
OTHER_KINDS = frozenset(
    "none self numpy stream event generator object instance storage callable disable compile wraps context call-first unknown".split()
)
TENSOR_DTYPES = frozenset("bool int float num first".split())
READS = frozenset("item list copy size".split())
_WITHOUT_DTYPE = frozenset("reduce-pair type-as to type".split())


class Spec(NamedTuple):
    """What a call returns: `Spec("reduce", "float", (), 2)` is `reduce@2:float`."""

    kind: str
    dtype: str = ""  # "": the dtype kind follows from the arguments
    parts: tuple[Spec, ...] = ()  # of a tuple, in order; of a list, its one element
    at: int = 1  # the position of `dim` among the arguments, the tensor being 0


class Condition(NamedTuple):
    """A parameter that decides about a result. `-other@2` in a table: the parameter `other` (position 2) is absent."""

    name: str
    at: int = -1  # -1: by keyword only (or hardly ever by position)
    absent: bool = False
    value: str = ""  # not "": only this string counts


class Entry(NamedTuple):
    """One line of a table."""

    returns: Spec
    read: str = ""
    unless: tuple[tuple[Condition, ...], ...] = ()  # alternatives
    only_if: tuple[tuple[Condition, ...], ...] = ()
    when: tuple[tuple[tuple[Condition, ...], Spec], ...] = ()  # most conditions first; the first that holds counts
    fails: str = ""
    held: Condition | None = None


class Tables(NamedTuple):
    """The tables about PyTorch and numpy: name -> text or inline table, for `parse_entry`."""

    methods: dict[str, Any]
    attributes: dict[str, Any]
    only_tensor: frozenset[str]
    functions: dict[str, Any]
    modules: dict[str, Any]
    losses: dict[str, Any]
    containers: frozenset[str]
    weighted: frozenset[str]
    numpy: dict[str, Any]
    objects: dict[str, Any]


@cache
def parse_spec(text: str) -> Spec:
    """`"list(like:int)"` -> `Spec("list", "", (Spec("like", "int"),))`; ValueError if the text is no spec."""
    head, bracket, rest = text.partition("(")
    if bracket:
        if head not in ("tuple", "list") or not rest.endswith(")"):
            raise ValueError(f"bad spec {text!r}: only tuple(...) and list(...) take brackets")
        parts = tuple(parse_spec(part) for part in _split(rest[:-1], text))
        if head == "list" and len(parts) != 1:
            raise ValueError(f"bad spec {text!r}: a list has one kind of element")
        return Spec(head, "", parts)
    head, colon, dtype = text.partition(":")
    kind, sign, position = head.partition("@")
    if kind == "host":
        allowed = HOST_DTYPES
    elif kind in TENSOR_KINDS:
        allowed = TENSOR_DTYPES if kind not in _WITHOUT_DTYPE else frozenset()
    elif kind in OTHER_KINDS:
        allowed = frozenset()
    else:
        raise ValueError(f"bad spec {text!r}: {kind!r} is no kind")
    if (colon or kind == "host") and dtype not in allowed:
        raise ValueError(f"bad spec {text!r}: {dtype!r} does not go with {kind!r}")
    if sign and not (kind == "reduce" and position.isdecimal()):
        raise ValueError(f"bad spec {text!r}: only reduce has a position, and it is a number")
    return Spec(kind, dtype, (), int(position) if sign else 1)


@cache
def _parse_condition(text: str) -> Condition:
    where, equals, value = text.removeprefix("-").partition("=")
    name, sign, position = where.partition("@")
    absent = text.startswith("-")
    if not name.isidentifier() or (sign and not position.isdecimal()) or (equals and (absent or not value)):
        raise ValueError(f"bad condition {text!r}: it is [-]NAME[@POSITION] or NAME[@POSITION]=TEXT")
    return Condition(name, int(position) if sign else -1, absent, value)


@cache
def _parse_alternatives(text: str) -> tuple[tuple[Condition, ...], ...]:
    return tuple(tuple(_parse_condition(name) for name in names.split("+")) for names in text.split("|") if text)


def parse_entry(value: str | dict[str, Any]) -> Entry:
    """A table's value, text or inline table, in full; ValueError tells what is wrong with it."""
    if isinstance(value, str):
        return _plain_entry(value)
    known = _entries.get(id(value))
    if known is None or known[0] is not value:
        known = _entries[id(value)] = (value, _table_entry(value))
    return known[1]


_entries: dict[int, tuple[dict[str, Any], Entry]] = {}  # with the table itself, so that no other one gets its id


def _table_entry(value: dict[str, Any]) -> Entry:
    unknown = value.keys() - {"returns", "read", "unless", "only_if", "when", "fails", "held"}
    if unknown or "returns" not in value:
        fault = f"unknown {', '.join(sorted(unknown))}" if unknown else "no returns"
        raise ValueError(f"bad entry {value!r}: {fault}")
    read = value.get("read", "")
    if read and read not in READS:
        raise ValueError(f"bad entry {value!r}: read is one of {', '.join(sorted(READS))}")
    when = [
        (tuple(_parse_condition(name) for name in names.split("+")), parse_spec(spec))
        for names, spec in value.get("when", {}).items()
    ]
    when.sort(key=lambda pair: -len(pair[0]))  # stable: the table's order among equals
    held = value.get("held")
    return Entry(
        parse_spec(value["returns"]),
        read,
        _parse_alternatives(value.get("unless", "")),
        _parse_alternatives(value.get("only_if", "")),
        tuple(when),
        value.get("fails", ""),
        _parse_condition(held) if held else None,
    )


@cache
def _plain_entry(text: str) -> Entry:
    return Entry(parse_spec(text))


@cache
def load(name: str) -> dict[str, Any]:
    """The table file `name`.toml, parsed. The result is shared: do not change it."""
    path = FOLDER / f"{name}.toml"
    status = path.stat()
    stamp = (str(path), status.st_mtime_ns, status.st_size)
    copy = _cached_copy(name)
    try:
        kept, table = marshal.loads(copy.read_bytes()) if copy else ((), {})
        if kept == stamp:
            return table
    except (OSError, ValueError, EOFError, TypeError):
        pass
    table = _parse_toml(path.read_text(encoding="utf-8"))
    if copy:
        _keep(copy, marshal.dumps((stamp, table)))
    return table


@cache
def tables() -> Tables:
    """All tables about PyTorch and numpy."""
    methods, functions, modules = load("tensor_methods"), load("torch_functions"), load("torch_modules")
    return Tables(
        methods=methods["methods"],
        attributes=methods["attributes"],
        only_tensor=frozenset(methods["only_tensor"]["names"]),
        functions=functions["functions"],
        modules=modules["modules"],
        losses=modules["losses"],
        containers=frozenset(modules["containers"]["names"]),
        weighted=frozenset(modules["weighted"]["names"]),
        numpy=load("numpy_functions")["functions"],
        objects=load("torch_objects")["methods"],
    )


def _split(text: str, whole: str) -> list[str]:
    """At the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            break
        if char == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    if depth or not all(parts):
        raise ValueError(f"bad spec {whole!r}: brackets or commas do not match")
    return parts


def _cached_copy(name: str) -> Path | None:
    """Where the parsed form is kept; None without a folder that is surely the user's own (never a relative one)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    return Path(base, "cgsafe", "knowledge", f"{name}.{sys.implementation.cache_tag}.marshal")


def _parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _keep(path: Path, content: bytes) -> None:
    """Write in one step, so that another process never reads half; a folder that cannot be written is no fault."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
