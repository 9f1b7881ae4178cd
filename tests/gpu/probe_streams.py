"""The capture site: which stream a capture runs on, in every way of writing it, and what breaks when it is not the warm-up's."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch

import _harness as h
from _harness import Result, main

TITLE = "torch.cuda.graph and its stream"
FRESH_PROCESS = False


def name_of(stream: torch.cuda.Stream, known: dict[str, torch.cuda.Stream]) -> str:
    for name, other in known.items():
        if other == stream:
            return name
    if torch.cuda.graph.default_capture_stream is not None and stream == torch.cuda.graph.default_capture_stream:
        return "torch.cuda.graph.default_capture_stream"
    return "another"


def observe(enter: Callable[[torch.cuda.Stream], Any], around: str) -> Result:
    """Open a capture as `enter(side)` does, with `around` naming the current stream outside; who is current inside?"""
    side = torch.cuda.Stream()
    other = torch.cuda.Stream()
    known = {"default": torch.cuda.default_stream(), "side": side, "other side": other}
    outside = {
        "default": contextlib.nullcontext(),
        "side": torch.cuda.stream(side),
        "other side": torch.cuda.stream(other),
    }[around]
    x = torch.ones(4, device="cuda")
    torch.cuda.synchronize()
    out: Result = {"current_outside": around}
    with outside:
        try:
            with enter(side):
                out["current_inside"] = name_of(torch.cuda.current_stream(), known)
                out["capturing_inside"] = torch.cuda.is_current_stream_capturing()
                y = x * 2
            out["current_after"] = name_of(torch.cuda.current_stream(), known)
            out["outcome"] = "ok"
        except Exception as exc:
            out |= {"outcome": "capture fails", "error": h.error_text(exc), "raised_in": h.raised_in(exc)}
        else:
            out["same_as_outside"] = out["current_inside"] == around
            del y
    return out


def graph() -> torch.cuda.CUDAGraph:
    return torch.cuda.CUDAGraph()


def pool() -> Any:
    return torch.cuda.graph_pool_handle()


@contextlib.contextmanager
def begin_end(stream: torch.cuda.Stream | None):
    g = graph()
    with torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext():
        g.capture_begin()
        try:
            yield
        finally:
            g.capture_end()


@contextlib.contextmanager
def exit_stack(kwargs: dict[str, Any]):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.cuda.graph(graph(), **kwargs))
        yield


WAYS: dict[str, Callable[[torch.cuda.Stream], Any]] = {
    "graph(g)": lambda side: torch.cuda.graph(graph()),
    "graph(g, stream=None)": lambda side: torch.cuda.graph(graph(), stream=None),
    "graph(g, pool=p)": lambda side: torch.cuda.graph(graph(), pool=pool()),
    "graph(g, p)": lambda side: torch.cuda.graph(graph(), pool()),
    "graph(g, p, side)": lambda side: torch.cuda.graph(graph(), pool(), side),
    "graph(g, None, side)": lambda side: torch.cuda.graph(graph(), None, side),
    "graph(g, side) (stream in pool's place)": lambda side: torch.cuda.graph(graph(), side),
    "graph(g, stream=side)": lambda side: torch.cuda.graph(graph(), stream=side),
    "graph(cuda_graph=g, stream=side)": lambda side: torch.cuda.graph(cuda_graph=graph(), stream=side),
    "graph(g, stream=current_stream())": lambda side: torch.cuda.graph(graph(), stream=torch.cuda.current_stream()),
    "graph(g, stream=default_stream())": lambda side: torch.cuda.graph(graph(), stream=torch.cuda.default_stream()),
    "graph(g, stream=Stream())": lambda side: torch.cuda.graph(graph(), stream=torch.cuda.Stream()),
    "graph(g, stream=side, capture_error_mode='thread_local')": lambda side: torch.cuda.graph(
        graph(), stream=side, capture_error_mode="thread_local"
    ),
    "torch.cuda.graphs.graph(g)": lambda side: torch.cuda.graphs.graph(graph()),
    "ExitStack.enter_context(graph(g))": lambda side: exit_stack({}),
    "ExitStack.enter_context(graph(g, **{'stream': side}))": lambda side: exit_stack({"stream": side}),
    "capture_begin on the current stream": lambda side: begin_end(None),
    "capture_begin in torch.cuda.stream(side)": lambda side: begin_end(side),
}


# ------------------------------------------------------------------------------------------------------- single questions


def signature() -> Result:
    return {
        "outcome": "ok",
        "graph": str(inspect.signature(torch.cuda.graph.__init__)),
        "make_graphed_callables": str(inspect.signature(torch.cuda.make_graphed_callables)),
        "graphs.graph is graph": torch.cuda.graphs.graph is torch.cuda.graph,
        "capture_begin": torch.cuda.CUDAGraph.capture_begin.__doc__.split("\n\n")[0].strip(),
    }


def shared_capture_stream() -> Result:
    """Is the stream of a capture without stream= one for the class: twice, in another thread, after a constructor alone?"""
    seen = []

    def once() -> None:
        x = torch.ones(4, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.graph(graph()):
            seen.append(torch.cuda.current_stream().cuda_stream)
            _ = x + 1

    before = torch.cuda.graph.default_capture_stream is None
    once()
    once()
    worker = threading.Thread(target=once)
    worker.start()
    worker.join()
    return {
        "outcome": "ok",
        "none_before_first": before,
        "same_second_time": seen[0] == seen[1],
        "same_in_thread": len(set(seen)) == 1,
        "is_class_attribute": seen[0] == torch.cuda.graph.default_capture_stream.cuda_stream,
    }


def graphed_callables() -> Result:
    """make_graphed_callables: which streams does the callable see in its warm-up and in its capture?"""
    seen = []
    side = torch.cuda.Stream()

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append((torch.cuda.is_current_stream_capturing(), torch.cuda.current_stream().cuda_stream))
        return x * 2

    with torch.cuda.stream(side):
        torch.cuda.make_graphed_callables(fn, (torch.ones(4, device="cuda"),))
    warm = {s for capturing, s in seen if not capturing}
    captured = {s for capturing, s in seen if capturing}
    return {
        "outcome": "ok",
        "calls_warm": sum(not c for c, _ in seen),
        "calls_captured": sum(c for c, _ in seen),
        "warm_on_current": warm == {side.cuda_stream},
        "capture_on_warm_stream": captured <= warm,
        "capture_on_class_stream": captured == {torch.cuda.graph.default_capture_stream.cuda_stream},
    }


def side_inside() -> Result:
    """`with torch.cuda.graph(g), torch.cuda.stream(side)`: is the work in the graph?"""
    side, x = torch.cuda.Stream(), torch.ones(4, device="cuda")
    out: Result = {}
    torch.cuda.synchronize()
    g = graph()
    try:
        with torch.cuda.graph(g), torch.cuda.stream(side):
            out["capturing"] = torch.cuda.is_current_stream_capturing()
            x.add_(1)
        torch.cuda.synchronize()
        out["x_after_capture"] = x[0].item()
        g.replay()
        torch.cuda.synchronize()
        out["x_after_replay"] = x[0].item()
        out["outcome"] = "ok" if out["x_after_replay"] == out["x_after_capture"] + 1 else "not in the graph"
    except Exception as exc:
        out |= {"outcome": "capture fails", "error": h.error_text(exc)}
    return out


def joined_side_inside(join: bool) -> Result:
    """Work forked to a side stream inside the capture, joined or not."""
    side, x = torch.cuda.Stream(), torch.ones(4, device="cuda")
    torch.cuda.synchronize()

    def body() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
        if join:
            torch.cuda.current_stream().wait_stream(side)

    got = h.capture(body)
    return {"outcome": "ok" if got.ok else "capture fails"} | got.report()


# -------------------------------------------------------------------------------------- state that a library keeps per stream


class PerStreamLibrary:
    """What cuBLAS, NCCL wrappers and attention libraries do: lazily set up state for each stream that they meet."""

    def __init__(self, setup: str) -> None:
        self.setup = setup
        self.state: dict[int, torch.Tensor] = {}
        self.setups_in_capture = 0

    def workspace(self) -> torch.Tensor:
        key = torch.cuda.current_stream().cuda_stream
        if key not in self.state:
            self.setups_in_capture += torch.cuda.is_current_stream_capturing()
            self.state[key] = self.make()
        return self.state[key]

    def make(self) -> torch.Tensor:
        if self.setup == "synchronises":
            torch.cuda.synchronize()
            return torch.zeros(1024, device="cuda")
        if self.setup == "copies from the host":
            return torch.tensor([0.0] * 1024, device="cuda")
        if self.setup == "pinned memory":
            return torch.zeros(1024, pin_memory=True).to("cuda", non_blocking=True)
        if self.setup == "reads back":
            buffer = torch.zeros(1024, device="cuda")
            assert not buffer.any().item()
            return buffer
        return torch.zeros(1024, device="cuda")  # "allocates and zeroes"

    def add_running_total(self, x: torch.Tensor) -> torch.Tensor:
        """Counts calls in its workspace: state that must live on from replay to replay."""
        workspace = self.workspace()
        workspace.add_(1)
        return x + workspace[:4]


def per_stream_library(setup: str, site: str) -> Result:
    library = PerStreamLibrary(setup)
    side = torch.cuda.Stream()
    x = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(3):
            library.add_running_total(x)
        torch.cuda.synchronize()
        got = h.capture(
            lambda: library.add_running_total(x), None if site == "without stream=" else torch.cuda.current_stream()
        )
    out = {
        "outcome": "ok" if got.ok else "capture fails",
        "setups_in_capture": library.setups_in_capture,
    } | got.report()
    if got.ok:
        totals = []
        for _ in range(3):
            h.replay(got.graph)
            totals.append(got.value[0].item())
        out["totals"] = totals
        if totals != [4.0, 5.0, 6.0]:
            out["outcome"] = "replay wrong"
    return out


def private_pool_bytes() -> int:
    return sum(s["total_size"] for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) != (0, 0))


def cublas_workspace(site: str, graphs: int) -> Result:
    """Warm a product on a side stream, capture it: does cuBLAS take a new workspace for the capture stream, in the graph's pool?"""
    side = torch.cuda.Stream()
    x = torch.randn(512, 512, device="cuda", dtype=torch.float16)
    torch.cuda.synchronize()
    kept = []
    with torch.cuda.stream(side):
        for _ in range(3):
            x @ x
        torch.cuda.synchronize()
        before = private_pool_bytes(), torch.cuda.memory_reserved()
        for _ in range(graphs):
            kept.append(h.capture(lambda: x @ x, None if site == "without stream=" else torch.cuda.current_stream()))
        after = private_pool_bytes(), torch.cuda.memory_reserved()
    ok = all(k.ok for k in kept)
    out = {
        "outcome": "ok" if ok else "capture fails",
        "graphs": graphs,
        "private_pool_mib": (after[0] - before[0]) / 2**20,
        "reserved_mib": (after[1] - before[1]) / 2**20,
    } | kept[0].report()
    if ok:
        h.replay(kept[0].graph)
        out["max_difference"] = float((kept[0].value - x @ x).abs().max())
    return out


def warm_up_elsewhere(what: str, site: str) -> Result:
    """Things of PyTorch's own, warmed on a side stream and captured on another."""
    side = torch.cuda.Stream()
    x = torch.randn(64, 64, device="cuda")
    torch.cuda.synchronize()
    runs: dict[str, Callable[[], Any]] = {
        "nothing warmed: product": lambda: x @ x,
        "solve": lambda: torch.linalg.solve_ex(x, x)[0],
        "fft": lambda: torch.fft.fft(x).abs(),
        "convolution": lambda: torch.nn.functional.conv2d(x[None, None], torch.ones(1, 1, 3, 3, device=x.device)),
        "sdpa": lambda: torch.nn.functional.scaled_dot_product_attention(*[x.half().reshape(1, 4, 16, 64)] * 3),
        "rand": lambda: torch.rand_like(x),
        "sort": lambda: x.sort()[0],
    }
    run = runs[what]
    with torch.cuda.stream(side):
        for _ in range(0 if what.startswith("nothing") else 3):
            run()
        torch.cuda.synchronize()
        got = h.capture(run, None if site == "without stream=" else torch.cuda.current_stream())
    return {"outcome": "ok" if got.ok else "capture fails"} | got.report()


def cases():
    out: dict[str, Callable[[], Result]] = {
        "signature": signature,
        "one capture stream for the class": shared_capture_stream,
        "make_graphed_callables": graphed_callables,
        "graph(g), stream(side) inside": side_inside,
    }
    for way, enter in WAYS.items():
        for around in ("default", "side", "other side"):
            out[f"{way} | current: {around}"] = functools.partial(observe, enter, around)
    for join in (True, False):
        out[f"fork to a side stream inside, {'joined' if join else 'not joined'}"] = functools.partial(
            joined_side_inside, join
        )
    for setup in ("synchronises", "copies from the host", "pinned memory", "reads back", "allocates and zeroes"):
        for site in ("without stream=", "stream=current_stream()"):
            out[f"per-stream library that {setup} | {site}"] = functools.partial(per_stream_library, setup, site)
    for site in ("without stream=", "stream=current_stream()"):
        for graphs in (1, 3):
            out[f"cuBLAS workspace, {graphs} graphs | {site}"] = functools.partial(cublas_workspace, site, graphs)
        for what in ("nothing warmed: product", "solve", "fft", "convolution", "sdpa", "rand", "sort"):
            out[f"warmed on the side: {what} | {site}"] = functools.partial(warm_up_elsewhere, what, site)
    return out


main(globals())
