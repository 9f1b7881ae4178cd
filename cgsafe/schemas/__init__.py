"""JSON schemas of what the tool writes and of what it is configured by."""

from __future__ import annotations

from importlib.resources import files


def text_of(name: str) -> str:
    """The text of a schema: "report" or "config"."""
    return files("cgsafe.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
