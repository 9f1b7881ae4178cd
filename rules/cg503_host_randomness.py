"""CG503: captured code draws random numbers, or the time, on the host."""

from __future__ import annotations

from cgsafe.events import FrozenCall
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class HostRandomness(Rule):
    """A random number or the time that captured code asks of the host is the same in every replay.

    `random`, `numpy.random` and generators on the CPU draw while the graph is recorded. Random operators on the device are
    different: PyTorch gives each replay new numbers.
    """

    code = "CG503"
    name = "host-randomness"
    severity = Severity.WARNING
    implicit = Confidence.LOW
    instead = "Draw on the device: `torch.rand((), device=x.device)`, and decide with `torch.where`."
    error = "nothing is raised: every replay uses the number that the capture drew"
    allowed = "Where the same number in every replay is what is wanted."

    def on_frozen_call(self, event: FrozenCall) -> Hit | None:
        if event.how == "clock":
            message = f"`{event.source}` asks for the time in captured code: every replay uses that of the capture"
            return Hit(message, Fix("Take the time outside of the captured code"), confidence=Confidence.LOW)
        if event.how not in ("random", "cpu-random"):
            return None
        message = f"`{event.source}` draws on the host in captured code: every replay uses the number of the capture"
        return Hit(message, Fix("Draw on the device (`torch.rand((), device=...)`) and decide with `torch.where`"))
