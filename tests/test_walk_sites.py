"""Capture sites (CG401): `torch.cuda.graph(...)` with and without a stream, in every way of writing it."""

from __future__ import annotations

import pytest

from expectations import cases, verify

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


NO_TEXT = "sites are looked for where the text says `graph(`"
SITE_GAPS: dict[str, str] = {}


@pytest.mark.parametrize("site", cases(SITES, SITE_GAPS))
def test_capture_sites(check, site):
    verify(check, {"run.py": f"import torch\n\n\ndef run(g, p, s, options):\n    {site}\n        pass\n"})


@pytest.mark.parametrize("kind", ["method", "module level", "nested function", "class body of a module", "async"])
def test_capture_sites_wherever_they_stand(check, kind):
    program = {
        "method": "class R:\n    def run(self):\n"
        "        with torch.cuda.graph(self.g):  # expect: CG401\n            pass",
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


def test_a_method_that_captures_what_it_is_handed_is_known_by_its_callers(check):
    """What is captured is known where the method is called, whatever the method is called like."""
    report = check(
        {
            "runner.py": """
                import torch

                class Runner:
                    def __init__(self, graph, stream):
                        self.graph = graph
                        self.stream = stream

                    def _record(self, call, x: torch.Tensor):
                        with torch.cuda.graph(self.graph, stream=self.stream):
                            call(x)

                    def prepare(self, x: torch.Tensor):
                        self._record(self._reads, x)

                    def _reads(self, x):
                        return x.sum().item()
            """
        },
        select="CG102",
    )
    assert [(f.line, f.root.line) for f in report.findings] == [(16, 9)]


def test_names_that_only_end_or_begin_like_a_capture_open_none():
    from cgsafe.index.build import build

    text = """
import torch
from torch._inductor import graph_returns_tuple
def set_up(model):
    # torch.cuda.graph(graph) comes later
    if uses_cudagraph(model) and model.dump_graph():
        return torch.cuda.graph_pool_handle()
def capture(g, graph):
    with torch.cuda.graph(g):
        pass
    with graph(g):
        pass
"""
    assert build(text)["triggers"]["capture"] == (9, 11)


@pytest.mark.parametrize("kind", ["capture", "around"])
def test_every_word_that_opens_a_capture_is_looked_for(kind):
    from cgsafe.index.build import _TRIGGERS, build

    for word in _TRIGGERS[kind]:
        assert kind in build(f'"""x = {word} "y"""\n'.replace('"""', "'''"))["triggers"], word
