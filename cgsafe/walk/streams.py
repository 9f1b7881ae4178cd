"""What captured code does with streams and events, in order.

A side stream belongs to a capture from the moment it waits for the capturing stream (the fork), and must be waited for
before the capture ends (the join). Each node of the walk keeps its own operations and the calls that hold more of them;
`cgsafe.forks` plays them in order.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

from cgsafe.events import Place
from cgsafe.values import TRUE, UNKNOWN, ExtInstance, Instance, Value, parts_of
from cgsafe.walk.arguments import Arguments

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame


class Handle(NamedTuple):
    """What is known of which stream or event it is."""

    site: str  # where it was made, or "current_stream"; "" where that is not known
    held: str  # the attribute that holds it: class and name; "" for a variable


CURRENT = Handle("current_stream", "")


class StreamOp(NamedTuple):
    """One operation: `stream` waits for `other`, or records it; see `kind`."""

    kind: str  # wait (for a stream), record (an event), wait-event, enter, leave, set, call
    stream: Any  # a Handle, or None where it is not known
    other: Any = None
    place: Place | None = None
    source: str = ""


class Streams:
    """Mixin of Frame."""

    def make_stream(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        """A stream or event: known by the place that makes it."""
        last = name.rpartition(".")[2]
        if last in ("current_stream", "default_stream"):
            return ExtInstance("torch.cuda.Stream", last)
        kind = "torch.cuda.Event" if last == "Event" else "torch.cuda.Stream"
        if not isinstance(node, ast.Call):
            return ExtInstance(kind)
        site = f"{self.file.path}:{node.lineno + self.offset}:{node.col_offset}"
        if args.keywords.get("external") is TRUE:
            site += " external"
        return ExtInstance(kind, site)

    def note_stream_method(self: Frame, receiver: ExtInstance, name: str, args: Arguments, node: Any) -> Value | None:
        """A method of a stream or event; None where it is of no interest."""
        last = receiver.name.rpartition(".")[2]
        if (
            last not in ("Stream", "Event")
            or not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
        ):
            return None
        first = args.positional[0] if args.positional else None
        if not self._plays():
            if name == "record_event":
                return first if first is not None else self.make_stream("torch.cuda.Event", Arguments(), node)
            return None
        own = self.handle(receiver, node.func.value)
        other = self.handle(first, node.args[0] if node.args else None)
        if last == "Stream" and name in ("wait_stream", "wait_event"):
            self._op("wait" if name == "wait_stream" else "wait-event", own, other, node)
            return UNKNOWN
        if last == "Stream" and name == "record_event":
            made = first if first is not None else self.make_stream("torch.cuda.Event", Arguments(), node)
            self._op("record", own, other if first is not None else self.handle(made, None), node)
            return made
        if last == "Event" and name in ("record", "wait"):
            self._op("record" if name == "record" else "wait-event", other if first is not None else CURRENT, own, node)
            return UNKNOWN
        return None

    def handle(self: Frame, value: Value | None, node: ast.expr | None) -> Handle | None:
        """Which stream or event a value is; None where nothing tells."""
        if value is None:
            return None
        sites = {str(p.detail) for p in parts_of(value) if isinstance(p, ExtInstance)}
        site = sites.pop() if len(sites) == 1 else ""
        held = ""
        if isinstance(node, ast.Attribute):
            owners = [p for p in parts_of(self.eval(node.value)) if isinstance(p, Instance)]
            if owners:
                held = f"{owners[0].definition.label}.{node.attr}"
        return Handle(site, held) if site or held else None

    def enter_stream(self: Frame, stream: Value | None, node: Any, kind: str = "enter") -> None:
        """A stream becomes the current one, for a block or (`set`) from here on."""
        given = node.args[0] if isinstance(node, ast.Call) and node.args else None
        self._op(kind, self.handle(stream, given) if self._plays() else None, None, node)

    def leave_streams(self: Frame, count: int, node: ast.AST) -> None:
        for _ in range(count):
            self._op("leave", None, None, node)

    def note_stream_call(self: Frame, called: Any) -> None:
        """A call that holds operations on streams: played where it stands."""
        if called.streams and self._plays():
            self.sink.streams.append(StreamOp("call", called))

    def _plays(self: Frame) -> bool:
        return self.region.captured and self.region.explicit and not self.walker.shallow

    def _op(self: Frame, kind: str, stream: Any, other: Any, node: ast.AST) -> None:
        if self._plays():
            from cgsafe.walk.frame import source_of

            # Twice where a loop runs twice, and on each run of a function that calls itself.
            self.sink.streams.append(StreamOp(kind, stream, other, self.place(node), source_of(node)))
