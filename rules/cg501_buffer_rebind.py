"""CG501: captured code sets an attribute to another tensor."""

from __future__ import annotations

from cgsafe.events import AttributeSet
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule

from .cg303_lazy_workspace import is_workspace


class BufferRebind(Rule):
    """Captured code binds an attribute to another tensor instead of writing into the one it has.

    Python does not run at replay: the attribute keeps the tensor of the capture, which lies in the graph's memory pool and
    which later replays, or other graphs of that pool, overwrite. What reads the attribute afterwards gets old or foreign
    values; what recorded the former tensor's address goes on with that one.
    """

    code = "CG501"
    name = "buffer-rebind"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = "Make the buffer once and write into it: `self.x.copy_(value)`."
    error = "nothing is raised: the attribute holds what the last capture or eager call bound"
    allowed = "Where only captured code of the same call reads the attribute."

    def on_attribute_set(self, event: AttributeSet) -> Hit | None:
        if is_workspace(event) or event.how == "counter":
            return None
        by = {"register_buffer": " by `register_buffer`", "setattr": " by `setattr`", "data": " through `.data`"}
        bound = None if event.read_elsewhere else Confidence.LOW
        if event.how == "append":
            # Mostly to keep the tensor alive for as long as the graph, which is right.
            message = f"`{event.name}` gets a tensor of the graph in captured code: replays append nothing"
            return Hit(message, Fix(f"Write into a buffer beside `{event.name}`, made once"), confidence=Confidence.LOW)
        buffer = event.name.removesuffix(".data")
        message = (
            f"`{event.name}` is bound to another tensor in captured code{by.get(event.how, '')}: a replay does not do that "
            "again, and the tensor belongs to the graph's memory pool"
        )
        return Hit(message, Fix(f"Make `{buffer}` once and write into it: `{buffer}.copy_(...)`"), confidence=bound)
