"""CG401: a capture that makes a stream of its own."""

from __future__ import annotations

from cgsafe.events import CaptureSite
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class CaptureWithoutStream(Rule):
    """`torch.cuda.graph(...)` without `stream=` captures on a side stream of its own, not on the warm-up's stream.

    Whatever keeps state per stream (cuBLAS workspaces, the buffers of kernel libraries, allocator pools) was warmed up on
    one stream and is used for the first time on another during the capture. Libraries that allocate or synchronise on
    the first use on a stream then fail in the capture; others hold twice the memory.
    """

    code = "CG401"
    name = "capture-without-stream"
    severity = Severity.WARNING
    instead = "Pass the stream that the warm-up ran on: `torch.cuda.graph(g, stream=s)`."
    error = (
        "nothing where libraries keep no state per stream; where one sets itself up on its first use on a stream: "
        "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing, or totals that are "
        "wrong at each replay, for the set-up is replayed too"
    )
    allowed = "Where nothing in the captured code keeps state per stream."

    def on_capture_site(self, event: CaptureSite) -> Hit | None:
        if event.has_stream or event.unknown_arguments or event.nested:
            return None
        expression, import_line = event.idiom
        transform: tuple[str, ...] = ()
        if event.warmup_stream:
            advice = f"Capture on the stream that the warm-up used: add `stream={event.warmup_stream}`"
            transform = ("capture-on-stream", event.warmup_stream)
        elif expression:
            advice = f"Capture on the current stream, as the warm-up does: add `stream={expression}` (`{import_line}`)"
            transform = ("capture-on-stream", expression, import_line)
        else:
            advice = (
                "Make one side stream (`s = torch.cuda.Stream()`), run the warm-up under `with torch.cuda.stream(s):` and "
                "capture with `stream=s`"
            )
        message = (
            f"`{event.source}(...)` has no `stream=`: it captures on a side stream of its own, so warm-up and capture run "
            "on different streams"
        )
        return Hit(message, Fix(advice, "unsafe" if transform else "manual", transform=transform))
