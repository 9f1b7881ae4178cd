"""CG406: captured code draws from a generator that the graph does not know."""

from __future__ import annotations

from cgsafe.findings import Fix, Severity
from cgsafe.rule import Hit, Rule
from cgsafe.site_events import GeneratorUse


class GeneratorNotRegistered(Rule):
    """Captured code draws random numbers from a `torch.Generator` of its own that is not registered with the graph.

    A graph advances the states of the generators that it knows at each replay. It knows the default one; any other must be
    registered before the capture, or the first draw from it fails the capture.
    """

    code = "CG406"
    name = "generator-not-registered"
    severity = Severity.ERROR
    instead = "`graph.register_generator_state(generator)` before the capture, or the default generator."
    error = "RuntimeError: Attempt to increase offset for a CUDA generator not in capture mode."

    def on_generator(self, event: GeneratorUse) -> Hit:
        message = f"`{event.source}` is a generator of its own, which no graph has been told of: drawing from it fails the capture"
        return Hit(
            message,
            Fix(f"Call `graph.register_generator_state({event.source})` before the capture"),
            unless_warmed=True,
        )
