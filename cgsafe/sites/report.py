"""Collects what the analyses of a site state."""

from __future__ import annotations

from typing import Any

from cgsafe.events import HOST, Event, Place
from cgsafe.findings import Confidence
from cgsafe.sites.code import Function, source


class Log:
    """Events by place; the surer of two alike stays."""

    def __init__(self) -> None:
        self.events: dict[Any, Event] = {}

    def state(self, kind: type[Event], function: Function, node: Any, confidence: Confidence, **details: Any) -> None:
        module = function.module
        text, path = module.text, module.file.path
        line, end = node.lineno, node.end_lineno or node.lineno
        place = Place(
            path,
            line,
            text.column(line, node.col_offset),
            end,
            text.column(end, node.end_col_offset or 0),
            function.qualname or "<module>",
        )
        key = (kind, path, line, place.column)
        present = self.events.get(key)
        if present is None or present.confidence < confidence:
            text_of = details.pop("source", None) or source(node)
            self.events[key] = kind(place=place, region=HOST, source=text_of, confidence=confidence, **details)
