"""Objects of PyTorch whose methods hide something: distributions, optimizers, generators, graphs.

What their methods do is told in torch_objects.toml; it may depend on what the object was made with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cgsafe.knowledge import parse_entry
from cgsafe.values import UNKNOWN, Const, Device, ExtInstance, Tensor, Value
from cgsafe.walk.arguments import Arguments

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


class Made(NamedTuple):
    """The arguments of a constructor, as far as they can matter: constants, devices, tensors, and objects of these."""

    positional: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]


def make_object(name: str, args: Arguments) -> ExtInstance:
    def plain(value: Value) -> Value:
        if isinstance(value, ExtInstance) and isinstance(value.detail, Made):
            inner = [*value.detail.positional, *(v for _, v in value.detail.keywords)]
            return UNKNOWN if any(isinstance(v, ExtInstance) for v in inner) else value  # one level is enough
        return value if isinstance(value, (Const, Device, Tensor)) else UNKNOWN

    keywords = tuple(sorted((key, plain(value)) for key, value in args.keywords.items()))
    return ExtInstance(name, Made(tuple(plain(value) for value in args.positional), keywords))


def made_with(instance: ExtInstance) -> Arguments:
    detail = instance.detail
    if instance.name == "torch.Generator" and detail:  # the device, as its rule wants to know it
        return Arguments([], {"device": Device(detail)})
    made = detail if isinstance(detail, Made) else Made((), ())
    return Arguments(list(made.positional), dict(made.keywords))


def object_method(frame: Frame, receiver: ExtInstance, name: str, args: Arguments, node: Any) -> Value | None:
    """The result of a method that the table describes, else None."""
    package = receiver.name.rpartition(".")[0]
    methods = frame.tables.object_methods
    value = methods.get(f"{receiver.name}.{name}") or methods.get(f"{package}.{name}")
    if value is None:
        return None
    entry = parse_entry(value)
    made = made_with(receiver)
    # By position an object's own arguments count; both kinds have their names.
    everything = Arguments(made.positional, {**args.keywords, **made.keywords})
    if frame.concerns(entry, everything):
        if entry.fails:
            frame.note_wait(f"{receiver.name}.{name}", node, entry.fails)
        if entry.held is not None:
            held = everything.get(entry.held.at, entry.held.name) or UNKNOWN
            frame.read_host(held, node, name)
            if isinstance(held, ExtInstance):
                object_method(frame, held, name, args, node)
        elif entry.read:
            for argument in args.values():
                frame.read_host(argument, node, name)
    return frame.result(entry.returns, name, args, node)
