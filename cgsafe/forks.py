"""Plays what a capture does with streams: which forks are never joined, and what escapes the graph."""

from __future__ import annotations

from typing import Any

from cgsafe.events import Event, Place, Region, StreamHazard
from cgsafe.findings import Confidence
from cgsafe.walk.streams import CURRENT, Handle
from cgsafe.walk.walker import Node

MAX_OPS = 20_000  # operations of one capture; what comes after them is not played


def stream_hazards(start: Node, site: Place | None, main: Any) -> list[tuple[Node, Event]]:
    """The hazards of one capture, each with the node in which it lies."""
    if not start.streams:
        return []
    sites: dict[str, set[str]] = {}
    _holders(start, sites, set())
    play = _Play(start.region, {held: found.pop() for held, found in sites.items() if len(found) == 1})
    play.main = play.known(main) if main is not None else None
    play.run(start, 0)
    play.end(start, site)
    return play.found


class _Play:
    """The state of the streams while a capture goes on."""

    def __init__(self, where: Region, sites: dict[str, str]):
        self.region = where
        self.sites = sites  # attribute -> where the one stream was made that it is seen to hold
        self.main: Any = None  # the stream that captures, where it has a name
        self.forked: dict[Any, tuple[Any, Node]] = {}  # stream -> (the fork, the node in which it lies)
        self.joined: set[Any] = set()  # streams that were joined at some time
        self.recorded: dict[Any, Any] = {}  # event -> the stream on which it was recorded; None: the capturing one
        self.current: list[Any] = [None]  # the streams of the enclosing `with` blocks; None: the capturing one
        self.entered: list[
            tuple[Any, Any, Node, bool]
        ] = []  # (stream, operation, node, whether it was part of the capture)
        self.blind = False  # an operation on a stream that is not known: no verdict on what comes to an end
        self.count = 0
        self.found: list[tuple[Node, Event]] = []

    def run(self, node: Node, depth: int) -> None:
        for op in node.streams:
            self.count += 1
            if self.count > MAX_OPS or depth > 60:
                self.blind = True
                return
            if op.kind == "call":
                self.run(op.stream, depth + 1)
            else:
                getattr(self, "_" + op.kind.replace("-", "_"))(op, node)

    def known(self, handle: Handle) -> str:
        """One name for a stream or event, by whichever way it is reached."""
        return handle.site or self.sites.get(handle.held, handle.held)

    def _stream(self, handle: Handle | None) -> Any:
        """A stream as it counts here: None for the one that captures."""
        if handle is None:
            self.blind = True
            return _UNKNOWN
        if handle == CURRENT:
            return self.current[-1]
        name = self.known(handle)
        return None if name == self.main else name

    def _wait(self, op: Any, node: Node) -> None:
        self._depends(self._stream(op.stream), self._stream(op.other), op, node, "stream")

    def _wait_event(self, op: Any, node: Node) -> None:
        if op.other is None:
            self.blind = True
            return
        event = self.known(op.other)
        if event not in self.recorded:
            if not event.endswith(" external"):
                self._hazard("outside-event", op, node)
            return
        self._depends(self._stream(op.stream), self.recorded[event], op, node, "event")

    def _depends(self, waiter: Any, waited: Any, op: Any, node: Node, how: str) -> None:
        """`waiter` waits for `waited`: a fork, a join, or neither."""
        if waiter is _UNKNOWN or waited is _UNKNOWN or waiter is waited:
            return
        if waited is None or waited in self.forked:
            if waiter is None:
                self.forked.pop(waited, None)
                self.joined.add(waited)
            else:
                self.forked[waiter] = (op, node)
                if waited is not None:
                    # One side stream joins another: with that one it is joined, too.
                    self.forked.pop(waited, None)
                    self.joined.add(waited)
        elif waiter is None and how == "stream" and waited not in self.joined:
            self._hazard("outside-stream", op, node)

    def _record(self, op: Any, node: Node) -> None:
        stream = self._stream(op.stream)
        if op.other is not None and stream is not _UNKNOWN and (stream is None or stream in self.forked):
            self.recorded[self.known(op.other)] = stream

    def _enter(self, op: Any, node: Node) -> None:
        stream = self._stream(op.stream)
        self.current.append(stream)
        inside = stream is None or stream is _UNKNOWN or stream in self.forked
        self.entered.append((stream, op, node, inside))

    def _set(self, op: Any, node: Node) -> None:
        self.blind = True  # who joins, and where, is hard to tell from here on
        self.current[-1] = self._stream(op.stream)

    def _leave(self, op: Any, node: Node) -> None:
        if len(self.current) == 1:
            return
        self.current.pop()
        stream, entry, where, inside = self.entered.pop()
        if not inside and stream not in self.forked and stream not in self.joined:
            self._hazard("escape", entry, where)

    def end(self, start: Node, site: Place | None) -> None:
        """The capture ends: what is still forked was not joined."""
        if self.blind:
            return
        for stream, (op, node) in self.forked.items():
            if stream in self.joined and site is not None:
                self.found.append((start, self._event("unjoined", site, op)))
            else:
                self._hazard("unjoined", op, node)

    def _hazard(self, how: str, op: Any, node: Node) -> None:
        self.found.append((node, self._event(how, op.place, op)))

    def _event(self, how: str, place: Place, op: Any) -> Event:
        fork = f"line {op.place.line}" if op.place.path == place.path else f"line {op.place.line} of another file"
        return StreamHazard(place, self.region, op.source, Confidence.HIGH, how=how, fork=fork)


_UNKNOWN = object()


def _holders(node: Node, sites: dict[str, set[str]], seen: set[Node]) -> None:
    """Collect, for attributes that hold streams and events, where those were made."""
    if node in seen:
        return
    seen.add(node)
    for op in node.streams:
        if op.kind == "call":
            _holders(op.stream, sites, seen)
            continue
        for handle in (op.stream, op.other):
            if handle is not None and handle.held and handle.site:
                sites.setdefault(handle.held, set()).add(handle.site)
