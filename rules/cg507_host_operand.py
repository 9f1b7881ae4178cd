"""CG507: a number in a tensor on the CPU becomes part of the graph."""

from __future__ import annotations

from cgsafe.events import HostOperand
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class HostOperandInGraph(Rule):
    """A tensor on the CPU that holds one number works as an operand of device tensors, as a constant.

    PyTorch passes the number to the kernel as an argument. The graph keeps it: what is written into the CPU tensor later
    never reaches a replay. Mostly the tensor was meant to be on the device, and its factory lacks `device=`.
    """

    code = "CG507"
    name = "host-operand"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = "Make the tensor on the device: `torch.zeros(2, device=...)`, or register it as a buffer."
    error = "nothing is raised: replays use the number that the CPU tensor held at the capture"
    allowed = "Where the number never changes."

    def on_host_operand(self, event: HostOperand) -> Hit | None:
        message = (
            f"`{event.name}` is on the CPU, and `{event.source}` takes a number from it: the graph keeps the number of the "
            "capture"
        )
        advice = f"Make `{event.name}` on the device (`device=`), so that kernels read it at each replay"
        place = event.made
        if place is None:
            return Hit(message, Fix(advice))
        at = (place.path, place.line, place.column, place.end_line, place.end_column)
        return Hit(message, Fix(advice), at=at, function=place.function)
