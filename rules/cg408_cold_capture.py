"""CG408: a capture without a warm-up, or many without a pause of the collector."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import CapturesInLoop, NoWarmup


class ColdCapture(Rule):
    """Nothing that is seen warms up what the capture records, or captures follow each other with the collector on.

    The first call of a kernel library, a compiled function or an autotuned kernel sets something up, which no capture
    allows. And in a loop of many captures Python's garbage collector may run in the middle of one, and destroy what an
    earlier one has left. Both are guesses: the warm-up may be elsewhere, and there may be nothing to collect.
    """

    code = "CG408"
    name = "cold-capture"
    severity = Severity.WARNING
    instead = (
        "Run the code a few times on the capture's stream first; `gc.collect()`, then `gc.disable()` around the loop."
    )
    error = (
        "a first use in the capture: RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling "
        "`cublasCreate(handle)`; the collector's part is not measured"
    )
    allowed = "Where the warm-up is done elsewhere."

    def on_cold(self, event: NoWarmup) -> Hit:
        message = (
            f"no call of `{event.callee}` is seen before it is captured: what its first call sets up (library handles, "
            "workspaces, compiled kernels) is then set up during the capture"
        )
        return Hit(message, Fix(f"Call `{event.callee}` on the capture's stream before the capture"))

    def on_loop(self, event: CapturesInLoop) -> Hit:
        message = "many captures in a loop, with the garbage collector on: it may destroy older graphs in the middle of a capture"
        return Hit(message, Fix("`gc.collect()` and `gc.disable()` before the loop, `gc.enable()` after it"))
