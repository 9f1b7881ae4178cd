"""Does the linter say what was measured? `python -m cgsafe.measure.compare TABLE` lists where it does not.

Every effect becomes a module of its own, with a captured forward that runs the probe's code on inputs of the measured
kinds; a capture that failed should have an error reported on that code, one that worked none. Warnings are another
question (what is wrong on replay) and do not count.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

from cgsafe.measure import table

HEAD = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

c = torch.rand(8)
ic = torch.tensor([0, 2, 1])
mc = torch.rand(8) > 0.5
nc = torch.tensor(3)
cp = torch.rand(8).pin_memory()
npa = np.ones(8, dtype=np.float32)


class Probe(nn.Module):
    def forward(self, x: torch.Tensor, v: torch.Tensor, y: torch.Tensor):
        x, v, y = x.view(8, 8), v.view(8), y.view(8)  # the linter knows the ranks as the probes do
        s = v.sum() + 1
        i = torch.argsort(v)[:3]
        n = i.max()
        m = v > 0.5
"""
TAIL = """\
        return x, v, y, s, i, n, m


def capture(x: torch.Tensor, v: torch.Tensor, y: torch.Tensor):
    net = Probe().cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        net(x, v, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = net(x, v, y)
    return graph, out
"""


class Verdict(NamedTuple):
    """What was measured and what the linter says."""

    effect: table.Effect
    codes: tuple[str, ...]

    @property
    def missed(self) -> bool:
        return self.effect["capture"] == "fail" and not self.codes

    @property
    def false_alarm(self) -> bool:
        return self.effect["capture"] == "ok" and bool(self.codes)


def module(effect: table.Effect) -> tuple[str, range]:
    """A module that runs the effect's code under capture, and the lines of that code."""
    code = effect["expr"]
    try:
        ast.parse(code, mode="eval")
        code = f"r = {code}"
    except SyntaxError:
        pass
    before = HEAD + (indent(effect["setup"], " " * 8) + "\n" if effect.get("setup") else "")
    first = before.count("\n") + 1
    return f"{before}{indent(code, ' ' * 8)}\n{TAIL}", range(first, first + code.count("\n") + 1)


def verdicts(effects: list[table.Effect]) -> list[Verdict]:
    """The linter's verdict on every effect whose capture worked or failed."""
    known = [effect for effect in effects if effect["capture"] in ("ok", "fail")]
    with tempfile.TemporaryDirectory(prefix="cgsafe-compare-") as folder:
        lines = {}
        for number, effect in enumerate(known):
            name = f"probe_{number:04d}.py"
            text, lines[name] = module(effect)
            Path(folder, name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "cgsafe", "check", ".", "--no-cache", "--output-format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"cgsafe ended with {done.returncode}: {done.stderr[-500:]}")
    codes: dict[str, set[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        name = Path(finding["path"]).name
        # Warnings, and what is wrong on replay, are another question than a capture that fails.
        if finding["line"] in lines[name] and finding["severity"] == "error":
            codes.setdefault(name, set()).add(finding["code"])
    return [
        Verdict(effect, tuple(sorted(codes.get(f"probe_{number:04d}.py", ())))) for number, effect in enumerate(known)
    ]


def report(results: list[Verdict]) -> str:
    lines = [
        f"missed  {v.effect['id']}: {v.effect['expr']!r} | {v.effect.get('error', '')[:80]}"
        for v in results
        if v.missed
    ]
    lines += [
        f"false   {v.effect['id']}: {v.effect['expr']!r} | {', '.join(v.codes)}" for v in results if v.false_alarm
    ]
    failed = sum(v.effect["capture"] == "fail" for v in results)
    missed, false = sum(v.missed for v in results), sum(v.false_alarm for v in results)
    lines.append(f"reported {failed - missed} of {failed} that fail, {false} of {len(results) - failed} that work")
    return "\n".join(lines) + "\n"


def main() -> int:
    try:
        (path,) = sys.argv[1:]
        sys.stdout.write(report(verdicts(table.read(Path(path))[1])))
    except (ValueError, RuntimeError) as exc:
        print(f"cgsafe.measure.compare: {exc}; expected one effect table", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
