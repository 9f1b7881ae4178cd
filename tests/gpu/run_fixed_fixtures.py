"""What `cgsafe check --fix --unsafe-fixes` makes of bad code is captured on a GPU.

    python3 tests/gpu/run_fixed_fixtures.py                       # fix and run
    python3 tests/gpu/run_fixed_fixtures.py --prepare FOLDER      # only fix, where cgsafe is installed
    python3 tests/gpu/run_fixed_fixtures.py --fixed FOLDER        # only run, where torch and a GPU are

First the bad examples of `fixtures/` that fixes change and that have no error left: they must capture, and their replay
must agree with eager code. Then the samples of `tests/fix_samples.py`: before and after give the same values, shapes and
dtypes in eager code, and what comes after is captured.

Prints a table, writes it to `tests/gpu/results/`, and exits 1 where something is not as it should be.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cgsafe import evidence  # noqa: E402
from fix_samples import SAFE, UNSAFE  # noqa: E402
from run_fixtures import FIXTURES, TIMEOUT_S, judged  # noqa: E402

SAMPLES = {**SAFE, **UNSAFE}
LEFT = "left.json"  # example -> codes of the errors that are left; only for those that were changed


def prepare(folder: Path) -> None:
    """Copy the bad examples into a folder and fix them there, each alone."""
    left: dict[str, list[str]] = {}
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]),
    }
    for example in sorted(FIXTURES.glob("CG*/bad*")):
        name = example.relative_to(FIXTURES).as_posix()
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if example.is_dir():
            shutil.copytree(example, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(example, copy)
        command = [sys.executable, "-m", "cgsafe", "check", "--fix", "--unsafe-fixes", "--no-cache", "-q", "-j", "1"]
        # Files are known by their folder; one alone lies in its own, so that its neighbours do not count.
        with tempfile.TemporaryDirectory() as alone:
            place = Path(alone) / copy.name
            shutil.move(copy, place)
            done = subprocess.run(
                [*command, "--output-format", "json", copy.name],
                cwd=alone,
                env=environment,
                capture_output=True,
                text=True,
            )
            shutil.move(place, copy)
        assert done.returncode in (0, 1), f"{name}: {done.stderr}"
        if not _same(example, copy):
            findings = json.loads(done.stdout)["findings"]
            left[name] = sorted(finding["code"] for finding in findings if finding["severity"] == "error")
    (folder / LEFT).write_text(json.dumps(left, indent=1))


def _same(one: Path, other: Path) -> bool:
    if one.is_file():
        return one.read_bytes() == other.read_bytes()
    return all((other / p.relative_to(one)).read_bytes() == p.read_bytes() for p in one.rglob("*.py"))


def sample(name: str) -> str:
    """Run a sample before and after its fix, and capture it after: "ok", or what is wrong; in this process."""
    import torch

    before, after = (_function(text) for text in SAMPLES[name])

    def arguments() -> tuple[Any, ...]:
        x = torch.eye(4, device="cuda") * 4 + 0.1
        return Extra(), x, x + 1, 2, 0.5

    expected, found = (_tensors(function(*arguments())) for function in (before, after))
    if difference := _difference(expected, found):
        return f"differs: {difference}"
    graph, stream, captured = torch.cuda.CUDAGraph(), torch.cuda.Stream(), arguments()
    start = captured[1].clone()
    try:
        with torch.no_grad():
            with torch.cuda.stream(stream):
                after(*captured)
            torch.cuda.synchronize()
            captured[1].copy_(start)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                output = _tensors(after(*captured))
    except Exception as error:
        return f"fails: {type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
    graph.replay()
    torch.cuda.synchronize()
    difference = _difference(expected, output)
    return f"differs at replay: {difference}" if difference else "ok"


class Extra:
    """The module of the samples."""

    def extra(self, n: int) -> float:
        return 2.0 * n


def _function(text: str) -> Any:
    body = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    namespace: dict[str, Any] = {}
    exec(f"import torch\n\ndef run(self, x, y, n, v):\n{body}\n    return dict(locals())\n", namespace)
    return namespace["run"]


def _tensors(values: dict[str, Any]) -> dict[str, Any]:
    """The tensors among the variables, by name; of a distribution its entropy."""
    import torch

    values = {
        name: v.entropy() if hasattr(v, "entropy") else v for name, v in values.items() if name not in ("y", "self")
    }
    return {name: v for name, v in values.items() if isinstance(v, torch.Tensor)}


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    import torch

    if one.keys() != other.keys():
        return f"{sorted(one)} and {sorted(other)}"
    for name, a in one.items():
        b = other[name]
        kinds = [(t.dtype, tuple(t.shape), t.device.type) for t in (a, b)]
        if kinds[0] != kinds[1]:
            return f"{name}: {kinds[0]} and {kinds[1]}"
        if not torch.allclose(a.double(), b.double(), rtol=1e-5, atol=1e-6):
            return f"{name}: other values"
    return ""


def run(folder: Path) -> int:
    """Run all that was fixed; the exit code."""
    import torch

    left: dict[str, list[str]] = json.loads((folder / LEFT).read_text())
    fixed = [name for name, codes in left.items() if not codes]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        outcomes = pool.map(_example, [folder / name for name in fixed])
        samples = pool.map(_sample, SAMPLES)
        said = dict(zip([*fixed, *(f"sample: {name}" for name in SAMPLES)], [*outcomes, *samples], strict=True))
    rows = [f"{name}: {_without_paths(text, folder)}" for name, text in said.items()]
    rows += [f"{name}: not run, left to people: {', '.join(codes)}" for name, codes in left.items() if codes]
    good = sum(text == "ok" for text in said.values())
    rows.append(f"{good} of {len(said)} ok")
    device = torch.cuda.get_device_name().split()[-1].lower()
    result = HERE / "results" / f"fixed-{torch.__version__.partition('+')[0]}-{device}.txt"
    result.write_text("\n".join(rows) + "\n")
    print("\n".join(rows))
    return 0 if good == len(said) else 1


def _example(example: Path) -> str:
    found = judged(example).outcome
    return "ok" if found.outcome == evidence.AGREES else str(found)


def _sample(name: str) -> str:
    """Run a sample in a process of its own."""
    command = [sys.executable, __file__, "--sample", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "does not end"
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-300:]


def _without_paths(text: str, folder: Path) -> str:
    return " ".join(text.replace(f"{folder}/", "").replace(f"{HERE.parent.parent}/", "").split())


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--sample"]:
        print(sample(arguments[1]), flush=True)
        os._exit(0)  # a broken capture may hang or crash on the way out
    if arguments[:1] == ["--prepare"]:
        prepare(Path(arguments[1]).resolve())
        return 0
    if arguments[:1] == ["--fixed"]:
        return run(Path(arguments[1]).resolve())
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder).resolve())
        return run(Path(folder).resolve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
