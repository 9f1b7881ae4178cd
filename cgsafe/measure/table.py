"""The effect table: a TOML file that people can read and compare line by line.

Head: `release` (of PyTorch), `cuda`, `device`, `date`, `python`, `triton`. Then `[[effect]]`s, sorted by `id`:

    id            the probe
    expr          its code
    setup         what ran before it, outside of the capture, if anything
    args          the inputs that the code names, with their kinds
    cold          true: captured without a run before it, in a fresh process
    capture       ok | fail, or why there is no answer: invalid (raises in eager mode too) | timeout | died | skipped
    sync          how many calls PyTorch reports as waiting for the device
    error         type and first line of what the capture (or, if invalid, the plain run) raised
    end_error     what ending the capture then raised
    replay        a replay on changed inputs against an eager run: agrees | differs | frozen | varies | n/a | error
    replay_error  why replay is "error"
    plain         what a plain run of a cold probe raised
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from cgsafe.measure.probes import Probe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HEAD = ("release", "cuda", "device", "date", "python", "triton")
FIELDS = tuple("id expr setup args cold capture sync error end_error replay replay_error plain".split())
Effect = dict[str, Any]


class TableError(ValueError):
    """A file that is no effect table."""


def effects(measured: list[tuple[Probe, dict[str, Any]]]) -> list[Effect]:
    """Probes and their results as rows."""
    rows = []
    for probe, result in measured:
        row: Effect = {
            "id": probe.id,
            "expr": probe.expr,
            "setup": probe.setup,
            "args": probe.arguments(),
            "cold": probe.cold,
        }
        rows.append({**row, **result})
    return rows


def file_name(head: dict[str, str]) -> str:
    """`effects-2.11.0-h200.toml`: the release without build tags, the device without its maker."""
    device = re.sub(r"(?i)\b(nvidia|geforce|amd|instinct|tesla)\b", "", head.get("device", "") or "unknown")
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "unknown"
    return f"effects-{head['release'].partition('+')[0]}-{slug}.toml"


def dumps(head: dict[str, str], rows: list[Effect]) -> str:
    lines = [f"{key} = {_text(str(head[key]))}" for key in HEAD if head.get(key)]
    for row in sorted(rows, key=lambda row: row["id"]):
        lines += ["", "[[effect]]"]
        lines += [f"{key} = {_value(row[key])}" for key in FIELDS if _told(row.get(key))]
    return "\n".join(lines) + "\n"


def loads(text: str, name: str = "table") -> tuple[dict[str, str], list[Effect]]:
    """Head and rows; TableError if the text is no effect table."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise TableError(f"{name}: {exc}") from exc
    rows = data.pop("effect", None)
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {"id", "expr", "capture"} <= set(row) for row in rows
    ):
        raise TableError(f"{name}: not an effect table: no [[effect]] entries with id, expr and capture")
    return data, rows


def read(path: Path) -> tuple[dict[str, str], list[Effect]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise TableError(f"{path}: {exc}") from exc
    return loads(text, str(path))


def _told(value: Any) -> bool:
    return value not in (None, "", []) and value is not False  # sync = 0 is told


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(_text(item) for item in value)}]"
    return _text(value)


def _text(value: str) -> str:
    if (
        "\n" in value
        and "'''" not in value
        and not value.endswith("'")
        and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value)
    ):
        return f"'''\n{value}'''"
    if "'" not in value and not re.search(r"[\x00-\x1f\x7f]", value) and ('"' in value or "\\" in value):
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # JSON's escapes are TOML's
