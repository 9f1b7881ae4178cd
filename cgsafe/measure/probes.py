"""The probes: pieces of user code whose effect under capture is measured, read from `probes/*.toml`.

A file holds

    about      one line: what its probes have in common
    prelude    code that runs before the `setup` of each of its probes (imports, a process group)
    [probes]   name -> code, or an inline table (or a table of its own) with

        expr     the code: an expression, or statements; the value of `r`, if they bind it, is the result
        setup    code that runs first, outside of the capture
        cold     true: captured in a fresh process, without a run before it
        alone    true: in a process of its own
        replay   false: do not compare a replay with an eager run (uninitialised memory, objects without a value)
        timeout  seconds, if the usual ones are not enough

The full name of a probe is `FILE.NAME`. Code may use the names in `KINDS`, made anew for each run, and torch, F, nn, np.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "probes"

# What the names in a probe are; `worker.inputs` makes them.
KINDS = {
    "x": "cuda float32 (8, 8)",
    "v": "cuda float32 (8,)",
    "s": "cuda float32 ()",
    "n": "cuda int64 ()",
    "i": "cuda int64 (3,)",
    "m": "cuda bool (8,)",
    "y": "cuda float32 (8,), a buffer",
    "c": "cpu float32 (8,)",
    "ic": "cpu int64 (3,)",
    "mc": "cpu bool (8,)",
    "nc": "cpu int64 ()",
    "cp": "cpu pinned float32 (8,)",
    "npa": "numpy float32 (8,)",
}
FIELDS = {"expr": str, "setup": str, "cold": bool, "alone": bool, "replay": bool, "timeout": int}
TIMEOUT_S = 45


class ProbeError(ValueError):
    """A probe file that cannot be used; the text says which one, and why."""


class Probe(NamedTuple):
    """One piece of code to measure."""

    id: str
    expr: str
    setup: str = ""
    cold: bool = False
    alone: bool = False
    replay: bool = True
    timeout: int = TIMEOUT_S

    @property
    def theme(self) -> str:
        """The file that it is from."""
        return self.id.partition(".")[0]

    @property
    def own_process(self) -> bool:
        return self.cold or self.alone

    def arguments(self) -> list[str]:
        """The inputs that the code names, with their kinds."""
        try:
            tree = ast.parse(self.expr)
        except SyntaxError:
            return []
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return [f"{name}: {kind}" for name, kind in KINDS.items() if name in names]


def read_file(path: Path) -> list[Probe]:
    """The probes of one file; ProbeError if it is not as told above."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ProbeError(f"{path.name}: {exc}") from exc
    unknown = set(data) - {"about", "prelude", "probes"}
    if unknown or not isinstance(data.get("probes"), dict):
        raise ProbeError(f"{path.name}: expected about, prelude and [probes], found {', '.join(sorted(data))}")
    return [_probe(path, name, entry, data.get("prelude", "")) for name, entry in data["probes"].items()]


def _probe(path: Path, name: str, entry: Any, prelude: str) -> Probe:
    fields: dict[str, Any] = {"expr": entry} if isinstance(entry, str) else entry
    where = f"{path.name}: probe {name!r}"
    if not isinstance(fields, dict) or "expr" not in fields:
        raise ProbeError(f"{where} has no `expr`")
    for key, value in fields.items():
        if key not in FIELDS:
            raise ProbeError(f"{where}: unknown field {key!r}, expected {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[key]):
            raise ProbeError(f"{where}: {key} must be {FIELDS[key].__name__}")
    setup = "\n".join(part.strip("\n") for part in (prelude, fields.get("setup", "")) if part.strip())
    return Probe(**{**fields, "id": f"{path.stem}.{name}", "expr": fields["expr"].strip("\n"), "setup": setup})


def read_all(folder: Path = FOLDER) -> list[Probe]:
    """All probes, sorted by name."""
    return sorted((probe for path in sorted(folder.glob("*.toml")) for probe in read_file(path)), key=lambda p: p.id)
