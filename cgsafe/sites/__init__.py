"""What host code does around captures and replays, read from the text of the files that capture or replay.

The walk follows captured code; what goes wrong around it is a matter of order and of names (what was the last call
before the capture? which attribute does a later method rebind?), and is read off whole functions and classes here.
"""

from __future__ import annotations

from typing import Any

from cgsafe.index.trail import TRAIL
from cgsafe.sites.code import Code


def read_sites(walker: Any, path: str) -> None:
    """State the events of one file, into a node of its own."""
    from cgsafe.events import HOST
    from cgsafe.sites import inputs, keys, lifetimes, outputs, threads, warmups
    from cgsafe.sites.captures import survey
    from cgsafe.sites.report import Log
    from cgsafe.walk.walker import Node

    if walker.code is None:
        walker.code = Code(walker)
    module = walker.code.module(walker.project.files[path])
    if module is None:
        return
    site = survey(walker.code, module)
    log = Log()
    for analysis in (warmups, threads, inputs, outputs, keys, lifetimes):
        analysis.look(site, log)
    if log.events:
        node = Node(None, HOST, (), None)
        node.events.update(log.events)
        walker.site_nodes.append(node)
        TRAIL.deps.add(node)
