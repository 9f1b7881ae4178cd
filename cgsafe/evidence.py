"""What a GPU did with the examples of rules: tables that lie beside the rules, one for each PyTorch release and device.

A table is JSON in `evidence/` of a rule's package. It names the machine and, for each example (`CODE/name`), the
outcome, the error's text where there is one, and a digest of the example's code: what was seen counts for that code only.
Nothing but the standard library is needed here, for the script that writes the tables runs on machines with little else.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FOLDER = "evidence"

# Outcomes: what happened when an example was captured, and what a replay gave beside eager code.
FAILS = "fails"
AGREES = "agrees"
DIFFERS = "differs"
CRASHED = "crashed"  # neither: it hung, or fell over outside of the capture

_SAID = {
    FAILS: "the capture failed",
    AGREES: "captured, and the replay agreed with eager code",
    DIFFERS: "captured, and the replay differed from eager code",
    CRASHED: "could not be judged",
}


@dataclass(frozen=True)
class Outcome:
    """What happened to one example."""

    outcome: str
    detail: str = ""  # the error, or by how much a replay differed
    digest: str = ""

    def __str__(self) -> str:
        said = _SAID.get(self.outcome, self.outcome)
        return f"{said}: {self.detail}" if self.detail else said


@dataclass(frozen=True)
class Table:
    """All outcomes on one machine."""

    torch: str
    device: str
    date: str
    cuda: str = ""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)  # "CODE/name of the example"

    @property
    def machine(self) -> str:
        """The device and the releases, as one says it."""
        return f"{self.device}, PyTorch {self.torch}{f', CUDA {self.cuda}' if self.cuda else ''}"


@functools.cache
def tables(folder: str) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """The tables in a folder by file name, and a message for each one that cannot be read; none where there is none."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except OSError:
        return (), ()
    found, faults = [], []
    for name in names:
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as file:
                found.append(parse(file.read()))
        except (OSError, ValueError) as error:
            faults.append(f"{name} cannot be used: {error}")
    return tuple(found), tuple(faults)


def parse(text: str) -> Table:
    """A table from its JSON; ValueError tells what is wrong with it."""
    data = json.loads(text)
    if not isinstance(data, dict) or not isinstance(data.get("examples"), dict):
        raise ValueError("a table of evidence has `torch`, `device`, `date` and `examples`")
    outcomes = {}
    for name, row in data["examples"].items():
        if not isinstance(row, dict) or not isinstance(row.get("outcome"), str):
            raise ValueError(f"`{name}` has no `outcome`")
        outcomes[name] = Outcome(row["outcome"], str(row.get("detail", "")), str(row.get("digest", "")))
    for key in ("torch", "device", "date"):
        if not isinstance(data.get(key), str):
            raise ValueError(f"`{key}` is missing")
    return Table(data["torch"], data["device"], data["date"], str(data.get("cuda", "")), outcomes)


def dump(table: Table) -> str:
    """A table as JSON, sorted by example."""
    examples: dict[str, Any] = {}
    for name, outcome in sorted(table.outcomes.items()):
        row = {"outcome": outcome.outcome, "detail": outcome.detail, "digest": outcome.digest}
        examples[name] = {key: value for key, value in row.items() if value}
    head = {"torch": table.torch, "cuda": table.cuda, "device": table.device, "date": table.date}
    data = {**{key: value for key, value in head.items() if value}, "examples": examples}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def file_name(table: Table) -> str:
    """`2.11.0-h200.json`: the release without its build, the device without its maker."""
    device = table.device.removeprefix("NVIDIA ").removeprefix("GeForce ")
    words = re.findall(r"[a-z0-9]+", device.lower())
    return f"{table.torch.partition('+')[0]}-{'-'.join(words)}.json"


def digest(files: Iterable[tuple[str, str]]) -> str:
    """What an example's code is known by; comments, empty lines and the order of the files do not count."""
    total = hashlib.sha256()
    for name, text in sorted(files):
        total.update(f"{name}\0{_code(text)}\0".encode())
    return total.hexdigest()[:16]


def _code(text: str) -> str:
    """The text without its comments and empty lines."""
    lines = text.splitlines()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    except (tokenize.TokenError, SyntaxError, IndexError):
        pass  # as it is, then
    return "\n".join(line.rstrip() for line in lines if line.strip())
