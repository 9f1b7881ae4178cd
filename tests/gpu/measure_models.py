"""Which lines of the models of `transformers` make a capture fail? A GPU says, with random weights.

    python tests/gpu/measure_models.py OUT.json [--only NAME ...] [--skip-measured OLD.json] [--seconds N] [--processes N]

needs torch, transformers and a CUDA device. compare_models.py holds the result against the findings of `cgsafe check`.

**How.** Each model type that `AutoConfig` knows is built from its default config, made smaller, in bfloat16, in a process of
its own; so are a few decoders with other rotary embeddings (`llama+dynamic`). Its class is the first of the causal LM, the
bare model and the image-text-to-text model that has at most 6e9 parameters and answers twice to one of the inputs that
`choices` in _model_inputs.py names. Then up to three scenarios run, warm and without gradients: `forward`; `forward_padded`
(four tokens are padding) where there is an attention mask; `static_decode` (one token, a `StaticCache`) of causal LMs. Each runs

- under `torch.cuda.set_sync_debug_mode("warn")`, while `torch.cuda.is_current_stream_capturing` answers True, so that code
  which asks takes the branch for a capture: the innermost line of the package below each warning is a *site* (`how`: "sync"),
  and all lines that run are noted;
- in a real `torch.cuda.graph`. The first failing capture of a model ends its captures, since it can poison the process. Where
  it fails at a line that is no site yet, that is one too, with the error as `how`.

**What is written.** `package`, `torch`, `device`, and in `results` for each model `class` ("" if nothing was measured;
`skipped` tells why), `capture` (scenario: "ok" or "fail"), `errors` (by step), `lines` (file: lines that ran in any scenario)
and `sites` ([file, line, function, scenarios, how, stack from the outermost frame]). Files are relative to the package, lines
count from 1. `--seconds` of wall clock are for beginning models; those that run then have 60 more, and each has 100 in all.

**Limits.** One short shape of each input, and the defaults of all options: no training, no labels, no `generate`, no images or
sound beside text unless text alone is refused, no quantised weights, no optional packages; one class of each model type. Sync
debug mode sees the waits that PyTorch itself makes, and not all of those; not those of other libraries, nor what a capture
refuses although it does not wait. What did not run, or would wait with other inputs only, is not measured.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from _model_inputs import Make, built, makers, said, shrink

MODEL_S, GRACE_S = 100, 60

Frame = tuple[str, int, str]  # file, line, function


# -- watching one call --------------------------------------------------------------------------------------------------


def inside(frames: Iterable[traceback.FrameSummary], root: str) -> list[Frame]:
    """Those frames that are in files below a folder (which ends in a slash)."""
    return [(f.filename[len(root) :], f.lineno or 0, f.name) for f in frames if f.filename.startswith(root)]


class Trace:
    """For `sys.settrace`: which lines below a folder ran."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.lines: dict[str, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if not path.startswith(self.root):
            return None
        ran = self.lines.setdefault(path[len(self.root) :], set())

        def local(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            if event == "line":
                ran.add(frame.f_lineno)
            return local

        ran.add(frame.f_lineno)
        return local


def observed(call: Callable[[], Any], root: str) -> tuple[dict[Frame, list[Frame]], dict[str, set[int]], str]:
    """The stacks of the lines that waited, by their innermost frame; the lines that ran; what was raised."""
    import torch

    sites: dict[Frame, list[Frame]] = {}

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if "synchroniz" in str(message) and (frames := inside(traceback.extract_stack(), root)):
            sites.setdefault(frames[-1], frames)

    trace, error = Trace(root), ""
    really = torch.cuda.is_current_stream_capturing
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.is_current_stream_capturing = lambda: True
        torch.cuda.set_sync_debug_mode("warn")
        sys.settrace(trace)
        try:
            call()
        except Exception as exc:
            error = said(exc)
        finally:
            sys.settrace(None)
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.is_current_stream_capturing = really
    return sites, trace.lines, error


def captured(call: Callable[[], Any], root: str) -> tuple[list[Frame], str]:
    """What a real capture of it raised first, and where; no error where it works."""
    import torch

    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=torch.cuda.Stream()):
            call()
    except Exception as exc:
        first: BaseException = exc
        while first.__context__ is not None:  # the end of a failed capture raises another error on top
            first = first.__context__
        frames = inside(traceback.extract_tb(first.__traceback__), root)
        return frames or inside(traceback.extract_tb(exc.__traceback__), root), said(first)
    return [], ""


# -- one model ----------------------------------------------------------------------------------------------------------


def scenarios_of(
    model: Any, config: Any, given: dict[str, Any], errors: dict[str, str]
) -> dict[str, Callable[[], Any]]:
    """What is measured, in this order."""
    calls: dict[str, Callable[[], Any]] = {"forward": functools.partial(model, **given)}
    if "attention_mask" in given:
        mask = given["attention_mask"].clone()
        mask[0, :4] = 0
        calls["forward_padded"] = functools.partial(model, **{**given, "attention_mask": mask})
    if "CausalLM" in type(model).__name__ or "LMHead" in type(model).__name__:
        try:
            from transformers import StaticCache

            tokens, rest = given["input_ids"], {"past_key_values": StaticCache(config=config, max_cache_len=32)}
            model(input_ids=tokens, use_cache=True, **rest)
            decode = functools.partial(model, input_ids=tokens[:, :1], use_cache=True, **rest)
            decode()
            calls["static_decode"] = decode
        except Exception as exc:
            errors["static_decode"] = said(exc)
    return calls


def measure(name: str, make: Make, root: str) -> dict[str, Any]:
    """One entry of the results."""
    import torch

    torch.manual_seed(0)
    config = make()
    shrink(config)
    capture: dict[str, str] = {}
    errors: dict[str, str] = {}
    ran: dict[str, set[int]] = {}
    sites: dict[Frame, tuple[list[Frame], set[str], str]] = {}
    with torch.no_grad():
        model, given, why = built(config)
        if model is None:
            return {"model": name, "class": "", "skipped": why}
        calls = scenarios_of(model, config, given, errors)
        for scenario, call in list(calls.items()):
            try:
                call()
            except Exception as exc:
                errors[scenario] = said(exc)
                del calls[scenario]
                continue
            found, lines, error = observed(call, root)
            for place, stack in found.items():
                sites.setdefault(place, (stack, set(), "sync"))[1].add(scenario)
            for path, numbers in lines.items():
                ran.setdefault(path, set()).update(numbers)
            if error:
                errors[f"pretend {scenario}"] = error
        for scenario, call in calls.items():
            try:
                call()
                torch.cuda.synchronize()
            except Exception as exc:
                errors[f"warm {scenario}"] = said(exc)
                continue
            stack, error = captured(call, root)
            capture[scenario] = "fail" if error else "ok"
            if error:
                errors[f"capture {scenario}"] = error
                if stack:
                    sites.setdefault(stack[-1], (stack, set(), error))[1].add(scenario)
                break
    return {
        "model": name,
        "class": type(model).__name__,
        "capture": capture,
        "sites": [[*place, sorted(where), how, stack] for place, (stack, where, how) in sites.items()],
        "lines": {path: sorted(numbers) for path, numbers in ran.items()},
        "errors": errors,
    }


# -- all models ---------------------------------------------------------------------------------------------------------


def chosen(names: Iterable[str], only: Iterable[str] | None, old: dict[str, Any] | None) -> list[str]:
    """Which models to measure: those asked for, without those that an older result has measured."""
    done = {result["model"] for result in (old or {}).get("results", []) if result["class"]}
    return [name for name in names if (only is None or name in set(only)) and name not in done]


def child(measuring: Callable[[], dict[str, Any]], name: str, path: Path) -> None:
    """What a process does: its result goes to a file, its output nowhere; too long a run kills it."""
    signal.alarm(MODEL_S)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        result = measuring()
    except BaseException as exc:
        result = {"model": name, "class": "", "skipped": said(exc)}
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(result))
    unfinished.replace(path)
    os._exit(0)  # a poisoned CUDA context must not hold up the end


def run_all(work: Mapping[str, Callable[[], dict[str, Any]]], seconds: float, processes: int) -> list[dict[str, Any]]:
    """Measure each in a process of its own. The folder for their results is new, so that no older one can be taken for one."""
    context = multiprocessing.get_context(
        "fork"
    )  # importing transformers anew for each would take longer than to measure
    start = time.monotonic()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="measure-models-") as folder:
        files = {name: Path(folder, f"{number}.json") for number, name in enumerate(work)}
        running: list[Any] = []
        begun: set[str] = set()
        for name, measuring in work.items():
            while len(running) >= processes:
                _reap(running, 1)
            if time.monotonic() - start > seconds:
                break
            process = context.Process(target=child, args=(measuring, name, files[name]))
            process.start()
            running.append(process)
            begun.add(name)
        while running and time.monotonic() - start < seconds + GRACE_S:
            _reap(running, 1)
        for process in running:
            process.kill()
            process.join()
        for name, path in files.items():
            if path.exists():
                results.append(json.loads(path.read_text()))
            else:
                why = "died or took too long" if name in begun else "not begun: no time left"
                results.append({"model": name, "class": "", "skipped": why})
    return results


def _reap(running: list[Any], seconds: float) -> None:
    """Take out those that have ended, after waiting for one."""
    wait([process.sentinel for process in running], seconds)
    for process in [process for process in running if not process.is_alive()]:
        running.remove(process)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure which lines of transformers' models wait in a capture.")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="model types, as AutoConfig knows them")
    parser.add_argument(
        "--skip-measured", type=Path, metavar="OLD.json", help="leave out what this result has measured"
    )
    parser.add_argument("--seconds", type=float, default=520, metavar="N", help="begin no model later than this")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 14), metavar="N")
    args = parser.parse_args()
    os.environ.update(TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error")
    import torch
    import transformers

    torch.set_num_threads(1)
    root = os.path.dirname(transformers.__file__) + "/"
    known = makers()
    old = json.loads(args.skip_measured.read_text()) if args.skip_measured else None
    names = chosen(known, args.only, old)
    work = {name: functools.partial(measure, name, known[name], root) for name in names}
    results = run_all(work, args.seconds, args.processes)
    package = f"transformers=={transformers.__version__}"
    head = {"package": package, "torch": torch.__version__, "device": torch.cuda.get_device_name()}
    args.out.write_text(json.dumps({**head, "results": results}))
    print(f"{len(results)} models, {sum(bool(result['class']) for result in results)} measured")
    for result in results if args.only else ():
        print(f"{result['model']}: {result.get('skipped') or result['capture']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
