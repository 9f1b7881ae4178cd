"""CG302: a kernel that tunes itself is launched first while a graph is captured."""

from __future__ import annotations

from cgsafe.events import FrozenCall, KernelLaunch
from cgsafe.findings import Confidence, Fix, Severity
from cgsafe.rule import Hit, Rule


class AutotuneInCapture(Rule):
    """A Triton kernel under `@triton.autotune` times its configurations at the first launch with a new key.

    Timing synchronises with the GPU, which a capture does not allow. A launch with the same key and dtypes before the
    capture leaves the choice in a cache, and the capture then only launches.
    """

    code = "CG302"
    name = "autotune-in-capture"
    severity = Severity.ERROR
    implicit = Confidence.LOW
    instead = "Run the captured code once before the capture, with the shapes and dtypes of the capture."
    error = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"
    allowed = "Where a warm-up launches it with the same key, or a single configuration is left."

    def on_frozen_call(self, event: FrozenCall) -> Hit | None:
        if event.how != "bench":
            return None
        message = f"`{event.source}` times kernels in captured code, and synchronises with the GPU to do so"
        return Hit(message, Fix("Choose the configuration before the capture"))

    def on_kernel_launch(self, event: KernelLaunch) -> Hit | None:
        message = (
            f"`{event.kernel}` times its configurations at the first launch with a new key; no warm-up is seen to make this "
            "launch, so the capture does, and timing kernels fails it"
        )
        advice = "Call the same code with the same shapes and dtypes on the capture stream before the capture"
        return Hit(message, Fix(advice), unless_warmed=True)
