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
    "capture_begin at module level": """
        x = torch.zeros(3, device="cuda")
        g = torch.cuda.CUDAGraph()
        g.capture_begin()
        if x.sum() > 0:  # expect: CG101
            x = -x
        g.capture_end()
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


NO_BEGIN = "torch.cuda.CUDAGraph() is a plain object by its table, so that capture_begin and capture_end mean nothing"
NO_CALLER = "only functions whose own text holds a capture are walked, not those that call or enter them"
GAPS = {
    "capture by a class of one's own": NO_CALLER,
}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_captures(check, program):
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})


ROOTS = {
    "graph-context": "with graph, at module level",
    "capture-begin": "capture_begin at module level",
    "compile": "compile with reduce-overhead",
    "module-forward": "a forward counts as captured",
}


@pytest.mark.parametrize("kind", cases({kind: kind for kind in ROOTS}, {}))
def test_a_root_says_why_it_is_one(check, kind):
    report = verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(PROGRAMS[ROOTS[kind]])})
    (finding,) = report.findings
    assert finding.root.kind == kind
    assert finding.root.reason
    assert finding.confidence.label == ("medium" if kind == "module-forward" else "high")


BREAKS = """
    import functools
    import torch
    from torch import nn

    _GROUPS = {{}}
    _STEP = {{"rows": 4}}

    def eager_on_graph(enable):
        def decorator(inner):
            @functools.wraps(inner)
            def wrapper(*args):
                return inner(*args)
            return wrapper
        return decorator

    @eager_on_graph(True)
    def attention(x: torch.Tensor, name: str):
        return x[: _STEP["rows"]] + _GROUPS[name]

    {second}

    class Model(nn.Module):
        def forward(self, x: torch.Tensor):
            return attention(x, "a") + {call}(x, "a")
"""


@pytest.mark.parametrize(
    ("second", "call"),
    [
        ("def reduce(x: torch.Tensor, name: str): return x + _GROUPS[name]", "reduce"),
        ("def conv(x, name):  # expect: CG410\n        return x[: _STEP['rows']]", "conv"),
        ("def conv(x, name): return x[: _STEP['rows']]\n    broken = eager_on_graph(True)(conv)", "broken"),
        ("def conv(x, name): return x.sum().item()\n    broken = eager_on_graph(True)(conv)", "broken"),
        ("def conv(x, name): return x.sum().item()  # expect: CG102", "conv"),
    ],
)
def test_what_is_between_graphs_and_what_should_be(check, second, call):
    """A table asked by a name is a registry; an eager break may be called instead of written above a function."""
    verify(check, {"model.py": BREAKS.format(second=second, call=call)})
