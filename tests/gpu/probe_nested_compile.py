"""Compiled functions reached from captured or compiled code: inlined, compiled before, or compiled during the capture?

Case names read `GROUP | arrangement | inner mode | warm-up`. The groups:

    1  called straight from code that an outer torch.compile traces
    2  called inside a custom op that outer compiled code calls
    3  plain capture, no outer compile
    4  a decorated method of a layer, straight and behind an op that finds the layer by name (the shape of vLLM's GDN bug)
    5  torch.compile(...) called inside forward
    6  torch.compiler.disable and torch.jit.script
    7  flex_attention
    8  Triton kernels without torch.compile

Each case makes one eager product (so that cuBLAS is set up in any case), warms up on the capture stream (where it does),
captures, replays twice with other numbers and compares with eager.
`max_mm_configs` is lowered so that max-autotune still tunes, but over few candidates.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

import _harness as h
from _harness import DEVICE, DRY, Result, main

TITLE = "compiled functions under torch.cuda.graph and under an outer torch.compile"
FRESH_PROCESS = True

MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "fullgraph": {"fullgraph": True},
    "max-autotune": {"mode": "max-autotune"},
    "max-autotune-no-cudagraphs": {"mode": "max-autotune-no-cudagraphs"},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "dynamic": {"dynamic": True},
}
WIDTH = 256
DTYPE = torch.float32 if DRY else torch.float16


# ------------------------------------------------------------------------------------------------------------- the code


@functools.cache
def weight() -> torch.Tensor:
    return torch.randn(WIDTH, WIDTH, device=DEVICE, dtype=DTYPE, generator=torch.Generator(DEVICE).manual_seed(1)) / 16


def numbers(rows: int = 16, seed: int = 0, dtype: torch.dtype = DTYPE) -> torch.Tensor:
    return torch.randn(rows, WIDTH, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed)).to(dtype)


def inner_function(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    """A product (max-autotune tunes it), a reduction and pointwise work."""
    y = torch.softmax(x @ w, -1)
    if scale is not None:
        y = y * scale
    return torch.sin(y) + x


def pointwise(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    return torch.sin(x) * 2 + x


def another_function(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x) + 1


def compiled(mode: str, fn: Callable = inner_function) -> Callable:
    with contextlib.suppress(Exception):
        import torch._inductor.config as config

        config.test_configs.max_mm_configs = 3
    kwargs = {"backend": mode.removeprefix("backend ")} if mode.startswith("backend ") else MODES[mode]
    return torch.compile(fn, **kwargs)


# ---------------------------------------------------------------------------------------------------------- measuring it


def measure(
    target: Callable[[torch.Tensor], torch.Tensor],
    reference: Callable[[torch.Tensor], torch.Tensor],
    warm: Callable[[], Any] | None,
    rows: int = 16,
    *,
    same_stream: bool = True,
    close: float = 3e-2,
) -> Result:
    """Warm up, capture target(x), replay with other numbers, compare with reference(x)."""
    out: Result = {}
    x = numbers(rows)
    with torch.no_grad(), h.side_stream() as stream:
        x @ weight()  # a cold cuBLAS handle fails a capture by itself: see probe_streams
        try:
            if warm is not None:
                warm()
            h.sync()
        except Exception as exc:
            return {"outcome": "warm-up fails", "error": h.error_text(exc), "frames_warm": h.compiled_frames()}
        before = h.compiled_frames()
        out["frames_warm"] = before
        out["unique_graphs_warm"] = h.unique_graphs()
        got = h.capture(lambda: target(x), stream if same_stream else None)
        out["frames_during_capture"] = h.compiled_frames()[len(before) :]
        out["compiled_during_capture"] = any(name != "?" for name in out["frames_during_capture"])
    out |= got.report()
    out["unique_graphs"] = h.unique_graphs()
    out["graph_breaks"] = h.graph_breaks()
    out["cudagraph_trees"] = h.cudagraph_trees_in_use()
    out["inductor"] = h.inductor_counts()
    out["outcome"] = "ok" if got.ok else "capture fails"
    if got.ok:
        try:
            with torch.no_grad():
                differ = []
                for seed in (5, 6):
                    x.copy_(numbers(rows, seed))
                    h.replay(got.graph)
                    want = reference(x)
                    value = target(x) if DRY else got.value
                    differ.append(float((value.float() - want.float()).abs().max()))
            out["max_difference_to_eager"] = differ
            if not max(differ) < close:
                out["outcome"] = "replay wrong"
        except Exception as exc:
            out |= {"outcome": "replay fails", "replay_error": h.error_text(exc)}
    return out


def repeat(fn: Callable[[], Any], times: int = 3) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            fn()

    return run


def with_hot_disk_cache(case: str, run: Callable[[], Result]) -> Result:
    """First fill this case's compile caches by another process that runs `case`; then `run` here."""
    subprocess.run(
        [sys.executable, __file__, "--case", case], env=os.environ, capture_output=True, timeout=h.CASE_TIMEOUT_S
    )
    return run()


# ---------------------------------------------------------------------------------------- 1: straight from compiled code


def straight(outer_mode: str, mode: str, form: str = "function", outer_off: bool = False) -> Result:
    w = weight()
    if form == "function":
        inner = compiled(mode)
    else:

        class Inner(torch.nn.Module):
            def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
                return inner_function(x, w)

        inner = Inner()
        if form == "Module.compile()":
            inner.compile(**MODES[mode])
        else:
            inner = torch.compile(inner, **MODES[mode])

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x * 2, w) + 1

    compiled_outer = torch.compile(outer, **MODES[outer_mode])
    x = numbers()
    return measure(
        outer if outer_off else compiled_outer,
        lambda x: inner_function(x * 2, w) + 1,
        repeat(lambda: compiled_outer(x)),
    )


def own_graphs(mode: str) -> Result:
    """The outer is reduce-overhead and nobody captures it: does Inductor's own CUDA graph take the inner along?"""
    w, inner = weight(), compiled(mode)

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x * 2, w) + 1

    run = torch.compile(outer, mode="reduce-overhead")
    differ = []
    with torch.no_grad():
        for seed in range(6):
            x = numbers(seed=seed)
            torch.compiler.cudagraph_mark_step_begin()
            differ.append(float((run(x).float() - (inner_function(x * 2, w) + 1).float()).abs().max()))
    return {
        "outcome": "ok" if max(differ) < 3e-2 else "replay wrong",
        "frames": h.compiled_frames(),
        "max_difference_to_eager": differ,
        "cudagraph_trees": h.cudagraph_trees_in_use(),
        "inductor": h.inductor_counts(),
        "graph_breaks": h.graph_breaks(),
    }


# ------------------------------------------------------------------------------------------------- 2: inside a custom op

STATE: dict[str, Any] = {"dummy": False, "inner": None, "layers": {}}


def op_body(x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    if STATE["dummy"]:  # as engines do while profiling: no metadata, no work
        return torch.zeros_like(x)
    return STATE["inner"](x, weight(), scale)


def register(kind: str) -> Callable:
    if kind == "torch.library.custom_op":
        op = torch.library.custom_op("cgsafe_probe::layer", op_body, mutates_args=())
        op.register_fake(lambda x, scale=None: torch.empty_like(x))
        return op
    library = torch.library.Library("cgsafe_probe", "FRAGMENT")
    STATE["library"] = library
    library.define("layer(Tensor x, Tensor? scale=None) -> Tensor")
    library.impl("layer", op_body, "CPU" if DRY else "CUDA")
    library._register_fake("layer", lambda x, scale=None: torch.empty_like(x))
    return torch.ops.cgsafe_probe.layer


def behind_op(kind: str, mode: str, warmed: str) -> Result:
    op = register(kind)
    STATE["inner"] = compiled(mode)
    scale = torch.full((1,), 2.0, device=DEVICE, dtype=DTYPE)

    @torch.compile(fullgraph=True)
    def outer(x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        return op(x * 2, scale) + 1

    def call(rows: int, dummy: bool, scale: torch.Tensor | None = None) -> None:
        STATE["dummy"] = dummy
        outer(numbers(rows), scale)
        STATE["dummy"] = False

    def warm() -> None:
        for _ in range(3):
            call(16, dummy=True)  # the outer code is compiled in any case
        for _ in range(3):
            if warmed == "same shape":
                call(16, dummy=False)
            elif warmed == "another shape":
                call(24, dummy=False)
            elif warmed == "two other shapes":
                call(24, dummy=False), call(40, dummy=False)
            elif warmed == "other optional argument":
                call(16, False, scale)
            elif warmed == "another compiled function":
                torch.compile(another_function)(numbers())
        call(16, dummy=True)

    return measure(outer, lambda x: inner_function(x * 2, weight()) + 1, warm)


# ------------------------------------------------------------------------------------------------------ 3: plain capture


def plain(mode: str, warmed: str, body: Callable = inner_function) -> Result:
    w, inner = weight(), compiled(mode, body)
    scale = torch.full((1,), 2.0, device=DEVICE, dtype=DTYPE)
    x = numbers()
    float_w = w.to(torch.bfloat16)
    same_stream = True
    warm: Callable[[], Any] | None = None
    if warmed == "same shape":
        warm = repeat(lambda: inner(x, w))
    elif warmed == "same shape, one call":
        warm = lambda: inner(x, w)  # noqa: E731
    elif warmed == "same shape, captured without stream=":
        warm, same_stream = repeat(lambda: inner(x, w)), False
    elif warmed == "another shape":
        warm = repeat(lambda: inner(numbers(24), w))
    elif warmed == "two other shapes":
        warm = repeat(lambda: (inner(numbers(24), w), inner(numbers(40), w)))
    elif warmed == "another dtype":
        warm = repeat(lambda: inner(numbers(16, 0, torch.bfloat16), float_w))
    elif warmed == "other optional argument":
        warm = repeat(lambda: inner(x, w, scale))
    elif warmed == "another compiled function":
        warm = repeat(lambda: torch.compile(another_function)(x))
    elif warmed == "same shape, with grad mode on":

        def warm() -> None:
            with torch.enable_grad():
                repeat(lambda: inner(x, w))()

    return measure(lambda x: inner(x, w), lambda x: body(x, w), warm, same_stream=same_stream)


# -------------------------------------------------------------------------------------------------------- 4: GDN's shape


class Layer(torch.nn.Module):
    """A layer whose helper method is compiled by decorator."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.w = torch.nn.Parameter(weight().clone())
        STATE["layers"][name] = self

    @torch.compile(fullgraph=True)
    def rearrange(self, qkv: torch.Tensor | None) -> torch.Tensor | None:
        if qkv is None:
            return None
        q, k = torch.split(qkv, [WIDTH // 2, WIDTH // 2], dim=-1)
        return torch.cat([k.contiguous(), q.contiguous()], -1)

    def rearrange_plain(self, qkv: torch.Tensor) -> torch.Tensor:
        q, k = torch.split(qkv, [WIDTH // 2, WIDTH // 2], dim=-1)
        return torch.cat([k.contiguous(), q.contiguous()], -1)

    def core(self, x: torch.Tensor) -> torch.Tensor:
        if STATE["dummy"]:
            return torch.zeros_like(x)
        if STATE.get("decorated", True):
            prefill = self.rearrange(STATE.get("prefill"))
            y = self.rearrange(x)
        else:
            prefill, y = None, self.rearrange_plain(x)
        return torch.relu(y @ self.w) if prefill is None else torch.relu(y @ self.w) + prefill.sum() * 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if STATE["behind_op"]:
            return torch.ops.cgsafe_probe.core_by_name(x + 1, self.name)
        return torch.relu(self.rearrange(x + 1) @ self.w)


def gdn(arrangement: str) -> Result:
    library = torch.library.Library("cgsafe_probe", "FRAGMENT")
    library.define("core_by_name(Tensor x, str name) -> Tensor")
    library.impl("core_by_name", lambda x, name: STATE["layers"][name].core(x), "CPU" if DRY else "CUDA")
    library._register_fake("core_by_name", lambda x, name: torch.empty_like(x))
    STATE["behind_op"] = "op" in arrangement
    STATE["decorated"] = "no decorator" not in arrangement
    model = torch.nn.Sequential(Layer("a"), Layer("b")).to(DEVICE)
    run = torch.compile(model, fullgraph=True) if "uncompiled outer" not in arrangement else model
    x = numbers()

    def warm() -> None:
        for _ in range(3):
            STATE["dummy"] = "dummy" in arrangement
            if "other shape" in arrangement:
                STATE["dummy"] = True
                run(x)
                STATE["dummy"] = False
                run(numbers(24))
            elif "cold" not in arrangement:
                run(x)
            STATE["dummy"] = False

    def reference(x: torch.Tensor) -> torch.Tensor:
        for layer in model:
            x = torch.relu(layer.rearrange_plain(x + 1) @ layer.w)
        return x

    return measure(run, reference, warm, close=0.2)


# -------------------------------------------------------------------------------------------- 5: compiled inside forward


def created_inside(how: str, arrangement: str) -> Result:
    w = weight()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fn = None

        def impl(self, x: torch.Tensor) -> torch.Tensor:
            return inner_function(x, w)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if how == "bound method, each call":
                return torch.compile(self.impl)(x)
            if how == "lambda, each call":
                return torch.compile(lambda a: inner_function(a, w))(x)
            if how == "nested function, each call":

                @torch.compile
                def local(a: torch.Tensor) -> torch.Tensor:
                    return inner_function(a, w)

                return local(x)
            if self.fn is None:
                self.fn = torch.compile(self.impl)
            return self.fn(x)

    model = Model()
    run = torch.compile(model) if "outer" in arrangement else model
    x = numbers()
    return measure(run, lambda x: inner_function(x, w), None if "cold" in arrangement else repeat(lambda: run(x)))


# ------------------------------------------------------------------------------------------------ 6: disable, jit.script


def disabled(outer_mode: str, form: str) -> Result:
    w = weight()

    def helper(x: torch.Tensor) -> torch.Tensor:
        if form == "reads":
            x = x * float(x.sum().item() * 0 + 1)
        return torch.softmax(x @ w, -1)

    if form == "inner compiled below it":
        hidden = torch.compiler.disable(torch.compile(helper))
    elif form == "non-recursive, inner compiled below it":
        deeper = torch.compile(helper)
        hidden = torch.compiler.disable(lambda x: deeper(x), recursive=False)
    elif form == "recursive, inner compiled below it":
        deeper = torch.compile(helper)
        hidden = torch.compiler.disable(lambda x: deeper(x))
    else:
        hidden = torch.compiler.disable(helper)

    def outer(x: torch.Tensor) -> torch.Tensor:
        return hidden(x * 2) + 1

    run = torch.compile(outer, **MODES[outer_mode])
    x = numbers()
    return measure(run, lambda x: torch.softmax((x * 2) @ w, -1) + 1, repeat(lambda: run(x)))


def jit_body(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x @ w, -1)
    return torch.sin(y) * 2 + torch.cos(y) + x


def scripted(warm_calls: int, outer: bool, traced: bool = False) -> Result:
    w, x = weight(), numbers()
    fn = torch.jit.trace(jit_body, (x, w)) if traced else torch.jit.script(jit_body)
    run = torch.compile(lambda x: fn(x, w)) if outer else (lambda x: fn(x, w))
    return measure(run, lambda x: jit_body(x, w), repeat(lambda: run(x), warm_calls))


# ------------------------------------------------------------------------------------------------------------ 7: flex


def flex(arrangement: str, warmed: str) -> Result:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(b, head, q, k):
        return q >= k

    def mask_for(n: int, compile_it: bool = False):
        return create_block_mask(causal, None, None, n, n, device=DEVICE, _compile=compile_it)

    length = 256
    attention = flex_attention if "eager" in arrangement else torch.compile(flex_attention)
    if "max-autotune" in arrangement:
        attention = torch.compile(flex_attention, mode="max-autotune-no-cudagraphs")
    masks = {n: mask_for(n) for n in (length, 2 * length)}

    def heads(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.repeat(n // 16, 1).reshape(n, 4, WIDTH // 4).transpose(0, 1).unsqueeze(0).contiguous()

    def run(x: torch.Tensor, n: int = length) -> torch.Tensor:
        q = heads(x, n)
        if "create_block_mask in capture" in arrangement:
            mask = mask_for(n, "_compile" in arrangement)
        else:
            mask = masks[n] if "mask" in arrangement else None
        return attention(q, q, q, block_mask=mask)

    def reference(x: torch.Tensor) -> torch.Tensor:
        q = heads(x, length)
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal="mask" in arrangement)

    target = torch.compile(run) if "outer" in arrangement else run
    x = numbers()
    warm = {
        "cold": None,
        "same shape": repeat(lambda: target(x)),
        "another shape": repeat(lambda: target(x, 2 * length)),
    }[warmed]
    return measure(target, reference, warm)


# ---------------------------------------------------------------------------------------------------------- 8: Triton

try:
    import triton
    import triton.language as tl

    @triton.jit
    def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

    @triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})], key=["n"])
    @triton.jit
    def tuned_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

    @triton.autotune(configs=[triton.Config({"BLOCK": 256})], key=["n"])
    @triton.jit
    def single_config_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)
except ImportError:
    pass


def triton_kernel(which: str, warmed: str) -> Result:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        n = x.numel()
        if which == "jit":
            double_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
        else:
            kernel = tuned_kernel if which == "autotune" else single_config_kernel
            kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
        return y

    warm = {
        "cold": None,
        "same shape": repeat(lambda: run(numbers())),
        "another shape": repeat(lambda: run(numbers(24))),
    }[warmed]
    return measure(run, lambda x: x * 2, warm)


# ------------------------------------------------------------------------------------------------------------ all cases


def cases():
    out: dict[str, Callable[[], Result]] = {}

    def add(name: str, fn: Callable[..., Result], *args: Any, **kwargs: Any) -> None:
        out[name] = functools.partial(fn, *args, **kwargs)

    warmings = (
        "cold",
        "same shape",
        "another shape",
        "two other shapes",
        "other optional argument",
        "another compiled function",
    )
    for warmed in (*warmings, "another dtype", "same shape, one call", "same shape, captured without stream="):
        for mode in MODES:
            add(f"3 | plain capture | {mode} | {warmed}", plain, mode, warmed)
    add(
        "3 | plain capture | default | same shape, with grad mode on", plain, "default", "same shape, with grad mode on"
    )
    for mode in ("default", "max-autotune-no-cudagraphs"):
        warm_case = f"3 | plain capture | {mode} | same shape"
        out[f"3 | plain capture | {mode} | cold, disk cache hot"] = functools.partial(
            with_hot_disk_cache, warm_case, functools.partial(plain, mode, "cold")
        )
    for mode in ("default", "backend eager", "backend aot_eager", "backend cudagraphs"):
        for warmed in ("cold", "same shape", "another shape", "another compiled function"):
            add(f"3 | plain capture, pointwise body | {mode} | {warmed}", plain, mode, warmed, pointwise)

    for warmed in warmings:
        for mode in MODES:
            add(f"2 | behind Library.impl op | {mode} | {warmed}", behind_op, "Library.impl", mode, warmed)
        for mode in ("default", "max-autotune"):
            add(f"2 | behind custom_op | {mode} | {warmed}", behind_op, "torch.library.custom_op", mode, warmed)

    for arrangement in (
        "straight, warmed",
        "straight, uncompiled outer, warmed",
        "straight, uncompiled outer, cold",
        "behind op, warmed",
        "behind op, dummy warm-up",
        "behind op, other shape",
        "behind op, no decorator, dummy warm-up",
        "behind op, uncompiled outer, cold",
    ):
        add(f"4 | {arrangement}", gdn, arrangement)

    for outer_mode in ("default", "fullgraph", "reduce-overhead"):
        for mode in MODES:
            add(f"1 | straight, outer {outer_mode} | {mode} | same shape", straight, outer_mode, mode)
    for mode in MODES:
        add(f"1 | straight, outer off in capture | {mode} | outer on", straight, "default", mode, outer_off=True)
        add(f"1 | straight, outer reduce-overhead, its own graphs | {mode}", own_graphs, mode)
    for form in ("Module.compile()", "torch.compile(module)"):
        for outer_mode in ("default", "fullgraph"):
            add(
                f"1 | straight, inner is {form}, outer {outer_mode} | default | same shape",
                straight,
                outer_mode,
                "default",
                form,
            )

    for how in (
        "bound method, each call",
        "lambda, each call",
        "nested function, each call",
        "bound method, kept on self",
    ):
        for arrangement in ("plain, cold", "plain, warmed", "outer compiled, warmed"):
            add(f"5 | {how} | {arrangement}", created_inside, how, arrangement)

    for outer_mode in ("default", "fullgraph", "reduce-overhead"):
        add(f"6 | disabled function, outer {outer_mode}", disabled, outer_mode, "clean")
    for form in (
        "reads",
        "inner compiled below it",
        "recursive, inner compiled below it",
        "non-recursive, inner compiled below it",
    ):
        add(f"6 | disabled function, {form}, outer default", disabled, "default", form)
    for calls in (0, 1, 2, 3, 5):
        add(f"6 | jit.script, {calls} warm-up calls", scripted, calls, False)
        add(f"6 | jit.trace, {calls} warm-up calls", scripted, calls, False, True)
    add("6 | jit.script under outer compile, 3 warm-up calls", scripted, 3, True)

    for arrangement in ("compiled", "compiled, mask", "eager", "eager, mask", "compiled, max-autotune, mask"):
        for warmed in ("cold", "same shape", "another shape"):
            add(f"7 | flex_attention {arrangement} | {warmed}", flex, arrangement, warmed)
    add("7 | flex_attention compiled, mask, under outer | same shape", flex, "compiled, mask, outer", "same shape")
    add("7 | flex_attention eager, mask, under outer | same shape", flex, "eager, mask, outer", "same shape")
    add(
        "7 | flex_attention compiled, mask, create_block_mask in capture | same shape",
        flex,
        "compiled, mask, create_block_mask in capture",
        "same shape",
    )
    add(
        "7 | flex_attention compiled, mask, create_block_mask in capture, _compile | same shape",
        flex,
        "compiled, mask, create_block_mask in capture, _compile",
        "same shape",
    )

    for which in ("jit", "autotune", "autotune with one config"):
        for warmed in ("cold", "same shape", "another shape"):
            add(f"8 | triton {which} | {warmed}", triton_kernel, which, warmed)
    return out


main(globals())
