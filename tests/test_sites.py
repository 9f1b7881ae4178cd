"""Host code around captures and replays: what the rules about it report, and what they leave alone."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

SITE = ("CG403", "CG404", "CG405", "CG406", "CG407", "CG505", "CG506", "CG508", "CG509", "CG510", "CG511")

# Each program has a capture of `net(x)` in `record`, and goes on from there.
RECORD = """
def step(x):
    return x * 2


class Runner:
    def __init__(self, net: nn.Module):
        self.net, self.stream, self.graph = net, torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self.x = torch.zeros(8, 4, device="cuda")
        self.ids = torch.zeros(8, dtype=torch.int64, device="cuda")
        self.inputs = {"ids": self.ids}

    def record(self):
        with torch.cuda.stream(self.stream):
            self.net(self.x, self.inputs["ids"])
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.out = self.net(self.x, self.inputs["ids"])

"""

IN_CLASS = {
    "an item of the inputs is replaced": """
        def run(self, ids):
            self.inputs["ids"] = ids  # expect: CG505
            self.graph.replay()
        """,
    "a helper of the replay replaces an input": """
        def prepare(self, x):
            self.x = x.to("cuda")  # expect: CG505

        def run(self, x):
            self.prepare(x)
            self.graph.replay()
        """,
    "weights are loaded by assignment": """
        def reload(self, weights):
            self.net.load_state_dict(weights, assign=True)  # expect: CG505
        """,
    "parameters get other memory": """
        def reload(self, weights):
            for p, w in zip(self.net.parameters(), weights):
                p.data = w  # expect: CG505
        """,
    "the module is cast": """
        def shrink(self):
            self.net.half()  # expect: CG505
        """,
    "weights are loaded in place": """
        def reload(self, weights):
            self.net.load_state_dict(weights)
        """,
    "weights are loaded, and all is captured again": """
        def reload(self, weights):
            self.net.load_state_dict(weights, assign=True)
            self.record()
        """,
    "an input is filled": """
        def run(self, x, ids):
            self.x[: x.shape[0]].copy_(x)
            self.inputs["ids"].copy_(ids)
            self.graph.replay()
        """,
    "outputs are collected": """
        def run(self, batches):
            outs = []
            for batch in batches:
                self.x.copy_(batch)
                self.graph.replay()
                outs.append(self.out[:2])  # expect: CG506
            return outs
        """,
    "outputs are copied": """
        def run(self, batches):
            outs, store = [], torch.zeros(9, 8, 4, device="cuda")
            for n, batch in enumerate(batches):
                self.x.copy_(batch)
                self.graph.replay()
                store[n] = self.out
                outs.append(self.out.sum().clone())
            return outs, store
        """,
    "a method that returns the output is called for each batch": """
        def run(self, x):
            self.x.copy_(x)
            self.graph.replay()
            return self.out

        def all(self, batches):
            return [self.run(b) for b in batches]  # expect: CG506
        """,
    "two results of a method are compared": """
        def run(self, x):
            self.x.copy_(x)
            self.graph.replay()
            return self.out

        def difference(self, x, y):
            one = self.run(x)
            two = self.run(y)
            return one - two  # expect: CG506
        """,
    "each result is used up before the next": """
        def run(self, x):
            self.x.copy_(x)
            self.graph.replay()
            return self.out

        def total(self, batches):
            total = 0
            for b in batches:
                y = self.run(b)
                total = total + y.sum()
            return total
        """,
    "another object's attribute of the same name": """
        def run(self, other, x):
            other.x = x
            self.x.copy_(x)
            self.graph.replay()
        """,
}

ALONE = {
    "a name is bound anew in the loop of replays": """
        def run(net, batches):
            x = torch.zeros(4, device="cuda")
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                net(x)
            with torch.cuda.graph(graph, stream=stream):
                out = net(x)
            for batch in batches:
                x = batch.to("cuda")  # expect: CG505
                graph.replay()
        """,
    "a name is bound anew after the last replay": """
        def run(net, batch):
            x = torch.zeros(4, device="cuda")
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                net(x)
            with torch.cuda.graph(graph, stream=stream):
                out = net(x)
            x.copy_(batch)
            graph.replay()
            x = torch.zeros(1)
            return out.clone(), x
        """,
    "a field of what is captured is replaced": """
        from dataclasses import dataclass

        @dataclass
        class Meta:
            lengths: torch.Tensor
            longest: int

        def run(net, x, lengths, batches):
            meta = Meta(lengths, 4)
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                net(x, meta)
            with torch.cuda.graph(graph, stream=stream):
                out = net(x, meta)
            for batch in batches:
                meta.lengths = batch.lengths  # expect: CG505
                graph.replay()
        """,
    "an input is local, the graph is returned": """
        def record(net):
            x = torch.zeros(4, device="cuda")
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                net(x)
            with torch.cuda.graph(graph, stream=stream):
                out = net(x)  # expect: CG510
            return graph, out
        """,
    "a closure holds the input": """
        def record(net):
            x = torch.zeros(4, device="cuda")
            stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                net(x)
            with torch.cuda.graph(graph, stream=stream):
                out = net(x)

            def run(batch):
                x.copy_(batch)
                graph.replay()
                return out.clone()

            return run
        """,
    "one graph for all lengths": """
        class Lazy:
            def __init__(self, net):
                self.net, self.graph, self.stream = net, None, torch.cuda.Stream()
                self.x = torch.zeros(64, 4, device="cuda")

            def __call__(self, x: torch.Tensor, causal: bool = True):
                self.x.copy_(x)
                if self.graph is None:
                    with torch.cuda.stream(self.stream):
                        self.net(self.x, causal)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=self.stream):
                        self.out = self.net(self.x, causal)  # expect: CG508
                    self.graph = graph
                self.graph.replay()
                return self.out.clone()
        """,
    "other values take another way": """
        class Lazy:
            def __init__(self, net):
                self.net, self.graph, self.stream = net, None, torch.cuda.Stream()
                self.x = torch.zeros(64, 4, device="cuda")

            def __call__(self, x: torch.Tensor, causal: bool = True):
                if not causal:
                    return self.net(x, causal)
                self.x.copy_(x)
                if self.graph is None:
                    with torch.cuda.stream(self.stream):
                        self.net(self.x, causal)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, stream=self.stream):
                        self.out = self.net(self.x, causal)
                    self.graph = graph
                self.graph.replay()
                return self.out.clone()
        """,
    "a graph of a method of its own, under a key": """
        class Keyed:
            def __init__(self, net):
                self.net, self.graphs, self.stream = net, {}, torch.cuda.Stream()
                self.x = torch.zeros(64, 4, device="cuda")

            def record(self, rows: int, top: int):
                with torch.cuda.stream(self.stream):
                    self.net(self.x[:rows], top)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.stream):
                    out = self.net(self.x[:rows], top)  # expect: CG508
                self.graphs[rows] = (graph, out)

            def run(self, x: torch.Tensor, top: int):
                rows = x.shape[0]
                self.x[:rows].copy_(x)
                if rows not in self.graphs:
                    self.record(rows, top)
                graph, out = self.graphs[rows]
                graph.replay()
                return out.clone()
        """,
    "a compiled function's results are collected": """
        def collect(net, batches):
            encode = torch.compile(net, mode="reduce-overhead")
            outs = []
            for b in batches:
                y = encode(b)
                outs.append(y)  # expect: CG506
            return outs
        """,
    "a compiled function that records no graphs": """
        def collect(net, batches):
            encode = torch.compile(net, mode="max-autotune-no-cudagraphs")
            return [encode(b) for b in batches]
        """,
    "gradients of graphed callables are added up": """
        def train(net, batches, sample, optimizer):
            graphed = torch.cuda.make_graphed_callables(net, (sample,))
            for b in batches:
                graphed(b).sum().backward()  # expect: CG506
            optimizer.step()
        """,
    "gradients are cleared in each turn": """
        def train(net, batches, sample, optimizer):
            graphed = torch.cuda.make_graphed_callables(net, (sample,))
            for b in batches:
                optimizer.zero_grad(set_to_none=True)
                graphed(b).sum().backward()
                optimizer.step()
        """,
    "tokens grow from step to step": """
        @torch.compile(mode="reduce-overhead")
        def model(tokens):
            return tokens.float().mean(-1)

        def generate(tokens, steps):
            while steps:
                new = model(tokens).clone()  # expect: CG511
                tokens = torch.cat((tokens, new[:, None].long()), dim=1)
                steps -= 1
            return tokens
        """,
    "an executor's work copies beside a capture": """
        from concurrent.futures import ThreadPoolExecutor

        class Server:
            def __init__(self, net):
                self.net, self.pool, self.stream = net, ThreadPoolExecutor(1), torch.cuda.Stream()
                self.pool.submit(self.prefetch)

            def prefetch(self):
                self.next = torch.zeros(4).pin_memory()

            def record(self, x):
                with torch.cuda.stream(self.stream):
                    self.net(x)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.stream):  # expect: CG404
                    out = self.net(x)
                return graph, out
        """,
    "a thread that has nothing to do with the GPU": """
        import threading

        class Server:
            def __init__(self, net):
                self.net, self.stream = net, torch.cuda.Stream()
                threading.Thread(target=self.beat, daemon=True).start()

            def beat(self):
                print("alive")

            def record(self, x):
                with torch.cuda.stream(self.stream):
                    self.net(x)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.stream):
                    out = self.net(x)
                return graph, out
        """,
}


@pytest.mark.parametrize("body", cases(IN_CLASS))
def test_a_class_that_captures(check, body):
    methods = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    verify(check, {"main.py": f"{TORCH}\n{RECORD}{methods}\n"}, select=SITE)


@pytest.mark.parametrize("body", cases(ALONE))
def test_a_program_that_captures(check, body):
    verify(check, {"main.py": f"{TORCH}\n{textwrap.dedent(body)}"}, select=SITE)
