"""Functions that are compiled on their own, below captured or compiled code (CG301)."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

NESTED = {
    "decorated function in a forward": """
        @torch.compile  # expect: CG301
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """,
    "decorated with options": """
        @torch.compile(dynamic=True, fullgraph=True)  # expect: CG301
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """,
    "decorated method": """
        class M(nn.Module):
            @torch.compile  # expect: CG301
            def inner(self, x):
                return x * 2

            def forward(self, x: torch.Tensor):
                return self.inner(x)
        """,
    "compiled at module level": """
        def inner(x):
            return x * 2

        fast = torch.compile(inner)  # expect: CG301

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return fast(x)
        """,
    "compiled and kept on self": """
        def inner(x):
            return x * 2

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fast = torch.compile(inner, dynamic=False)  # expect: CG301

            def forward(self, x: torch.Tensor):
                return self.fast(x)
        """,
    "a compiled method kept on self": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fast = torch.compile(self.inner)  # expect: CG301

            def inner(self, x):
                return x * 2

            def forward(self, x: torch.Tensor):
                return self.fast(x)
        """,
    "a compiled submodule": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.compile(nn.Linear(3, 3))  # expect: CG301

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
    "Module.compile()": """
        class Layer(nn.Module):
            def forward(self, x):
                return x * 2

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()
                self.layer.compile()  # expect: CG301

            def forward(self, x: torch.Tensor):
                return self.layer(x)
        """,
    "compiled inside the forward": """
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.compile(inner)(x)  # expect: CG301
        """,
    "by partial": """
        from functools import partial

        @partial(torch.compile, dynamic=True)  # expect: CG301
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """,
    "under a decorator of one's own": """
        def logged(f):
            def wrapper(*args):
                return f(*args)

            return wrapper

        @logged
        @torch.compile  # expect: CG301
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """,
    "behind a condition": """
        def maybe(f):
            return torch.compile(f) if torch.cuda.is_available() else f  # expect: CG301

        @maybe
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """,
    "never called from captured code": """
        @torch.compile
        def sample(x):
            return x.softmax(-1)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return x

        def step(model, x):
            return sample(model(x))
        """,
    "in an explicit capture, cold": """
        @torch.compile  # expect: CG301
        def inner(x):
            return x * 2

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                inner(x)
        """,
    "in an explicit capture, warmed": """
        @torch.compile
        def inner(x):
            return x * 2

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            with torch.cuda.stream(stream):
                inner(x)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                inner(x)
        """,
    "warmed through a helper": """
        @torch.compile
        def inner(x):
            return x * 2

        def step(x):
            return inner(x + 1)

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            for _ in range(3):
                step(x)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                step(x)
        """,
    "warmed with another optional argument": """
        @torch.compile  # expect: CG301
        def inner(x, scale=None):
            return x * 2 if scale is None else x * scale

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            inner(x, x)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                inner(x)
        """,
    "warmed, but records graphs of its own": """
        @torch.compile(mode="reduce-overhead")  # expect: CG301
        def inner(x: torch.Tensor):
            return x * 2

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            inner(x)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                inner(x)
        """,
    "backend eager compiles nothing": """
        @torch.compile(backend="eager")
        def inner(x):
            return x * 2

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                inner(x)
        """,
    "disabled below": """
        @torch.compiler.disable
        def plain(x):
            return x * 2

        @torch.jit.script
        def scripted(x: torch.Tensor):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return plain(x) + scripted(x)
        """,
    "compile switched off": """
        @torch.compile(disable=True)
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """,
}


NESTED_GAPS = {
    "Module.compile()": "`module.compile()` in place is not known",
}


@pytest.mark.parametrize("program", cases(NESTED, NESTED_GAPS))
def test_nested_compile(check, program):
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})


OPS = {
    "custom_op decorator": """
        @torch.library.custom_op("demo::run", mutates_args=())
        def run(x: torch.Tensor) -> torch.Tensor:
            return inner(x)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.ops.demo.run(x)
        """,
    "custom_op called directly": """
        from torch.library import custom_op

        @custom_op("demo::run", mutates_args=())
        def run(x: torch.Tensor) -> torch.Tensor:
            return inner(x)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return run(x)
        """,
    "direct_register_custom_op": """
        from helpers import direct_register_custom_op

        def run(x: torch.Tensor) -> torch.Tensor:
            return inner(x)

        direct_register_custom_op(op_name="run", op_func=run, mutates_args=[])

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.ops.demo.run(x)
        """,
    "direct_register_custom_op, over several lines": """
        from helpers import direct_register_custom_op

        def run(x: torch.Tensor) -> torch.Tensor:
            return inner(x)

        direct_register_custom_op(
            op_name="run",
            op_func=run,
        )

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.ops.demo.run.default(x)
        """,
    "Library.impl": """
        library = torch.library.Library("demo", "FRAGMENT")
        library.define("run(Tensor x) -> Tensor")

        def run(x: torch.Tensor) -> torch.Tensor:
            return inner(x)

        library.impl("run", run, "CUDA")

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.ops.demo.run(x)
        """,
    "torch.library.impl": """
        @torch.library.impl("demo::run", "CUDA")
        def run(x: torch.Tensor) -> torch.Tensor:
            return inner(x)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.ops.demo.run(x)
        """,
}


OP_GAPS: dict[str, str] = {}


@pytest.mark.parametrize("program", cases(OPS, OP_GAPS))
def test_behind_a_custom_operator(check, program):
    check_operator(check, program, compiled=False)


@pytest.mark.parametrize("program", cases(OPS, OP_GAPS))
def test_behind_a_custom_operator_of_a_compiled_model(check, program):
    """An operator's function runs as it is, whatever compiles the code around its call."""
    check_operator(check, program, compiled=True)


def check_operator(check, program: str, compiled: bool) -> None:
    inner = "\n\n@torch.compile  # expect: CG301\ndef inner(x):\n    return x * 2 if x.sum() > 0 else x\n"
    text = TORCH + inner + textwrap.dedent(program)
    if compiled:
        head = "\n\ndef support_torch_compile(cls):\n    return cls\n"
        text = text.replace("class M", "@support_torch_compile\nclass M").replace(TORCH, TORCH + head)
    report = check({"model.py": text})
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "expect" in row)
    findings = [f for f in report.findings if f.code == "CG301"]
    assert [(f.line, f.severity.value) for f in findings] == [(line, "error")]
    assert ("demo::run" in findings[0].message) or not compiled


def test_inside_a_compiled_model_it_is_redundant(check):
    program = """
        import torch
        from torch import nn

        def support_torch_compile(cls):
            return cls

        @torch.compile  # expect: CG301
        def inner(x):
            return x * 2

        @support_torch_compile
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """
    report = verify(check, {"model.py": program})
    (finding,) = report.findings
    assert finding.severity.value == "warning"
    assert "redundant" in finding.message
    assert finding.fix.description.startswith("Remove")
    assert finding.root.kind == "compiled-module"


def test_settings_that_decide_are_named(check):
    program = """
        import settings

        class Op(nn.Module):
            def __init__(self, enable: bool = True):
                super().__init__()
                self.method = self.compiled(self.native, enable)

            def compiled(self, function, enable):
                if not enable:
                    return function
                if settings.MODE == "none":
                    return function
                return torch.compile(function)  # expect: CG301

            def native(self, x):
                return x * 2

            def forward(self, x: torch.Tensor):
                return self.method(x)
        """
    report = verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})
    (message,) = {f.message for f in report.findings}
    assert message.endswith("whether it is compiled is decided by `not enable`, `settings.MODE == 'none'`")


def test_options_that_a_dictionary_holds_count(check):
    program = """
        OPTIONS = dict(dynamic=True, backend="inductor")

        @torch.compile(**OPTIONS)  # expect: CG301
        def inner(x):
            return x * 2

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return inner(x)
        """
    report = verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})
    assert all("at its first call with new dtypes" in f.message for f in report.findings)
