"""Does the linter say what was measured? `python -m cgsafe.measure.compare TABLE` lists where it does not.

Every effect becomes a module of its own, with a captured forward that runs the probe's code on inputs of the measured
kinds; a capture that failed should have a finding on that code, one that worked no error. What is wrong on replay (CG5)
is another question and does not count. Disagreements that are known stand in `disagreements.toml`, with the reasons.
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

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
        WARMUP
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = net(x, v, y)
    return graph, out
"""


class Known(NamedTuple):
    """A disagreement that is known."""

    judged: bool  # a linter could tell: this one is wrong
    reason: str


class Verdict(NamedTuple):
    """What was measured and what the linter says."""

    effect: table.Effect
    codes: tuple[str, ...]  # of all findings
    errors: tuple[str, ...] = ()  # of the errors among them

    @property
    def missed(self) -> bool:
        return self.effect["capture"] == "fail" and not self.codes

    @property
    def false_alarm(self) -> bool:
        return self.effect["capture"] == "ok" and bool(self.errors)

    @property
    def agrees(self) -> bool:
        return not self.missed and not self.false_alarm


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
    tail = TAIL.replace("WARMUP", "pass" if effect.get("cold") else "net(x, v, y)")
    return f"{before}{indent(code, ' ' * 8)}\n{tail}", range(first, first + code.count("\n") + 1)


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
    codes: dict[str, set[tuple[str, str]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        name = Path(finding["path"]).name
        if finding["line"] in lines[name] and not finding["code"].startswith("CG5"):
            codes.setdefault(name, set()).add((finding["code"], finding["severity"]))
    results = []
    for number, effect in enumerate(known):
        found = sorted(codes.get(f"probe_{number:04d}.py", ()))
        errors = tuple(code for code, severity in found if severity == "error")
        results.append(Verdict(effect, tuple(code for code, _ in found), errors))
    return results


def known_disagreements() -> dict[str, Known]:
    """Probe -> why the linter says something else; ValueError if the file names one twice."""
    found: dict[str, Known] = {}
    data = tomllib.loads(Path(__file__).with_name("disagreements.toml").read_text(encoding="utf-8"))
    for view, title in ((True, "judged"), (False, "outside")):
        for group in data[title]:
            for name in group["probes"]:
                if name in found:
                    raise ValueError(f"disagreements.toml names {name} twice")
                found[name] = Known(view, group["reason"])
    return found


def report(results: list[Verdict]) -> str:
    known = known_disagreements()
    lines = []
    for v in sorted(results, key=lambda v: v.false_alarm):
        if not v.agrees:
            why = ", ".join(v.codes) if v.false_alarm else v.effect.get("error", "")[:80]
            reason = f" | known: {known[v.effect['id']].reason}" if v.effect["id"] in known else ""
            lines.append(
                f"{'false' if v.false_alarm else 'missed':8}{v.effect['id']}: {v.effect['expr']!r} | {why}{reason}"
            )
    for v in results:
        if v.agrees and v.effect["id"] in known:
            lines.append(f"agrees  {v.effect['id']}, though it is listed in disagreements.toml")
    fails = [v for v in results if v.effect["capture"] == "fail"]
    missed, false = sum(v.missed for v in fails), sum(v.false_alarm for v in results)
    outside = sum(v.missed and v.effect["id"] in known and not known[v.effect["id"]].judged for v in fails)
    lines.append(
        f"reported {len(fails) - missed} of {len(fails)} that fail ({outside} of the others are no linter's business), "
        f"{false} of {len(results) - len(fails)} that work"
    )
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
