"""Run the examples in `fixtures/` on a GPU, as its README describes.

    python3 tests/gpu/run_fixtures.py [CODE ...] [--evidence FILE]

Each example runs in a process of its own with empty compile caches, several at once. Prints one line for each, and exits
1 where one does not do what it should. `--evidence` writes what was seen as a table (a folder: under the table's usual
name, as in `rules/evidence/`). Needs torch and nothing else; with pytest, test_fixtures.py does the same.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import functools
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
sys.path[:0] = [path for path in (str(HERE), str(REPOSITORY)) if path not in sys.path]

from _harness import error_text  # noqa: E402
from cgsafe import evidence  # noqa: E402

FIXTURES = REPOSITORY / "fixtures"
TIMEOUT_S = 120
JOBS = min(os.cpu_count() or 1, 16)
MARK = "@@RESULT@@"

# What each value of an example's ON_GPU asks for.
EXPECTED = {"fails": evidence.FAILS, "ok": evidence.AGREES, "wrong": evidence.DIFFERS}


# -- what there is, and what it should do ------------------------------------------------------------------------------


def all_examples(fixtures: Path = FIXTURES, codes: Iterable[str] = ()) -> list[Path]:
    """The examples of the rules whose codes start so, by code and name."""
    found = [path for path in sorted(fixtures.glob("*/*")) if path.name.startswith(("bad", "good"))]
    found = [path for path in found if path.is_dir() or path.suffix == ".py"]
    return [path for path in found if path.parent.name.startswith(tuple(codes) or "")]


def name_of(example: Path) -> str:
    return f"{example.parent.name}/{example.name}"


def entry_of(example: Path) -> Path:
    return example / "main.py" if example.is_dir() else example


def expected(example: Path) -> str:
    """The outcome that an example must have."""
    said = "ok" if example.name.startswith("good") else "fails"
    for node in ast.parse(entry_of(example).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["ON_GPU"]:
            said = ast.literal_eval(node.value)
    if said not in EXPECTED or (example.name.startswith("good") and said != "ok"):
        raise ValueError(f"{name_of(example)}: ON_GPU = {said!r} (fixtures/README.md tells what there is)")
    return EXPECTED[said]


def digest(example: Path) -> str:
    files = [example] if example.is_file() else sorted(example.rglob("*.py"))
    base = example if example.is_dir() else example.parent
    return evidence.digest((file.relative_to(base).as_posix(), file.read_text(encoding="utf-8")) for file in files)


# -- one example, in this process --------------------------------------------------------------------------------------


def run(example: Path) -> tuple[str, str]:
    """(outcome, detail) of an example."""
    import torch

    sys.path.insert(0, str(example if example.is_dir() else example.parent))
    module = importlib.import_module("main" if example.is_dir() else example.stem)
    torch.manual_seed(0)
    x = torch.ones(8, 8, device="cuda")
    x @ x  # the handle of cuBLAS, which is no example's topic
    torch.cuda.synchronize()
    begun = _begun_captures(torch)
    try:
        if hasattr(module, "capture"):
            graph, output, check, *more = module.capture()
            change = more[0] if more else None
        else:
            function, args = module.make()
            graph, output = _captured(torch, function, args)
            check = functools.partial(function, *args)
            change = functools.partial(module.change, function, *args) if hasattr(module, "change") else None
    except Exception as error:
        if not begun:
            return evidence.CRASHED, f"failed before any capture: {said(error)}"
        return evidence.FAILS, said(error)
    outcome, detail = _compared(torch, graph, output, check)
    if change is None:
        return outcome, detail
    if outcome != evidence.AGREES:
        return evidence.CRASHED, f"the replay differs from eager code even before change(): {detail}"
    with torch.no_grad():
        change()
    return _compared(torch, graph, output, check)


def _begun_captures(torch: Any) -> list[Any]:
    """A list that gets each graph whose capture begins: what fails before is a fault of the example itself."""
    begun: list[Any] = []
    begin = torch.cuda.CUDAGraph.capture_begin

    def noted(graph: Any, *args: Any, **named: Any) -> Any:
        begun.append(graph)
        return begin(graph, *args, **named)

    torch.cuda.CUDAGraph.capture_begin = noted
    return begun


def _captured(torch: Any, function: Any, args: Any) -> tuple[Any, Any]:
    """Warm a function up and capture it, both on one side stream."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            for _ in range(3):
                function(*args)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            output = function(*args)
    return graph, output


def _compared(torch: Any, graph: Any, output: Any, check: Any) -> tuple[str, str]:
    """Replay, and hold the output against what eager code gives."""
    graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        given, wanted = (output() if callable(output) else output).float(), check().float()
    if given.shape != wanted.shape:
        return evidence.DIFFERS, f"{_shape(given)} instead of {_shape(wanted)}"
    if torch.allclose(given, wanted, rtol=1e-2, atol=1e-3, equal_nan=True):
        return evidence.AGREES, ""
    return evidence.DIFFERS, f"by up to {(given - wanted).abs().max().item():.3g}"


def _shape(tensor: Any) -> str:
    return f"shape {tuple(tensor.shape)}"


def said(error: BaseException) -> str:
    """An error in one line, without the machine's folders; the one that started it where CUDA only points back to it."""
    while error.__context__ is not None and "due to a previous error" in str(error):
        error = error.__context__
    lines = error_text(error).splitlines()
    text = lines.pop(0).strip()
    while text.endswith(":") and lines:
        text += f" {lines.pop(0).strip()}"
    text = re.sub(r"(?<![\w.:/])/(?:[^\s/:'\"]+/)+", "", text)
    return text if len(text) <= 300 else f"{text[:297]}..."


# -- all of them, each in a process of its own -------------------------------------------------------------------------


@dataclass
class Result:
    """What an example did beside what it should do."""

    example: Path
    wanted: str
    outcome: evidence.Outcome
    seconds: float
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return self.outcome.outcome == self.wanted

    def __str__(self) -> str:
        mark = "   " if self.right else "!! "
        return f"{mark}{name_of(self.example)}: {self.outcome} ({self.seconds:.0f} s)"


def judged(example: Path) -> Result:
    """Run an example in a process of its own."""
    start = time.monotonic()
    outcome, detail, machine = evidence.CRASHED, "", {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # With a hot disk cache, a cold compile gets through.
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        command = [sys.executable, __file__, "--one", str(example)]
        out, err = Path(folder, "out"), Path(folder, "err")
        # Files, not pipes: a compiler's workers may outlive the example and hold a pipe open.
        with out.open("wb") as stdout, err.open("wb") as stderr:
            environment = {**os.environ, **caches, "PYTHONDONTWRITEBYTECODE": "1"}
            child = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment, start_new_session=True)
            try:
                child.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                detail = f"did not end within {TIMEOUT_S} s"
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        lines = out.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
        if told:
            outcome, detail, machine = json.loads(told[-1])
        elif not detail:
            last = err.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            detail = f"exit code {child.returncode}: {' '.join(last)[:300]}"
    seconds = time.monotonic() - start
    return Result(example, expected(example), evidence.Outcome(outcome, detail, digest(example)), seconds, machine)


@contextlib.contextmanager
def running(examples: Iterable[Path], jobs: int = JOBS) -> Iterator[dict[Path, Future[Result]]]:
    """Run examples side by side; what each gives can be waited for."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = {example: pool.submit(judged, example) for example in examples}
        try:
            yield futures
        finally:
            for future in futures.values():
                future.cancel()


def table_of(results: Iterable[Result]) -> evidence.Table:
    """What was seen, as a table."""
    results = list(results)
    machine = next((result.machine for result in results if result.machine), {})
    return evidence.Table(
        torch=machine.get("torch", "?"),
        device=machine.get("device", "?"),
        cuda=machine.get("cuda", ""),
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        outcomes={name_of(result.example): result.outcome for result in results},
    )


def write_evidence(results: Iterable[Result], path: Path) -> Path:
    """Write the table to a file, or into a folder under its usual name."""
    table = table_of(results)
    if path.is_dir():
        path /= evidence.file_name(table)
    path.write_text(evidence.dump(table), encoding="utf-8")
    return path


def _machine() -> dict[str, str]:
    import torch

    return {
        "torch": torch.__version__.partition("+")[0],
        "cuda": torch.version.cuda or "",
        "device": torch.cuda.get_device_name(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("codes", nargs="*", metavar="CODE", help="only the examples of these rules (CG1, CG101)")
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="write what was seen to this file, or folder")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--fixtures", type=Path, default=FIXTURES, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        outcome, detail = run(args.one)
        print(f"{MARK}{json.dumps([outcome, detail, _machine()])}", flush=True)
        os._exit(0)  # a broken capture may hang or crash on the way out
    if args.evidence and args.codes:
        parser.error("--evidence writes a whole table: run it without codes")
    examples = all_examples(args.fixtures.resolve(), args.codes)
    if not examples:
        parser.error(f"no examples of {', '.join(args.codes) or 'any rule'} in {args.fixtures}")
    try:
        for example in examples:
            expected(example)
    except ValueError as error:
        parser.error(str(error))
    start = time.monotonic()
    results = []
    with running(examples, args.jobs) as futures:
        for future in futures.values():
            results.append(future.result())
            print(results[-1], flush=True)
    wrong = sum(not result.right for result in results)
    print(f"{len(results)} examples in {time.monotonic() - start:.0f} s, {wrong} not as they should be")
    if args.evidence:
        print(f"written to {write_evidence(results, args.evidence)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
