"""House rules of the Acme team: all captures share one memory pool."""

from __future__ import annotations

from cgsafe.events import CaptureSite
from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule


class CaptureWithoutPool(Rule):
    """A capture without `pool=` gets a memory pool of its own.

    Each pool keeps the memory of its graph for good. With a graph for each batch size, pools of their own hold many times
    the memory that one shared pool does.
    """

    code = "ACME1"
    name = "capture-without-pool"
    severity = Severity.WARNING
    instead = "Make one handle (`pool = torch.cuda.graph_pool_handle()`) and pass it to every capture: `pool=pool`."
    allowed = "Where a program captures one graph only."

    def on_capture_site(self, event: CaptureSite) -> Hit | None:
        given = dict(event.keywords)
        # torch.cuda.graph(cuda_graph, pool, stream): the pool may come by position as well.
        pool = given.get("pool", event.arguments[1] if len(event.arguments) > 1 else "None")
        if event.api != "torch.cuda.graph" or event.unknown_arguments or pool != "None":
            return None
        return Hit(
            f"`{event.source}(...)` has no `pool=`: this graph keeps memory of its own", Fix("Pass the shared pool")
        )
