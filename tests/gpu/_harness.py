"""What the GPU probes share: one process per case, one JSON file per probe, one way to capture and to judge.

A failed capture can poison its process, so every case runs in its own. A probe module has

    TITLE: str                      what it measures, one line
    FRESH_PROCESS: bool             start a new interpreter per case (True) or fork one that only imported torch (False)
    cases() -> dict[str, Callable]  name -> function that runs in the case's process and returns a JSON-able dict

and ends with `main(globals())`. `python3 tests/gpu/probe_x.py --out DIR` runs all of its cases, `--only REGEX` some,
`--case NAME` one in this very process. On a machine without a GPU, `--dry` runs the same code on the CPU with a
capture that captures nothing: good for finding typing errors, not for facts.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DRY = os.environ.get("CGSAFE_PROBE_DRY") == "1"
DEVICE = "cpu" if DRY else "cuda"
MARK = "@@RESULT@@"
CASE_TIMEOUT_S = 120

Result = dict[str, Any]


# ------------------------------------------------------------------------------------------------ errors and captures


def error_text(exc: BaseException) -> str:
    """Type and first meaningful lines of an error, without the advice that CUDA appends to each of its own."""
    text = str(exc).replace(f"{HERE.parent.parent}{os.sep}", "")  # results name no folder of the machine
    lines = [line.rstrip() for line in text.splitlines()]
    drop = (
        "Compile with `TORCH_USE_CUDA_DSA`",
        "For debugging consider",
        "CUDA kernel errors might be asynchronously",
        "Search for `cuda",
        "Set TORCHDYNAMO_VERBOSE=1",
        "Set TORCH_LOGS=",
        "You can suppress this exception",
    )
    kept = [line for line in lines if line and not line.startswith(drop)]
    return f"{type(exc).__name__}: " + "\n".join(kept)[:900]


def raised_in(exc: BaseException) -> str:
    """The innermost frames of the error, shortest useful form: where in PyTorch it came from."""
    frames = traceback.extract_tb(exc.__traceback__)[-4:]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))


@contextlib.contextmanager
def side_stream():
    """Run the body on a fresh side stream, and yield that stream (None when dry)."""
    import torch

    if DRY:
        yield None
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield stream
    torch.cuda.current_stream().wait_stream(stream)


def sync() -> None:
    import torch

    if not DRY:
        torch.cuda.synchronize()


class Captured:
    """`capture(fn)` in pieces: the graph, what fn returned, and the errors of the body and of ending the capture."""

    def __init__(self) -> None:
        self.graph: Any = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.end_error: BaseException | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and self.end_error is None

    def report(self) -> Result:
        out: Result = {"capture": "ok" if self.ok else "fail"}
        if self.error is not None:
            out |= {"error": error_text(self.error), "raised_in": raised_in(self.error)}
            cause = self.error.__cause__ or self.error.__context__
            if cause is not None:
                out["error_cause"] = error_text(cause)
        if self.end_error is not None and self.end_error is not self.error:
            out["end_error"] = error_text(self.end_error)
        return out


def capture(fn: Callable[[], Any], stream: Any = None, **kwargs: Any) -> Captured:
    """Capture `fn()` in a new CUDA graph; the first error is kept apart from the one that ending the capture raises."""
    import torch

    out = Captured()
    if DRY:
        try:
            out.value = fn()
        except Exception as exc:
            out.error = exc
        return out
    if stream is not None:
        kwargs["stream"] = stream
    out.graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(out.graph, **kwargs):
            try:
                out.value = fn()
            except Exception as exc:
                out.error = exc
                raise
    except Exception as exc:
        if exc is not out.error:
            out.end_error = exc
    return out


def replay(graph: Any) -> None:
    if not DRY:
        graph.replay()
        sync()


# ---------------------------------------------------------------------------------------------- one line of user code


def measure_snippet(code: str, make_env: Callable[[], dict[str, Any]]) -> Result:
    """Run a piece of code plainly (twice), under sync-debug mode, and under capture; a name `r` it binds is its result."""
    import warnings

    import torch

    body = "\n".join("    " + line for line in code.splitlines())
    env = make_env()
    names = ", ".join(env)
    space: dict[str, Any] = {}
    header = "import torch, math, operator, io, logging, pickle, copy, dataclasses, functools, itertools\nimport numpy as np\n"
    exec(compile(f"{header}def probe({names}):\n    r = None\n{body}\n    return r\n", "<probe>", "exec"), space)
    probe = space["probe"]
    out: Result = {"code": code}

    with side_stream() as stream:
        try:
            value = None
            for _ in range(2):
                value = probe(**make_env())
            sync()
            out["eager"] = "ok"
            out["eager_result"] = describe(value)
        except Exception as exc:
            out["eager"] = "error"
            out["eager_error"] = error_text(exc)
        out["syncs"] = 0
        if not DRY:
            env = make_env()
            sync()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                with contextlib.suppress(Exception):
                    probe(**env)
                torch.cuda.set_sync_debug_mode("default")
            out["syncs"] = sum("called a synchronizing CUDA operation" in str(w.message) for w in caught)
        env = make_env()
        sync()
        got = capture(lambda: probe(**env), stream)
    out |= got.report()
    if got.ok:
        with contextlib.suppress(Exception):
            out["result_at_capture"] = describe_host(got.value)
        try:
            replay(got.graph)
            out["result_after_replay"] = describe(got.value)
        except Exception as exc:
            out["replay_error"] = error_text(exc)
    if out["eager"] == "error" and not got.ok and out["eager_error"] == out.get("error"):
        out["outcome"] = "raises everywhere"
    elif not got.ok:
        out["outcome"] = "capture fails"
    elif out["eager"] == "error":
        out["outcome"] = "raises in eager only"
    elif "replay_error" in out:
        out["outcome"] = "replay fails"
    else:
        out["outcome"] = "ok"
        # A result on the host that differs from the eager one: read before the graph ran, or never refreshed.
        if out["result_after_replay"] != out["eager_result"] and not DRY:
            out["outcome"] = "ok, other result"
    return out


def describe(value: Any) -> str:
    """A short stable text for a result; a device tensor is read, so not for use during a capture."""
    import torch

    if isinstance(value, torch.Tensor):
        where = value.device.type + (" pinned" if value.device.type == "cpu" and not DRY and value.is_pinned() else "")
        return f"{where} {str(value.dtype)[6:]} {list(value.shape)} {value.detach().flatten()[:4].tolist()}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return "[" + ", ".join(describe(v) for v in value) + "]"
    return f"{type(value).__name__} {value!r}"[:200]


def describe_host(value: Any) -> str:
    """`describe`, for what can be read without a device: device tensors only by their place."""
    import torch

    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return f"{value.device.type} {str(value.dtype)[6:]} {list(value.shape)}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return "[" + ", ".join(describe_host(v) for v in value) + "]"
    return describe(value)


# --------------------------------------------------------------------------------------------------- what was compiled


def compiled_frames() -> list[str]:
    """Names of the frames that Dynamo compiled so far in this process, in order (a recompile counts again).

    A `?` is an event of Inductor's outside any frame: tuning a kernel at its first launch, or recording its own CUDA graph.
    """
    from torch._dynamo.utils import get_compilation_metrics

    out = []
    for m in get_compilation_metrics():
        name = m.co_name or "?"
        if m.fail_type:
            name += f" (failed: {m.fail_type})"
        out.append(name)
    return out


def unique_graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def graph_breaks() -> list[str]:
    from torch._dynamo.utils import counters

    return [str(reason).splitlines()[0][:160] for reason in counters["graph_break"]]


def cudagraph_trees_in_use() -> bool:
    """Whether Inductor's own CUDA graphs (reduce-overhead, max-autotune) have captured something here."""
    if DRY:
        return False
    try:
        from torch._inductor.cudagraph_trees import get_manager

        manager = get_manager(0, create_if_none_exists=False)
        return manager is not None and bool(manager.roots)
    except Exception:
        return False


def inductor_counts() -> dict[str, int]:
    from torch._dynamo.utils import counters

    keep = (
        "cudagraph_skips",
        "fxgraph_cache_hit",
        "fxgraph_cache_miss",
        "select_algorithm_autotune",
        "cudagraph_recorded_non_static_inputs",
    )
    return {k: int(v) for k, v in counters["inductor"].items() if k in keep}


# -------------------------------------------------------------------------------------------------------- running cases


def machine() -> Result:
    """The facts that a result needs beside it."""
    import torch

    info: Result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "dry": DRY,
    }
    with contextlib.suppress(Exception):
        import triton

        info["triton"] = triton.__version__
    if not DRY:  # asked for in a child, so that this process never touches CUDA and can still be forked
        ask = "import torch; print(torch.cuda.get_device_name(0)); print(torch.cuda.get_device_capability(0))"
        lines = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True).stdout.split("\n")
        info["device"] = lines[0]
        with contextlib.suppress(Exception):
            smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            info["driver"] = subprocess.run(smi, capture_output=True, text=True).stdout.strip()
    return info


def run_here(fn: Callable[[], Result]) -> Result:
    try:
        return fn()
    except Exception as exc:
        return {"outcome": "probe error", "error": error_text(exc), "traceback": traceback.format_exc()[-1500:]}


def _child(fn: Callable[[], Result], pipe: Any) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    pipe.send(json.dumps(run_here(fn)))
    pipe.close()
    os._exit(0)  # teardown after a failed capture may abort; the answer is out


def run_forked(fn: Callable[[], Result]) -> Result:
    ctx = multiprocessing.get_context("fork")
    receive, send = ctx.Pipe(duplex=False)
    process = ctx.Process(target=_child, args=(fn, send))
    process.start()
    send.close()
    try:
        if not receive.poll(CASE_TIMEOUT_S):
            return {"outcome": "timeout"}
        return json.loads(receive.recv())
    except EOFError:
        process.join(5)
        return {"outcome": "process died", "exitcode": process.exitcode}
    finally:
        if process.is_alive():
            process.join(5)
            if process.is_alive():
                process.kill()
        receive.close()


def run_fresh(script: Path, name: str) -> Result:
    """One case in a new interpreter, with compile caches of its own."""
    with tempfile.TemporaryDirectory(prefix="cgsafe-probe-") as cache:
        env = dict(
            os.environ,
            TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor",
            TRITON_CACHE_DIR=f"{cache}/triton",
            TORCHINDUCTOR_COMPILE_THREADS="1",
        )
        command = [sys.executable, str(script), "--case", name] + (["--dry"] if DRY else [])
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CASE_TIMEOUT_S, env=env)
        except subprocess.TimeoutExpired:
            return {"outcome": "timeout"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(MARK):
            return json.loads(line[len(MARK) :])
    return {"outcome": "process died", "exitcode": done.returncode, "stderr": done.stderr[-1500:]}


def run_probe(
    space: dict[str, Any],
    out_dir: Path,
    only: str = "",
    jobs: int = 14,
    quiet: bool = False,
    deadline: float | None = None,
) -> Path:
    """Run a probe module's cases side by side and write its JSON; also after an interruption, with what there is."""
    script = Path(space["__file__"]).resolve()
    chosen = {name: fn for name, fn in space["cases"]().items() if re.search(only, name)}
    results: dict[str, Result] = {}
    old: dict[str, Result] = {}
    target = out_dir / f"{script.stem.removeprefix('probe_')}.json"
    if only and target.exists():  # a part measured again: the rest stays
        old = json.loads(target.read_text())["cases"]
    began = time.monotonic()
    info = machine()

    def one(name: str) -> Result:
        if deadline is not None and time.monotonic() > deadline:
            return {"outcome": "not run: out of time"}
        start = time.monotonic()
        result = run_fresh(script, name) if space["FRESH_PROCESS"] else run_forked(chosen[name])
        result["seconds"] = round(time.monotonic() - start, 1)
        return result

    def save() -> None:
        known = old | results
        ordered = {name: known[name] for name in space["cases"]() if name in known}
        document = {"probe": script.name, "title": space["TITLE"], "machine": info, "cases": ordered}
        target.write_text(json.dumps(document, indent=1) + "\n")

    import torch  # noqa: F401  before the forks, so that they share it

    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(one, name): name for name in chosen}
        for count, future in enumerate(as_completed(futures), 1):
            results[futures[future]] = future.result()
            if count % 20 == 0:
                save()
    save()
    tally: dict[str, int] = {}
    for result in results.values():
        tally[result.get("outcome", "?")] = tally.get(result.get("outcome", "?"), 0) + 1
    if not quiet:
        print(f"{script.name}: {len(results)} cases in {time.monotonic() - began:.0f} s: {tally}", flush=True)
    return target


def main(space: dict[str, Any]) -> None:
    if space["__name__"] != "__main__":
        return
    parser = argparse.ArgumentParser(description=space["TITLE"])
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--only", default="", help="regular expression on case names")
    parser.add_argument("--case", help="run this one here and print its JSON")
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--dry", action="store_true", help="on the CPU, capturing nothing")
    args = parser.parse_args()
    if args.dry and not DRY:
        os.environ["CGSAFE_PROBE_DRY"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    if args.case:
        result = run_here(space["cases"]()[args.case])
        print(MARK + json.dumps(result), flush=True)
        os._exit(0)  # teardown after a failed capture may abort; the answer is out
    args.out.mkdir(parents=True, exist_ok=True)
    run_probe(space, args.out, args.only, args.jobs)
