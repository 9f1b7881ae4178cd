"""Rules and findings for tests that need some, whatever the real ones are."""

from __future__ import annotations

from typing import Any

from cgsafe.events import HostRead, TruthTest
from cgsafe.findings import Confidence, Finding, Fix, Root, Severity, Step
from cgsafe.rule import Hit, Rule


class TruthRule(Rule):
    """The truth value of a device tensor makes the host wait for the GPU.

    While a graph is captured nothing may wait.

        if tensor: ...
    """

    code = "CG101"
    name = "tensor-truth-value"
    instead = "Compute both sides and choose with `torch.where`."
    error = "RuntimeError: operation not permitted when stream is capturing"
    measured = "torch 2.9, one GPU"
    allowed = "Outside of captured code."

    def on_truth(self, event: TruthTest) -> Hit | None:
        return Hit("never asked")


class ReadRule(Rule):
    """A device tensor is read by the host."""

    code = "CG102"
    name = "host-read"
    severity = Severity.WARNING
    instead = "Keep the value on the device."

    def on_read(self, event: HostRead) -> Hit | None:
        return Hit("never asked")


class SiteRule(Rule):
    """A capture without a stream of its own."""

    code = "CG401"
    name = "capture-without-stream"
    instead = "Pass `stream=`."


RULES: list[type[Rule]] = [TruthRule, ReadRule, SiteRule]


def finding(**changes: Any) -> Finding:
    """A finding on line 2 of model.py, with whatever is given changed."""
    path = changes.get("path", "model.py")
    values: dict[str, Any] = {
        "code": "CG101",
        "name": "tensor-truth-value",
        "severity": Severity.ERROR,
        "confidence": Confidence.MEDIUM,
        "message": "`x > 0` is a tensor on the GPU; its truth value waits for it",
        "path": path,
        "line": 2,
        "column": 8,
        "end_line": 2,
        "end_column": 13,
        "function": "Model.forward",
        "root": Root("module-forward", "the forward of an nn.Module", path, 1, "Model.forward"),
        "trace": (Step(path, 2, "Model.forward", "the truth value is taken here"),),
        "fix": Fix("use `torch.where`"),
        "fingerprint": "f00d",
    }
    return Finding(**{**values, **changes})
