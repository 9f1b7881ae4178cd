"""Abstract values in a reader's words."""

from __future__ import annotations

from cgsafe.values import (
    NONE,
    UNKNOWN,
    Bound,
    Class,
    Compiled,
    Const,
    Device,
    Dict,
    Ext,
    ExtInstance,
    ExtMethod,
    Func,
    Host,
    Instance,
    ModuleRef,
    Numpy,
    Partial,
    Seq,
    Super,
    Tensor,
    Union,
    Value,
)

_SURE = {3: "sure", 2: "likely", 1: "a guess"}
_DTYPES = {"b": "bool", "i": "int", "f": "float"}
_DEVICES = {"pinned": "in pinned host memory", "": "on an unknown device"}
MAX_SHOWN = 4  # items of a container


def in_words(value: Value, depth: int = 0) -> str:
    """What a value is: `tensor on cuda, 0-dim, int (sure)`."""
    if value is UNKNOWN:
        return "unknown"
    if isinstance(value, Const):
        text = repr(value.value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, Tensor):
        return tensor_in_words(value)
    if isinstance(value, Union):
        return " or ".join(dict.fromkeys(in_words(p, depth) for p in value.parts))
    if isinstance(value, Host):
        return {"object": "some host value", "settings": "settings (on the host)"}.get(value.kind, value.kind)
    if isinstance(value, Numpy):
        return "numpy array or number"
    if isinstance(value, Device):
        return f"device {value.type}" if value.type else "device"
    if isinstance(value, (Seq, Dict)):
        return _container(value, depth)
    return _object(value, depth)


def tensor_in_words(value: Tensor) -> str:
    """Device, rank, kind of numbers, and how sure that is."""
    facts = [f"tensor {_DEVICES.get(value.device, f'on {value.device}')}"]
    if value.rank is not None:
        facts.append("1 or more dims" if value.rank == 1 else f"{abs(value.rank)}-dim")
    if value.dtype:
        facts.append(_DTYPES[value.dtype])
    return f"{', '.join(facts)} ({_SURE[value.confidence]})"


def _container(value: Seq | Dict, depth: int) -> str:
    if depth >= 2:
        return value.kind if isinstance(value, Seq) else "dict"
    if isinstance(value, Dict):
        shown = [f"{k!r}: {in_words(v, depth + 1)}" for k, v in value.items[:MAX_SHOWN]]
        more = len(value.items) - MAX_SHOWN
        if more > 0:
            shown.append(f"{more} more")
        if value.other is not None:
            shown.append(f"others: {in_words(value.other, depth + 1)}")
        return f"dict({', '.join(shown)})"
    if value.items is None:
        return f"{value.kind} of {in_words(value.element, depth + 1) if value.element is not None else 'nothing'}"
    shown = [in_words(v, depth + 1) for v in value.items[:MAX_SHOWN]]
    if len(value.items) > MAX_SHOWN:
        shown.append(f"{len(value.items) - MAX_SHOWN} more")
    return f"{value.kind}({'; '.join(shown)})"


def _object(value: Value, depth: int) -> str:
    if isinstance(value, Func):
        return f"function {value.definition.qualname}"
    if isinstance(value, Bound):
        return f"method {in_words(value.func, depth).removeprefix('function ')}"
    if isinstance(value, Class):
        return f"class {value.definition.qualname}"
    if isinstance(value, Instance):
        return f"object of {value.definition.qualname}"
    if isinstance(value, Super):
        return f"super of {value.after.qualname}"
    if isinstance(value, ExtMethod):
        if value.receiver is UNKNOWN:
            return f"`{value.name}` of something unknown"
        return f"method `{value.name}` of {in_words(value.receiver, depth + 1)}"
    if isinstance(value, (Partial, Compiled)):
        kind = "partial of" if isinstance(value, Partial) else "torch.compile of"
        return f"{kind} {in_words(value.func, depth + 1)}"
    if isinstance(value, Ext):
        return value.name
    if isinstance(value, ExtInstance):
        return f"object of {value.name.removeprefix('cgsafe.')}"
    if isinstance(value, ModuleRef):
        return f"module {value.name}"
    return "None" if value is NONE else value.label
