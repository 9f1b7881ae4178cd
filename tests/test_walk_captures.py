"""Where captured code starts: explicit captures, compiled functions that record graphs, and the forward of modules."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

PROGRAMS = {
    "with graph": """
        def capture(x: torch.Tensor, stream):
            graph = torch.cuda.CUDAGraph()
            x.item()
            with torch.cuda.graph(graph, stream=stream):
                y = x * 2
                y.item()  # expect: CG102
            y.item()
        """,
    "with graph, at module level": """
        x = torch.zeros(3, device="cuda")
        s = torch.cuda.Stream()
        g = torch.cuda.CUDAGraph()
        x.item()
        with torch.cuda.graph(g, stream=s):
            y = x * 2
            if y.sum() > 0:  # expect: CG101
                y = -y
        y.item()
        """,
    "with graph, under main": """
        def run(t):
            return t.item()  # expect: CG102

        if __name__ == "__main__":
            x = torch.zeros(3, device="cuda")
            s = torch.cuda.Stream()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g, stream=s):
                run(x.sum())
        """,
    "what a capture calls": """
        def step(t):
            return t * t.max().item()  # expect: CG102

        def capture(x: torch.Tensor, stream):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                return step(x)
        """,
    "what only the host calls": """
        def step(t):
            return t * t.max().item()

        def capture(x: torch.Tensor, stream):
            step(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                y = x * 2
            return step(y)
        """,
    "capture of a function that is passed in": """
        def record(f, x: torch.Tensor, stream):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                f(x)
            return graph

        def step(t):
            return t * t.max().item()  # expect: CG102

        def main(stream):
            record(step, torch.zeros(3, device="cuda"), stream)
        """,
    "capture of a method": """
        class Runner:
            def __init__(self, model):
                self.model = model
                self.x = torch.zeros(3, device="cuda")
                self.stream = torch.cuda.Stream()

            def step(self):
                return self.x * self.x.max().item()  # expect: CG102

            def capture(self):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.stream):
                    return self.step()
        """,
    "capture in a helper's context manager": """
        from contextlib import contextmanager

        @contextmanager
        def recording(graph, stream):
            with torch.cuda.graph(graph, stream=stream):
                yield

        def capture(x: torch.Tensor, stream):
            with recording(torch.cuda.CUDAGraph(), stream):
                x.sum().item()  # expect: CG102
            x.sum().item()
        """,
    "capture by an ExitStack": """
        from contextlib import ExitStack

        def capture(x: torch.Tensor, stream):
            with ExitStack() as stack:
                x.sum().item()
                stack.enter_context(torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream))
                x.sum().item()  # expect: CG102
            x.sum().item()
        """,
    "capture by a class of one's own": """
        class Recording:
            def __init__(self, graph, stream):
                self.context = torch.cuda.graph(graph, stream=stream)

            def __enter__(self):
                self.context.__enter__()
                return self

            def __exit__(self, *error):
                self.context.__exit__(*error)

        def capture(x: torch.Tensor, stream):
            with Recording(torch.cuda.CUDAGraph(), stream):
                x.sum().item()  # expect: CG102
            x.sum().item()
        """,
    "capture_begin and capture_end": """
        def capture(x: torch.Tensor, stream):
            graph = torch.cuda.CUDAGraph()
            x.item()
            with torch.cuda.stream(stream):
                graph.capture_begin()
                x.sum().item()  # expect: CG102
                graph.capture_end()
                x.item()
            x.item()
        """,
    "capture_begin in try and finally": """
        def capture(x: torch.Tensor, stream):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=None)
                try:
                    x.sum().item()  # expect: CG102
                finally:
                    graph.capture_end()
            x.item()
        """,
    "capture_begin on an attribute": """
        class Runner:
            def __init__(self):
                self.graph = torch.cuda.CUDAGraph()

            def capture(self, x: torch.Tensor):
                self.graph.capture_begin()
                x.sum().item()  # expect: CG102
                self.graph.capture_end()
                return x.item()
        """,
    "make_graphed_callables of a function": """
        def step(x: torch.Tensor):
            return x * x.max().item()  # expect: CG102

        def main():
            x = torch.zeros(3, device="cuda")
            return torch.cuda.make_graphed_callables(step, (x,))
        """,
    "make_graphed_callables of several": """
        def one(x: torch.Tensor):
            return x * x.max().item()  # expect: CG102

        def two(x: torch.Tensor):
            return x if x.sum() > 0 else -x  # expect: CG101

        def main():
            x = torch.zeros(3, device="cuda")
            return torch.cuda.make_graphed_callables((one, two), ((x,), (x,)))
        """,
    "compile with reduce-overhead": """
        @torch.compile(mode="reduce-overhead")
        def step(x: torch.Tensor):
            return x if x.sum() > 0 else -x  # expect: CG101
        """,
    "compile with max-autotune": """
        def step(x: torch.Tensor):
            return x.sum().item()  # expect: CG102

        fast = torch.compile(step, mode="max-autotune")
        """,
    "compile of a module with reduce-overhead": """
        class Net(nn.Module):
            def forward(self, x: torch.Tensor):
                return x * x.max().item()  # expect: CG102

        def main():
            return torch.compile(Net(), mode="reduce-overhead")
        """,
    "compile without graphs": """
        @torch.compile
        def step(x: torch.Tensor):
            return x if x.sum() > 0 else -x

        @torch.compile(mode="max-autotune-no-cudagraphs")
        def other(x: torch.Tensor):
            return x.sum().item()
        """,
    "a forward counts as captured": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return x.sum().item()  # expect: CG102
        """,
    "only the forward does": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return x

            def generate(self, x: torch.Tensor):
                return x.sum().item()

            def extra_repr(self):
                return str(torch.zeros(3, device="cuda"))
        """,
    "a constructor does not": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                rates = torch.linspace(0, 1, 4, device="cuda")
                self.rates = [r.item() for r in rates]

            def forward(self, x: torch.Tensor):
                return x * self.rates[0]
        """,
    "a class with a forward that is no module": """
        class Plan:
            def forward(self, x: torch.Tensor):
                return x.sum().item()
        """,
    "a module by its base in another package": """
        from transformers import PreTrainedModel

        class M(PreTrainedModel):
            def forward(self, input_ids):
                return input_ids.max().item()  # expect: CG102
        """,
    "ordinary functions are the host's": """
        def evaluate(model, x: torch.Tensor):
            logits = model(x)
            return logits.argmax().item()
        """,
    "an eager break below a forward": """
        @torch.compiler.disable
        def step(t):
            return t.item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return step(x.sum())
        """,
    "an empty capture body": """
        def capture(stream):
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                pass
        """,
    "two captures in one function": """
        def capture(x: torch.Tensor, stream):
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                x.sum().item()  # expect: CG102
            x.sum().item()
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                x.max().item()  # expect: CG102
        """,
    "capture in a nested function": """
        def outer(x: torch.Tensor, stream):
            def capture():
                with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                    return x.sum().item()  # expect: CG102

            return capture()
        """,
    "capture with values made before": """
        def capture(stream):
            size = torch.zeros(3).max().item()
            static = torch.zeros(3, device="cuda")
            host = torch.zeros(3)
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                if size > 3 or host[0] > 1:
                    static += 1
                if static[0] > 1:  # expect: CG101
                    static += 2
        """,
}


GAPS: dict[str, str] = {}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_captures(check, program):
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})


ROOTS = {
    "graph-context": "with graph",
    "capture-begin": "capture_begin and capture_end",
    "compile": "compile with reduce-overhead",
    "module-forward": "a forward counts as captured",
}


@pytest.mark.parametrize(("kind", "name"), ROOTS.items())
def test_a_root_says_why_it_is_one(check, kind, name):
    report = verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(PROGRAMS[name])})
    (finding,) = report.findings
    assert finding.root.kind == kind
    assert finding.root.reason
    assert finding.confidence.label == ("medium" if kind == "module-forward" else "high")


# -- capture sites: CG401 ----------------------------------------------------------------------------------------------

SITES = {
    "plain": "with torch.cuda.graph(g):  # expect: CG401",
    "pool by keyword": "with torch.cuda.graph(g, pool=p):  # expect: CG401",
    "pool by position": "with torch.cuda.graph(g, p):  # expect: CG401",
    "None as stream": "with torch.cuda.graph(g, p, None):  # expect: CG401",
    "error mode": "with torch.cuda.graph(g, capture_error_mode='global'):  # expect: CG401",
    "graphs.graph": "with torch.cuda.graphs.graph(g):  # expect: CG401",
    "known keywords": "o = dict(pool=p)\n    with torch.cuda.graph(g, **o):  # expect: CG401",
    "known positions": "o = (g, p)\n    with torch.cuda.graph(*o):  # expect: CG401",
    "imported": "from torch.cuda import graph\n    with graph(g):  # expect: CG401",
    "imported as": "from torch.cuda import graph as record\n    with record(g):  # expect: CG401",
    "imported from graphs": "from torch.cuda.graphs import graph\n    with graph(g):  # expect: CG401",
    "module as": "import torch.cuda as cu\n    with cu.graph(g):  # expect: CG401",
    "kept in a variable": "make = torch.cuda.graph\n    with make(g):  # expect: CG401",
    "partial": "from functools import partial\n    make = partial(torch.cuda.graph, pool=p)\n"
    "    with make(g):  # expect: CG401",
    "several items": "with torch.no_grad(), torch.cuda.graph(g):  # expect: CG401",
    "inside with stream": "with torch.cuda.stream(s), torch.cuda.graph(g):  # expect: CG401",
    "stream by keyword": "with torch.cuda.graph(g, stream=s):",
    "stream by position": "with torch.cuda.graph(g, p, s):",
    "stream in a known dict": "o = dict(stream=s)\n    with torch.cuda.graph(g, **o):",
    "stream in known positions": "o = (g, p, s)\n    with torch.cuda.graph(*o):",
    "unknown keywords": "with torch.cuda.graph(g, **options):",
    "unknown positions": "with torch.cuda.graph(*options):",
    "current stream": "with torch.cuda.graph(g, stream=torch.cuda.current_stream()):",
    "stream in a partial": "from functools import partial\n    make = partial(torch.cuda.graph, stream=s)\n"
    "    with make(g):",
    "another graph": "from other import graph\n    with graph(g):",
    "a method named graph": "with options.graph(g):",
    "in a string": "text = 'with torch.cuda.graph(g):'\n    if text:",
}


@pytest.mark.parametrize("site", cases(SITES))
def test_capture_sites(check, site):
    verify(check, {"run.py": f"import torch\n\n\ndef run(g, p, s, options):\n    {site}\n        pass\n"})


@pytest.mark.parametrize("kind", ["method", "module level", "nested function", "class body of a module", "async"])
def test_capture_sites_wherever_they_stand(check, kind):
    program = {
        "method": "class R:\n    def run(self):\n        with torch.cuda.graph(self.g):  # expect: CG401\n            pass",
        "module level": "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):  # expect: CG401\n    pass",
        "nested function": "def a(g):\n    def b():\n        with torch.cuda.graph(g):  # expect: CG401\n"
        "            pass\n    b()",
        "class body of a module": "class M(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x\n    def capture(self, g):\n        with torch.cuda.graph(g):  # expect: CG401\n"
        "            self(1)",
        "async": "async def run(g):\n    with torch.cuda.graph(g):  # expect: CG401\n        pass",
    }[kind]
    verify(check, {"run.py": f"import torch\n\n{program}\n"})


def test_the_advice_names_the_stream_of_the_warm_up(check):
    program = """
        import torch

        def run(step, x):
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                step(x)
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):  # expect: CG401
                step(x)
        """
    report = verify(check, {"run.py": program})
    assert "stream=side" in report.findings[0].fix.description
    assert report.findings[0].severity.value == "warning"


def test_the_advice_is_the_projects_own_way(check):
    files = {
        "vllm/__init__.py": "",
        "vllm/run.py": "import torch\n\n\ndef run(g):\n    with torch.cuda.graph(g):  # expect: CG401\n        pass\n",
    }
    report = verify(check, files)
    assert "current_stream()" in report.findings[0].fix.description
    assert "vllm.utils.torch_utils" in report.findings[0].fix.description


# -- nested compile: CG301 ---------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("program", cases(NESTED))
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


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled model"])
@pytest.mark.parametrize("program", cases(OPS))
def test_behind_a_custom_operator(check, program, compiled):
    """An operator's function runs as it is, whatever compiles the code around its call."""
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
