"""The processes that measure. `python -m cgsafe.measure.worker` reads probes and writes results, one JSON object a line.

This process imports torch, and forks a child for the measuring; a child that saw a failure is thrown away, since a failed
capture can leave the context, the allocator or a generator in a state that spoils what comes after it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from cgsafe.measure.probes import Probe

DRY = os.environ.get("CGSAFE_MEASURE_DRY") == "1"  # on the CPU, capturing nothing: finds typing errors in probes
Result = dict[str, Any]
ADVICE = (
    "Compile with `TORCH_USE_CUDA_DSA`",
    "For debugging consider",
    "CUDA kernel errors might",
    "Search for `cuda",
    "Set TORCH",
)


# ------------------------------------------------------------------------------------------------------------ the host


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what probes print must not mix with the answers
    import torch  # noqa: F401  before the forks, so that the children share it

    print(json.dumps(about_torch()), file=answers, flush=True)
    child: Child | None = None
    for line in sys.stdin:
        probe = Probe(**json.loads(line))
        if child is not None and (probe.own_process or child.theme != probe.theme):
            child.close()
            child = None
        child = child or Child(probe.theme)
        result = child.measure(probe, "capture" if probe.cold else "all")
        if probe.cold and result["capture"] in ("ok", "fail"):  # the runs that need no fresh process, in another one
            child.close()
            child = Child(probe.theme)
            plain = child.measure(probe, "plain")
            result = {"sync": plain.get("sync"), "plain": plain.get("error"), **result}
        if result["capture"] != "ok" or result.get("replay") == "error" or probe.own_process:
            child.close()
            child = None
        print(json.dumps({"id": probe.id, **result}), file=answers, flush=True)
    if child is not None:
        child.close()


def about_torch() -> Result:
    """Versions; the device is asked for in a child, so that this process never touches CUDA and can be forked."""
    import torch

    info: Result = {
        "release": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
    }
    with contextlib.suppress(ImportError):
        from importlib.metadata import version

        info["triton"] = version("triton")
    return info


class Child:
    """A forked process that measures probe after probe."""

    def __init__(self, theme: str) -> None:
        self.theme = theme  # probes of one file share a process, and no others: a process group has threads of its own
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.folder = tempfile.mkdtemp(prefix="cgsafe-measure-")
        self.process = context.Process(target=_serve, args=(other, self.pipe, self.folder), daemon=True)
        self.process.start()
        other.close()

    def measure(self, probe: Probe, mode: str) -> Result:
        try:
            self.pipe.send((probe, mode))
            if self.pipe.poll(probe.timeout):
                answer: Result = self.pipe.recv()
                return answer
            return {"capture": "timeout", "error": f"no answer within {probe.timeout} s"}
        except (EOFError, OSError):
            self.process.join(5)
            return {"capture": "died", "error": f"the process ended with code {self.process.exitcode}"}

    def close(self) -> None:
        self.pipe.close()
        self.process.join(0.5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        shutil.rmtree(self.folder, ignore_errors=True)


# ----------------------------------------------------------------------------------------------------------- the child


def _serve(pipe: Any, parent_end: Any, folder: str) -> None:
    parent_end.close()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.chdir(folder)
    with contextlib.suppress(EOFError):
        while True:
            probe, mode = pipe.recv()
            try:
                result = Measurement(probe, folder).run(mode)
            except BaseException as exc:
                result = {"capture": "invalid", "error": error_text(exc)}
            result["device"] = device_name()
            pipe.send(json.loads(json.dumps(result)))
    os._exit(0)  # the orderly way out of a process with a failed capture may abort


def device_name() -> str:
    import torch

    try:
        return "dry" if DRY else torch.cuda.get_device_name(0)
    except Exception:
        return ""


def error_text(exc: BaseException) -> str:
    """Type and first line of an error, without paths of this machine."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip() and not line.strip().startswith(ADVICE)]
    text = f"{type(exc).__name__}: {lines[0] if lines else ''}"
    text = re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)  # folders
    return re.sub(r"0x[0-9a-f]{6,}", "0x...", text)[:300]


def inputs() -> dict[str, Any]:
    """The names that a probe may use (see `probes.KINDS`), made anew."""
    import numpy as np
    import torch

    device = "cpu" if DRY else "cuda"
    values = _values(0)
    names: dict[str, Any] = {
        name: value.to(device) for name, value in values.items() if name in "x v s n i m y".split()
    }
    names |= {"c": values["c"], "ic": values["ic"], "mc": values["mc"], "nc": values["nc"]}
    names["cp"] = values["cp"] if DRY else values["cp"].pin_memory()
    names["npa"] = values["npa"].numpy().copy()
    return {**names, "torch": torch, "F": torch.nn.functional, "nn": torch.nn, "np": np, "__name__": "probe"}


def _values(which: int) -> dict[str, Any]:
    """First (0) and changed (1) values of all inputs, on the CPU; deterministic without touching any generator."""
    import torch

    def spread(count: int, factor: float) -> Any:
        return (torch.arange(count, dtype=torch.float64) * factor % 1.0).float() * 0.8 + 0.1

    factor = (0.61803, 0.41421)[which]
    return {
        "x": spread(64, factor).reshape(8, 8),
        "v": spread(8, factor),
        "s": torch.tensor((1.5, 2.5)[which]),
        "n": torch.tensor((3, 2)[which]),
        "i": torch.tensor(([0, 2, 1], [5, 3, 7])[which]),
        "m": torch.tensor(
            [True, False, True, True, False, False, True, False] if which == 0 else [False, True] + [False] * 6
        ),
        "y": torch.zeros(8),
        "c": spread(8, factor * 1.1),
        "ic": torch.tensor(([0, 2, 1], [4, 6, 5])[which]),
        "mc": torch.tensor([True, False] * 4 if which == 0 else [False] * 6 + [True] * 2),
        "nc": torch.tensor((3, 2)[which]),
        "cp": spread(8, factor * 1.3),
        "npa": torch.full((8,), (1.0, 3.0)[which]),
    }


class Measurement:
    """One probe in this process."""

    def __init__(self, probe: Probe, folder: str) -> None:
        self.probe = probe
        self.path = os.path.join(folder, re.sub(r"\W", "_", probe.id))

    def run(self, mode: str) -> Result:
        """`all`: plain runs and then the capture; `capture` and `plain`: just that."""
        import torch

        if DRY:
            self.execute(self.prepared())
            return {"sync": 0, "capture": "ok"}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        result: Result = {}
        with torch.cuda.stream(stream):
            if mode != "capture":
                try:
                    for _ in range(2):
                        self.execute(self.prepared())
                        torch.cuda.synchronize()
                except BaseException as exc:
                    return {"capture": "invalid", "error": error_text(exc)}
                result["sync"] = self.syncs()
            if mode != "plain":
                result |= self.capture(stream)
        return result

    def prepared(self) -> dict[str, Any]:
        """New names and new code, with the setup run.

        The code is compiled anew: Dynamo keeps what it compiled at a code object, and it refers to names in the globals
        that the function had then.
        """
        space = inputs()
        setup, _ = _compiled(self.probe.setup, f"{self.path}_setup.py")
        self.code = _compiled(self.probe.expr, f"{self.path}.py")
        exec(setup, space)
        return space

    def execute(self, space: dict[str, Any]) -> Any:
        code, is_expression = self.code
        if is_expression:
            return eval(code, space)
        space.pop("r", None)
        exec(code, space)
        return space.get("r")

    def syncs(self) -> int:
        """How many calls PyTorch reports as waiting for the device."""
        import torch

        space = self.prepared()
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self.execute(space)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("called a synchronizing CUDA operation" in str(warning.message) for warning in caught)

    def capture(self, stream: Any) -> Result:
        import torch

        space = self.prepared()
        named = {name: space[name] for name, value in _values(0).items() if space[name].shape == value.shape}
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        value: Any = None
        error: BaseException | None = None
        end_error: BaseException | None = None
        try:
            with torch.cuda.graph(graph, stream=stream):
                try:
                    value = self.execute(space)
                except BaseException as exc:
                    error = exc
                    raise
        except BaseException as exc:
            if exc is not error:
                end_error = exc
        result: Result = {"capture": "ok" if error is end_error is None else "fail"}
        if error is not None:
            result["error"] = error_text(error)
        if end_error is not None:
            result["end_error"] = error_text(end_error)
        if result["capture"] == "ok" and self.probe.replay:
            try:
                result["replay"] = self.replayed(graph, value, space, named)
            except BaseException as exc:
                result |= {"replay": "error", "replay_error": error_text(exc)}
        return result

    def replayed(self, graph: Any, value: Any, space: dict[str, Any], named: dict[str, Any]) -> str:
        """Replay on changed inputs, run eagerly on the same, compare results and the inputs' final state.

        `agrees`; `differs`: something of the code is not in the graph, or a host value was frozen; where two eager runs
        differ, `varies` if replays do so too and `frozen` if not; `n/a`: there is nothing to compare.
        """
        import torch

        def seen(result: Any) -> list[Any]:
            torch.cuda.synchronize()
            return [*leaves(result), *leaves(list(named.values()))]

        def once(run: Any) -> list[Any]:
            change(named)
            torch.cuda.synchronize()
            return seen(run())

        def play() -> Any:
            graph.replay()
            return value

        replays = [once(play), once(play)]
        eager = [once(lambda: self.execute(space)) for _ in range(2)]
        change(named)
        if not leaves(value) and all(alike(run, leaves(list(named.values()))) for run in (*eager, *replays)):
            return "n/a"
        if alike(*eager):
            return "agrees" if alike(replays[0], eager[0]) else "differs"
        return "frozen" if alike(*replays) else "varies"


def _compiled(code: str, path: str) -> tuple[Any, bool]:
    """The code and whether it is an expression. It lies in a file too, since triton reads the source of its kernels."""
    if DRY:
        code = re.sub(r"\.cuda\(\)", ".cpu()", re.sub(r"(['\"])cuda(:0)?\1", "'cpu'", code))
    with open(path, "w", encoding="utf-8") as file:
        file.write(code + "\n")
    try:
        return compile(code.strip(), path, "eval"), True
    except SyntaxError:
        return compile(code, path, "exec"), False


def change(named: dict[str, Any]) -> None:
    """Give the inputs other values, in place."""
    import torch

    values = _values(1)
    with torch.no_grad():
        for name, value in named.items():
            if isinstance(value, torch.Tensor):
                value.data.copy_(values[name])
            else:
                value[:] = values[name].numpy()


def leaves(value: Any) -> list[Any]:
    """Copies of everything in a result that can be compared: tensors (on the CPU), numbers and texts."""
    return list(_leaves(value, 0))


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    import numpy as np
    import torch

    if depth > 6:
        return
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            for part in value.unbind():
                yield from _leaves(part, depth + 1)
        elif value.layout is not torch.strided:
            yield value.detach().to_dense().cpu()
        else:
            yield value.detach().cpu().clone()
    elif isinstance(value, (np.ndarray, np.generic)):
        yield torch.as_tensor(value.copy())
    elif isinstance(value, (bool, int, float, complex, str)):
        yield value
    elif isinstance(value, dict):
        for key in value:
            yield from _leaves(value[key], depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item, depth + 1)


def alike(left: list[Any], right: list[Any]) -> bool:
    import torch

    if len(left) != len(right):
        return False
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
            return False
        if not isinstance(a, torch.Tensor):
            if a != b and not (a != a and b != b):
                return False
        elif a.shape != b.shape or a.dtype != b.dtype:
            return False
        elif a.is_floating_point() or a.is_complex():
            wide = torch.complex128 if a.is_complex() else torch.float64
            if not torch.allclose(
                a.to(wide), b.to(wide), rtol=2e-2 if a.itemsize < 4 else 1e-3, atol=1e-4, equal_nan=True
            ):
                return False
        elif not torch.equal(a, b):
            return False
    return True


if __name__ == "__main__":
    main()
