"""What code can ask about its region, and what it is told: is_compiling, is_current_stream_capturing and their kin.

Inside compiled code a question is answered while tracing and the answer is baked in, so each predicate is asked by a branch:
the output is x + 1 where it was true and x + 2 where it was false. Also here: what compiled code does with a tensor's truth
value and with reads, traced, and then captured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

import _harness as h
from _harness import DEVICE, DRY, Result, main

TITLE = "predicates about compiling and capturing, and data-dependent code in compiled regions"
FRESH_PROCESS = True

PREDICATES: dict[str, Callable[[], bool]] = {
    "torch.cuda.is_current_stream_capturing": lambda: torch.cuda.is_current_stream_capturing(),
    "torch.compiler.is_compiling": lambda: torch.compiler.is_compiling(),
    "torch.compiler.is_dynamo_compiling": lambda: torch.compiler.is_dynamo_compiling(),
    "torch.compiler.is_exporting": lambda: torch.compiler.is_exporting(),
    "torch._dynamo.is_compiling": lambda: torch._dynamo.is_compiling(),
    "torch._utils.is_compiling": lambda: torch._utils.is_compiling(),
    "torch.jit.is_scripting": lambda: torch.jit.is_scripting(),
    "torch.jit.is_tracing": lambda: torch.jit.is_tracing(),
    "torch.cuda.is_available": lambda: torch.cuda.is_available(),
    "torch.cuda.is_initialized": lambda: torch.cuda.is_initialized(),
    "torch._C._cuda_isCurrentStreamCapturing": lambda: torch._C._cuda_isCurrentStreamCapturing(),
}


def say(value: Any) -> str:
    return {1.0: "True", 2.0: "False"}.get(float(value), str(value))


def ask(predicate: Callable[[], bool], region: str) -> Result:
    """Ask in `region`; `answers` are those seen, in order of the calls."""
    answers: list[str] = []
    out: Result = {}

    def branch(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if predicate() else x + 2

    def note(x: torch.Tensor) -> torch.Tensor:
        answers.append(str(bool(predicate())))
        return x + 1

    x = torch.zeros(4, device=DEVICE)
    h.sync()
    if region == "eager":
        answers.append(say(branch(x)[0]))
    elif region == "plain capture":
        got = h.capture(lambda: branch(x))
        out |= got.report()
        if got.ok:
            h.replay(got.graph)
            answers.append(say(got.value[0]))
    elif region.startswith("compiled"):
        options = (
            {"fullgraph": True}
            if "fullgraph" in region
            else {"mode": "reduce-overhead"}
            if "reduce-overhead" in region
            else {}
        )
        if "backend eager" in region:
            options = {"backend": "eager"}
        fn = torch.compile(branch, **options)
        try:
            for _ in range(4):
                answers.append(say(fn(x)[0]))
        except torch._dynamo.exc.Unsupported as exc:
            return {"outcome": "does not compile", "error": h.error_text(exc)}
        if "then captured" in region:
            before = len(h.compiled_frames())
            with h.side_stream() as stream:
                fn(x)
                got = h.capture(lambda: fn(x), stream)
            out |= got.report()
            out["frames_during_capture"] = h.compiled_frames()[before:]
            if got.ok:
                h.replay(got.graph)
                out["answer_in_capture"] = say(got.value[0])
    elif region.startswith("custom op"):
        library = torch.library.Library("cgsafe_probe", "FRAGMENT")
        fake: list[str] = []

        def fake_impl(x: torch.Tensor) -> torch.Tensor:
            fake.append(str(bool(predicate())))
            return torch.empty_like(x)

        library.define("note(Tensor x) -> Tensor")
        library.impl("note", note, "CPU" if DRY else "CUDA")
        library._register_fake("note", fake_impl)
        op = torch.ops.cgsafe_probe.note
        mode = "reduce-overhead" if "reduce-overhead" in region else None
        fn = torch.compile(lambda x: op(x * 2) + 1, fullgraph=True, mode=mode)
        with torch.no_grad():
            for _ in range(4):
                fn(x)
        if "then captured" in region:
            with h.side_stream() as stream, torch.no_grad():
                got = h.capture(lambda: fn(x), stream)
            out |= got.report()
        out["in_register_fake"] = sorted(set(fake))
    elif region == "disabled function below compiled code":
        hidden = torch.compiler.disable(note)
        fn = torch.compile(lambda x: hidden(x * 2) + 1)
        with h.side_stream() as stream:
            fn(x), fn(x)
            out |= h.capture(lambda: fn(x), stream).report()
    elif region == "after a graph break":

        def broken(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            torch._dynamo.graph_break()
            return branch(y)

        fn = torch.compile(broken)
        answers += [say(fn(x)[0]), say(fn(x)[0])]
    elif region == "torch.export":
        exported = torch.export.export(Wrap(branch), (x,))
        answers.append(say(exported.module()(x)[0]))
    elif region == "torch.jit.trace":
        answers.append(say(torch.jit.trace(branch, (x,), check_trace=False)(x)[0]))
    elif region == "make_graphed_callables":
        fn = torch.cuda.make_graphed_callables(branch, (x,))
        h.sync()
        answers.append(say(fn(x)[0]))
    elif region == "make_fx":
        from torch.fx.experimental.proxy_tensor import make_fx

        answers.append(say(make_fx(branch)(x)(x)[0]))
    elif region == "autograd backward in capture":

        class Ask(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                answers.append(str(bool(predicate())))
                return grad

        leaf = torch.zeros(4, device=DEVICE, requires_grad=True)
        with h.side_stream() as stream:
            torch.autograd.grad(Ask.apply(leaf).sum(), leaf)
            out |= h.capture(lambda: torch.autograd.grad(Ask.apply(leaf).sum(), leaf), stream).report()
    out |= {"answers": answers, "graph_breaks": h.graph_breaks(), "frames": h.compiled_frames()}
    out["outcome"] = "ok" if out.get("capture", "ok") == "ok" else "capture fails"
    return out


class Wrap(torch.nn.Module):
    def __init__(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fn(x)


REGIONS = (
    "eager",
    "plain capture",
    "compiled default, then captured",
    "compiled fullgraph, then captured",
    "compiled backend eager",
    "compiled reduce-overhead",
    "custom op, default, then captured",
    "custom op, reduce-overhead",
    "disabled function below compiled code",
    "after a graph break",
    "torch.export",
    "torch.jit.trace",
    "make_graphed_callables",
    "make_fx",
    "autograd backward in capture",
)


# ------------------------------------------------------------------------------ data-dependent code in compiled, captured code

BODIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "if tensor": lambda x: x + 1 if x.sum() > 0 else x + 2,
    "item, kept": lambda x: x + x.sum().item(),
    "item in if": lambda x: x + 1 if x.sum().item() > 0 else x + 2,
    "int of tensor": lambda x: x[: int(x.sum() * 0 + 2)] + 1,
    "tolist": lambda x: x + x.tolist()[0],
    "cpu": lambda x: x + x.sum().cpu(),
    "cpu, handed out": lambda x: x.cpu(),
    "numpy": lambda x: x + float(x.cpu().numpy().sum()),
    "f-string dropped": lambda x: (f"{x.sum()}", x + 1)[1],
    "assert": lambda x: x + 1 if _assert(x.sum() == x.sum()) else x,
    "torch.equal": lambda x: x + 1 if torch.equal(x, x * 1) else x + 2,
    "nonzero": lambda x: torch.nonzero(x + 1).sum() + x,
    "boolean mask": lambda x: x[x > -1].sum() + x,
    "torch.tensor on device": lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
    "torch.tensor 0-dim on device": lambda x: x + torch.tensor(1.0, device=x.device),
    "cpu scalar tensor": lambda x: x + torch.tensor(1.0),
    "list index": lambda x: x[[0, 2]].sum() + x,
    "arange on cpu, moved": lambda x: x + torch.arange(4).to(x.device),
    "synchronize": lambda x: (torch.cuda.synchronize(), x + 1)[1],
    "max of two tensors": lambda x: x + max(x.sum(), x.min()),
    "print": lambda x: (print(x.sum()), x + 1)[1],
}


def _assert(t: torch.Tensor) -> bool:
    assert t
    return True


def data_dependent(name: str, options: dict[str, Any], scalar_outputs: bool = False) -> Result:
    if scalar_outputs:
        torch._dynamo.config.capture_scalar_outputs = True
    body = BODIES[name]
    fn = torch.compile(body, **options)
    x = torch.ones(4, device=DEVICE)
    out: Result = {}
    with torch.no_grad(), h.side_stream() as stream:
        try:
            for _ in range(3):
                fn(x)
        except Exception as exc:
            return {"outcome": "does not compile", "error": h.error_text(exc), "graph_breaks": h.graph_breaks()}
        h.sync()
        before = len(h.compiled_frames())
        got = h.capture(lambda: fn(x), stream)
    out |= got.report()
    out |= {
        "frames": h.compiled_frames()[:before],
        "frames_during_capture": h.compiled_frames()[before:],
        "graph_breaks": h.graph_breaks(),
    }
    out["outcome"] = "ok" if got.ok else "capture fails"
    if got.ok and not DRY:
        x.fill_(3)
        h.replay(got.graph)
        with torch.no_grad():
            want = body(x)
        same = got.value.shape == want.shape and bool((got.value.float() - want.float()).abs().max() < 1e-4)
        out["outcome"] = "ok" if same else "replay wrong"
    return out


def cases():
    out: dict[str, Callable[[], Result]] = {}
    for name in BODIES:
        out[f"compiled, captured: {name} | default"] = functools.partial(data_dependent, name, {})
        out[f"compiled, captured: {name} | fullgraph"] = functools.partial(data_dependent, name, {"fullgraph": True})
    for name in ("item, kept", "item in if", "int of tensor"):
        out[f"compiled, captured: {name} | fullgraph, capture_scalar_outputs"] = functools.partial(
            data_dependent, name, {"fullgraph": True}, True
        )
    main_two = ("torch.cuda.is_current_stream_capturing", "torch.compiler.is_compiling")
    for region in REGIONS:
        for name in PREDICATES:
            if name in main_two or region in (
                "plain capture",
                "eager",
                "compiled default, then captured",
                "custom op, default, then captured",
            ):
                out[f"{name} | {region}"] = functools.partial(ask, PREDICATES[name], region)
    return out


main(globals())
