"""`with` statements and capture sites: where a CUDA graph starts to record."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from cgsafe.events import HOST, CaptureSite, region, varied
from cgsafe.index.trail import TRAIL
from cgsafe.site_events import REGISTERS, GeneratorUse, InsideCapture
from cgsafe.values import (
    HIGH,
    NONE,
    UNKNOWN,
    Device,
    ExtInstance,
    Instance,
    Value,
    parts_of,
)
from cgsafe.walk.arguments import Arguments

if TYPE_CHECKING:
    from cgsafe.walk.frame import Frame

_STREAM_POSITION = 2  # torch.cuda.graph(cuda_graph, pool, stream, capture_error_mode)


class Withs:
    """Mixin of Frame."""

    def do_with(self: Frame, node: Any) -> bool:
        saved = (self.region, self.sink, self.stream_stack, self.default_device)
        entered_streams, self.entered_streams = self.entered_streams, 0
        result = True
        forking: list[tuple[Value, ast.expr]] = []
        try:
            for item in node.items:
                value = self.eval(item.context_expr)
                sink, played = self.sink, len(self.sink.streams)
                entered = self.enter(value, item.context_expr)
                if self.sink is sink and len(sink.streams) > played:
                    forking.append((value, item.context_expr))
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, entered)
            result = self.block(node.body)
            if self.entered_streams:
                self.leave_streams(self.entered_streams, node)
            for value, expression in reversed(forking):
                self.leave(value, expression)
        finally:
            self.entered_streams = entered_streams
            self.region, self.sink, self.stream_stack, self.default_device = saved
        return result

    def enter(self: Frame, value: Value, node: ast.expr) -> Value:
        """Enter a context manager; returns what `as` binds."""
        from cgsafe.walk.frame import source_of

        for part in parts_of(value):
            if isinstance(part, ExtInstance):
                if part.name in self.tables.capture_contexts:
                    self.begin_capture(
                        node, "graph-context", "`with torch.cuda.graph(...)` records this block", part.detail
                    )
                    return NONE
                if part.name == "cgsafe.captured-context":
                    self.begin_capture(
                        node, "graph-context", "this context manager records the block into a CUDA graph"
                    )
                    return part.detail if isinstance(part.detail, Value) else UNKNOWN
                if part.name == "cgsafe.context":
                    return part.detail if isinstance(part.detail, Value) else UNKNOWN
                if part.name == "cgsafe.sync-allowed":
                    here = self.region
                    accepted = here.captured and self.walker.keep_accepted
                    self.region = varied(here, accepted=source_of(node)) if accepted else HOST
                    return UNKNOWN
                if part.name == "torch.cuda.stream":
                    self.note_stream(node)
                    self.enter_stream(part.detail if isinstance(part.detail, Value) else None, node)
                    self.entered_streams += 1
                    return part
            elif isinstance(part, Device):
                self.default_device = part.type
            elif isinstance(part, Instance):
                found = self.walker.classes.find(part.definition, "__enter__")
                if found is not None:
                    method = self.walker.classes.member(found[0], "__enter__", found[1], part)
                    if method is not None:
                        return self.call_value(method, Arguments(), node)
        return value

    def leave(self: Frame, value: Value, node: ast.expr) -> None:
        """Leave a context manager that forked a stream: it may join it."""
        for part in parts_of(value):
            found = self.walker.classes.find(part.definition, "__exit__") if isinstance(part, Instance) else None
            if found is not None and isinstance(part, Instance):
                method = self.walker.classes.member(found[0], "__exit__", found[1], part)
                if method is not None:
                    self.call_value(method, Arguments([NONE, NONE, NONE]), node)

    def note_stream(self: Frame, node: ast.expr) -> None:
        """`with torch.cuda.stream(s)`: s is the stream that the warm-up and the capture should share."""
        from cgsafe.walk.frame import source_of

        if isinstance(node, ast.Call) and node.args:
            name = source_of(node.args[0])
            self.stream_stack = (*self.stream_stack, name)
            self.streams_seen.append(name)

    def begin_capture(self: Frame, node: ast.expr, kind: str, reason: str, main: Any = None) -> None:
        """From here on a graph records: a root of its own, whose events and calls are kept apart."""
        from cgsafe.walk.walker import Node

        if self.region.captured:
            return
        body = Node(self.node.definition, region(True, explicit=True), (), None)
        line = node.lineno + self.offset
        key = (self.node, line)
        body = self.walker.capture_bodies.setdefault(key, body)
        TRAIL.deps.add(body)
        TRAIL.deps.add(("start", "body", key))
        body.site = self.place(node)
        if isinstance(main, Value):
            given = [k.value for k in getattr(node, "keywords", ()) if k.arg == "stream"]
            body.main = self.handle(main, given[0] if given else None)
        body.warm |= self.node.warm
        self.region = body.region
        self.sink = body
        self.node.sites.append((line, kind, reason, body))

    def end_capture(self: Frame) -> None:
        self.region = self.node.region
        self.sink = self.node

    def capture_context(self: Frame, name: str, args: Arguments, node: Any) -> Value:
        """`torch.cuda.graph(...)` is called: the site is stated, entering it is another matter."""
        from cgsafe.walk.frame import source_of

        self.note_inside("capture", node)
        if isinstance(node, ast.Call):
            stream = args.get(_STREAM_POSITION, "stream")
            given = stream is not None and stream is not NONE
            positional = tuple(source_of(a) for a in node.args)
            keywords = tuple((k.arg or "**", source_of(k.value)) for k in node.keywords)
            self.emit(
                CaptureSite,
                node,
                HIGH,
                source=source_of(node.func),
                api=name,
                has_stream=given,
                unknown_arguments=not given and (args.star is not None or args.rest is not None),
                arguments=positional,
                keywords=keywords,
                warmup_stream=(self.stream_stack or self.streams_seen or [""])[-1],
                idiom=self.stream_idiom(),
                nested=self.region.captured,
            )
            if isinstance(stream, ExtInstance):
                return ExtInstance("torch.cuda.graph", stream)
        return ExtInstance("torch.cuda.graph")

    def note_inside(self: Frame, how: str, node: Any) -> None:
        """A capture or a replay: in captured code there must be none."""
        if self.region.captured and self.region.explicit and not self.region.traced:
            self.emit(InsideCapture, node, HIGH, how=how)

    def note_generator(self: Frame, args: Arguments, node: Any) -> None:
        """`generator=g` in captured code: a generator on the device must be registered with the graph."""
        for part in parts_of(args.keywords["generator"]):
            if isinstance(part, ExtInstance) and part.name == "torch.Generator" and part.detail == "cuda":
                given = next((k.value for k in node.keywords if k.arg == "generator"), None)
                source = ast.unparse(given) if given is not None else "generator"
                if not self.walker.ask(self.file, "has", REGISTERS):
                    self.emit(GeneratorUse, node, HIGH, source=source)

    def stream_idiom(self: Frame) -> tuple[str, str]:
        found = self.tables.stream_idiom
        return (found[0], found[1]) if found else ("", "")

    def stream_method(self: Frame, name: str, node: Any) -> None:
        """`graph.capture_begin()` and `graph.capture_end()`."""
        if name == "capture_begin":
            self.begin_capture(node, "capture-begin", "`capture_begin()` starts recording here")
        elif name == "capture_end":
            self.end_capture()
