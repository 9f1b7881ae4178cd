"""What captured code leaves behind (CG205, CG303, CG501 to CG504, CG507), where a capture is seen to reach the code."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, reported, verify

HEAD = TORCH + "import functools\nimport random\nimport time\nimport numpy as np\n\n\n"
RUNNER = """

class Runner:
    def __init__(self, model: Model):
        self.model = model
        self.graph = torch.cuda.CUDAGraph()
        self.stream = torch.cuda.Stream()
        self.x = torch.zeros(4, 8, device="cuda")

    def capture(self):
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.out = self.model(self.x)
"""


def program(code: str) -> dict[str, str]:
    """A model, and a runner that captures it."""
    return {"model.py": HEAD + textwrap.dedent(code).strip("\n") + "\n" + RUNNER}


def model(forward: str, init: str = "", rest: str = "") -> str:
    """A model from the body of its forward, more of its constructor, and more methods."""
    parts = ["class Model(nn.Module):", "    def __init__(self, width: int = 8):", "        super().__init__()"]
    parts.append(textwrap.indent(textwrap.dedent(init).strip("\n"), " " * 8))
    parts.append("\n    def forward(self, x: torch.Tensor) -> torch.Tensor:")
    parts.append(textwrap.indent(textwrap.dedent(forward).strip("\n"), " " * 8))
    parts.append("\n" + textwrap.indent(textwrap.dedent(rest).strip("\n"), " " * 4))
    return "\n".join(parts)


READ = "def last(self):\n    return self.kept"

REBOUND = {
    "an attribute that another method reads": model("self.kept = x * 2  # expect: CG501\nreturn x", rest=READ),
    "an annotated attribute": model("self.kept: torch.Tensor = x * 2  # expect: CG501\nreturn x", rest=READ),
    "by setattr": model('setattr(self, "kept", x * 2)  # expect: CG501\nreturn x', rest=READ),
    "by register_buffer": model('self.register_buffer("kept", x * 2)  # expect: CG501\nreturn x', rest=READ),
    "one of several targets": model("y = self.kept = x * 2  # expect: CG501\nreturn y", rest=READ),
    "in a tuple": model("self.kept, y = x * 2, x + 1  # expect: CG501\nreturn y", rest=READ),
    "from what it held before": model(
        "self.kept = self.kept * 0.9 + x  # expect: CG501\nreturn x", 'self.register_buffer("kept", torch.zeros(8))'
    ),
    "grown by cat": model(
        "self.kept = torch.cat([self.kept, x])  # expect: CG501\nreturn x",
        'self.register_buffer("kept", torch.zeros(1, 8))',
    ),
    "through .data": model(
        "self.weight.data = self.weight.data + x  # expect: CG501\nreturn x",
        "self.weight = nn.Parameter(torch.zeros(8))",
        "def total(self):\n    return self.weight.sum()",
    ),
    "of a submodule": """
        class Layer(nn.Module):
            def forward(self, x: torch.Tensor):
                self.hidden = x.relu()  # expect: CG501
                return self.hidden

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x: torch.Tensor):
                return self.layer(x)

            def last_hidden(self):
                return self.layer.hidden
        """,
    "in a helper that gets the object": """
        def remember(holder, value):
            holder.hidden = value * 2  # expect: CG501

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                remember(self, x)
                return x

            def last_hidden(self):
                return self.hidden
        """,
    "read at the start of the next call": model(
        """
        previous = self.kept
        self.kept = x * 2  # expect: CG501
        return x if previous is None else x + previous
        """,
        "self.kept = None",
    ),
}

CACHED = """
    @functools.lru_cache(maxsize=None)
    def mask(n: int, device: str):
        return torch.ones(n, n, device=device)  # expect: CG303

    class Model(nn.Module):
        def forward(self, x: torch.Tensor):
            return mask(x.shape[0], "cuda") @ x
    """

WORKSPACES = {
    "under lru_cache": CACHED,
    "under cache": CACHED.replace("functools.lru_cache(maxsize=None)", "functools.cache"),
    "made when there is none": model(
        """
        if self.buf is None:
            self.buf = torch.empty_like(x)  # expect: CG303
        return self.buf.copy_(x)
        """,
        "self.buf = None",
        "def grown(self, x: torch.Tensor):\n    self.buf = torch.empty(8)",
    ),
    "made larger": model(
        """
        if self.buf.numel() < x.numel():
            self.buf = torch.empty(x.numel(), device=x.device)  # expect: CG303
        return x + self.buf[: x.numel()].view_as(x)
        """,
        'self.register_buffer("buf", torch.empty(1))',
    ),
    "by hasattr": model(
        """
        if not hasattr(self, "mask"):
            self.mask = torch.ones(x.shape[0], x.shape[0], device=x.device).tril()  # expect: CG303
        return self.mask @ x
        """
    ),
    "through a local": model(
        """
        if self.buf.shape[0] < x.shape[0]:
            fresh = x.new_zeros(x.shape)
            self.buf = fresh  # expect: CG303
        return self.buf
        """,
        'self.register_buffer("buf", torch.empty(1, 8))',
    ),
    "in a dictionary of the object": model(
        """
        key = x.shape[0]
        if key not in self.masks:
            self.masks[key] = torch.ones(key, key, device=x.device)  # expect: CG303
        return self.masks[key] @ x
        """,
        "self.masks = {}",
    ),
    "in a dictionary of the module": """
        _MASKS = {}

        def mask_for(n, device):
            if n not in _MASKS:
                _MASKS[n] = torch.ones(n, n, device=device)  # expect: CG303
            return _MASKS[n]

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                return mask_for(x.shape[0], x.device) @ x
        """,
    "a global": """
        _workspace = None

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                global _workspace
                if _workspace is None:
                    _workspace = torch.empty_like(x)  # expect: CG303
                return _workspace.copy_(x)
        """,
    "in a manager": """
        class Manager:
            def __init__(self):
                self.block: torch.Tensor | None = None

            def get(self, rows: int) -> torch.Tensor:
                if self.block is None or self.block.shape[0] < rows:
                    self.block = torch.empty(rows, 8, device="cuda")  # expect: CG303
                return self.block[:rows]

        manager = Manager()

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                return manager.get(x.shape[0]).copy_(x)
        """,
}

STATE = {
    "a counter that is assigned": model("self.step = self.step + 1  # expect: CG502\nreturn x", "self.step = 0"),
    "a number in an operation": model(
        "return x * self.scale  # expect: CG502",
        "self.scale = 1.0",
        "def use(self, scale: float):\n    self.scale = scale",
    ),
    "a flag in an expression": model(
        "return x * 2 if self.scaled else x  # expect: CG502",
        "self.scaled = False",
        "def use_scale(self, on: bool):\n    self.scaled = on",
    ),
    "a flag of the module": """
        SCALED = False

        def use_scale(on: bool):
            global SCALED
            SCALED = on

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                if SCALED:  # expect: CG502
                    return x * 2
                return x
        """,
    "a counter": model("self.step += 1  # expect: CG502\nreturn x * self.step", "self.step = 0"),
    "a counter of the module": """
        _calls = 0

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                global _calls
                _calls += 1  # expect: CG502
                return x
        """,
    "a flag that a method sets": model(
        "if self.scaled:  # expect: CG502\n    x = x * 2\nreturn x",
        "self.scaled = False",
        "def use_scale(self, on: bool):\n    self.scaled = on",
    ),
    "a number that a method sets": model(
        "if self.limit > 4:  # expect: CG502\n    x = x * 2\nreturn x",
        "self.limit = 1",
        "def set_limit(self, limit: int):\n    self.limit = limit",
    ),
    "the group of processes, which is bound anew": """
        class Group:
            def __init__(self, ranks: list[int], rank: int):
                self.world_size = len(ranks)
                self.rank = rank

        _group = None

        def replace_group(group: Group):
            global _group
            _group = group

        def get_group() -> Group:
            return _group

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                group = get_group()
                if group.world_size > 1 and group.rank == 0:
                    return x * 2
                return x
        """,
    "metadata in a global that is bound anew": """
        class Meta:
            def __init__(self, decodes: int):
                self.decodes = decodes

        _meta = None

        def set_meta(meta: Meta):
            global _meta
            _meta = meta

        def get_meta() -> Meta:
            return _meta

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                meta = get_meta()
                if meta.decodes > 2:  # expect: CG502
                    return x * 2
                return x
        """,
}

HOST = {
    "random.random": model("return x * random.random()  # expect: CG503"),
    "a branch on it": model("if random.random() < 0.5:  # expect: CG503\n    return x\nreturn x * 2"),
    "random.choice": model("return x * random.choice([1, 2])  # expect: CG503"),
    "numpy.random": model("return x * float(np.random.rand())  # expect: CG503"),
    "torch.rand on the CPU": model("if torch.rand(()) < 0.5:  # expect: CG503\n    return x\nreturn x * 2"),
    "torch.rand on the CPU, item": model("return x * torch.rand(1).item()  # expect: CG503"),
    "torch.randint on the CPU": model('return x * int(torch.randint(0, 4, (1,), device="cpu"))  # expect: CG503'),
    "nvtx text": model('torch.cuda.nvtx.range_push(f"rows {x.shape[0]}")  # expect: CG504\nreturn x'),
    "an address without its tensor": model(
        "y = x.contiguous().clone()\nself.addresses.append(y.data_ptr())  # expect: CG504\nreturn x",
        "self.addresses = []",
    ),
    "pin_memory": model(
        "self.buf.copy_(self.sizes.pin_memory(), non_blocking=True)  # expect: CG205\nreturn x",
        'self.sizes = torch.ones(8, device="cpu")\nself.register_buffer("buf", torch.zeros(8))',
    ),
    "a pinned factory": model(
        "host = torch.ones(8, pin_memory=True)  # expect: CG205\nreturn x + host.to(x.device, non_blocking=True)"
    ),
    "a kernel that is timed": model("import triton\ntriton.testing.do_bench(len)  # expect: CG302\nreturn x"),
}

ON_CPU = """
        class Scale:
            def __init__(self):
                self.factor = torch.tensor(2.0)  # expect: CG507

            def apply(self, x: torch.Tensor):
                return FORM

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = Scale()

            def forward(self, x: torch.Tensor):
                return self.scale.apply(x)
        """

FORMS = ["x * self.factor", "self.factor * x", "x.mul(self.factor)", "torch.mul(x, self.factor)", "x > self.factor"]

SILENT = {
    "a flag of the module that functions only read": """
        SCALED = False

        def is_scaled():
            global SCALED
            return SCALED == True

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                if SCALED:
                    return x * 2
                return x
        """,
    "the time of the last message": """
        last_message = 0

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                global last_message
                if x.shape[0] - last_message > 10:
                    last_message = x.shape[0]
                return x
        """,
    "a part of a buffer that stays": model(
        "self.kept = self.buf[:4].view(8, 4)\nreturn x", 'self.register_buffer("buf", torch.zeros(8, 8))', READ
    ),
    "a list that keeps tensors of the graph alive": model(
        "y = x * 2\nself.kept.append(y)\nreturn y", "self.kept = []", READ
    ),
    "a list that the call empties": model(
        "self.kept = []\nself.kept.append(x * 2)\nreturn torch.stack(self.kept)", "self.kept = []", READ
    ),
    "a pinned buffer that a table keeps": model(
        "if 4 not in self.host:\n    self.host[4] = torch.zeros(8, pin_memory=True)\nreturn x", "self.host = {}"
    ),
    "a number that nobody changes": model("return x * self.scale", "self.scale = 1.0 / width"),
    "a number that is set while it is built": model(
        "return x * self.scale", "self.scale = 1.0", "def setup(self, scale: float):\n    self.scale = scale"
    ),
    "a flag for training": model(
        "if self.checkpointing and self.training:\n    x = x * 2\nreturn x",
        "self.checkpointing = False",
        "def set_checkpointing(self, on: bool):\n    self.checkpointing = on",
    ),
    "an attribute that only the rest of the call reads": model("self.kept = x * 2\nreturn self.kept + 1"),
    "cleared again": model(
        "self.kept = x * 2\ny = self.use()\nself.kept = None\nreturn y",
        "self.kept = None",
        "def use(self):\n    return self.kept + 1",
    ),
    "deleted again": model(
        "self.kept = x * 2\ny = self.use()\ndel self.kept\nreturn y", "", "def use(self):\n    return self.kept + 1"
    ),
    "written in place": model(
        "self.kept.copy_(x)\nself.kept += x\nself.kept[:2] = x[:2]\nself.kept.mul_(2)\nreturn x",
        'self.register_buffer("kept", torch.zeros(4, 8))',
        READ,
    ),
    "in place, and bound to itself": model(
        "self.kept = self.kept.add_(x)\nreturn x", 'self.register_buffer("kept", torch.zeros(4, 8))', READ
    ),
    "converted where needed": model(
        "self.kept = self.kept.to(x.device)\nreturn x + self.kept", 'self.register_buffer("kept", torch.zeros(4, 8))'
    ),
    "a number": model("self.rows = x.shape[0]\nself.name = 'a'\nreturn x", "", "def n(self):\n    return self.rows"),
    "behind a question about capture": model(
        "if not torch.cuda.is_current_stream_capturing():\n    self.kept = x * 2\n    self.step += 1\nreturn x",
        "self.step = 0\nself.kept = None",
        READ,
    ),
    "an object made in the call": """
        class Output:
            def __init__(self, hidden: torch.Tensor):
                self.hidden = hidden
                self.count = 0

            def add(self, value: torch.Tensor):
                self.hidden = self.hidden + value
                self.count += 1

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                out = Output(x * 2)
                out.add(x)
                out.extra = x + 1
                return out.hidden + out.extra

        def read(out: Output):
            return out.hidden, out.extra
        """,
    "a dictionary made in the call": model("seen = {}\nseen['a'] = x * 2\nseen['b'] = seen['a'] + 1\nreturn seen['b']"),
    "made with the model": model(
        "return x + self.buf", 'self.register_buffer("buf", torch.zeros(4, 8))\nself.step = 0'
    ),
    "a flag that nobody changes": model("if self.scaled:\n    x = x * 2\nreturn x", "self.scaled = width > 4"),
    "a flag of the settings": model("if self.training:\n    x = x * 2\nreturn x"),
    "a flag that is set while it loads": model(
        "if self.merged:\n    x = x * 2\nreturn x",
        "self.merged = False",
        "def load_weights(self, merged: bool):\n    self.merged = merged",
    ),
    "a flag for what is torn down": model(
        "if self.closed:\n    x = x * 2\nreturn x",
        "self.closed = False",
        "def destroy(self, closed: bool):\n    self.closed = closed\n\ndef shutdown(self, closed: bool):\n    self.closed = closed",
    ),
    "random numbers on the device": model(
        "return x + torch.rand(4, 8, device=x.device) + torch.rand_like(x) + torch.randn((), device=x.device)"
    ),
    "dropout": model("return nn.functional.dropout(x, 0.1, training=True)"),
    "a fixed nvtx text": model('torch.cuda.nvtx.range_push("attention")\ntorch.cuda.nvtx.range_pop()\nreturn x'),
    "an address beside its tensor": model(
        "y = x.clone()\nself.kept.append(y)\nself.addresses.append(y.data_ptr())\nreturn x",
        "self.kept = []\nself.addresses = []",
    ),
    "an address that only a call gets": model("y = x.clone()\nlaunch(y.data_ptr())\nreturn y")
    + "\n\ndef launch(p): ...",
    "a pinned buffer that stays": model(
        "self.buf.copy_(self.host, non_blocking=True)\nreturn x + self.buf",
        'self.host = torch.zeros(8, pin_memory=True)\nself.register_buffer("buf", torch.zeros(8))',
    ),
    "numbers of a module that moves": model(
        "return x * self.factor", 'self.register_buffer("factor", torch.tensor(2.0))'
    ),
    "a Python number": model("return x * self.factor", "self.factor = 2.0"),
    "the random module's seed outside": model("return x", "random.seed(0)\nself.phase = random.random()"),
}


@pytest.mark.parametrize("code", cases(REBOUND))
def test_rebound(check, code):
    verify(check, program(code))


@pytest.mark.parametrize("code", cases(WORKSPACES))
def test_workspaces(check, code):
    verify(check, program(code))


@pytest.mark.parametrize("code", cases(STATE))
def test_state_of_python(check, code):
    verify(check, program(code))


@pytest.mark.parametrize("code", cases(HOST))
def test_what_the_host_gives(check, code):
    verify(check, program(code))


@pytest.mark.parametrize("form", FORMS)
def test_a_number_on_the_cpu(check, form):
    verify(check, program(ON_CPU.replace("FORM", form)))


def test_a_cached_result_that_a_warm_up_made(check):
    files = program(CACHED.replace("  # expect: CG303", ""))
    warmed = "with torch.cuda.stream(self.stream):\n            self.model(self.x)\n        with torch.cuda.graph("
    files["model.py"] = files["model.py"].replace("with torch.cuda.graph(", warmed)
    verify(check, files)


@pytest.mark.parametrize("code", cases(SILENT))
def test_silent(check, code):
    verify(check, program(code))


def test_outputs_of_the_capture_itself(check):
    """The block of a capture keeps its outputs on purpose, in whichever way."""
    verify(
        check,
        {
            "runner.py": HEAD
            + """
class Runner:
    def __init__(self, step):
        self.step = step
        self.graphs, self.outputs = {}, {}
        self.x = torch.zeros(4, 8, device="cuda")
        self.count = 0

    def capture(self, n: int):
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph, stream=stream):
            self.out = self.x * 2
            self.outputs[n] = self.x * 3
            setattr(self, "extra", self.x + 1)
            self.count += 1
        self.graphs[n] = graph
        return self.out, self.outputs, self.extra
"""
        },
    )


def test_an_object_that_the_capture_is_handed(check):
    """A batch that the runner makes for the capture: what is set there is as long-lived as the runner wants it."""
    verify(
        check,
        {
            "runner.py": HEAD
            + """
class Batch:
    def __init__(self, x: torch.Tensor):
        self.x = x
        self.hidden = None

def step(batch: Batch):
    batch.hidden = batch.x * 2
    return batch.hidden + 1

def capture():
    batch = Batch(torch.zeros(4, device="cuda"))
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        out = step(batch)
    return graph, out, batch.hidden
"""
        },
    )


@pytest.mark.parametrize(
    ("level", "found"), [("medium", set()), ("low", {("model.py", 10, "CG501"), ("model.py", 12, "CG503")})]
)
def test_hidden_without_a_capture_in_sight(check, level, found):
    """A forward that only convention calls captured: a guess, hidden unless it is asked for."""
    code = """
    class Model(nn.Module):
        def forward(self, x: torch.Tensor):
            self.kept = x * 2

            return x * random.random()

        def last(self):
            return self.kept
    """
    report = check({"model.py": HEAD.rstrip("\n") + textwrap.dedent(code)}, min_confidence=level)
    assert reported(report) == found


def test_read_in_another_module(check):
    """An attribute that only another file reads is read elsewhere."""
    files = program(model("self.kept = x * 2  # expect: CG501\nreturn self.kept + 1"))
    files["draft.py"] = "def propose(runner):\n    return runner.model.kept + 1\n"
    verify(check, files)


def test_called_in_another_module(check):
    """A method of the same name is something else."""
    files = program(model("self.kept = x * 2\nreturn self.kept + 1"))
    files["draft.py"] = "def propose(runner):\n    runner.kept = 1\n    return runner.kept(3)\n"
    verify(check, files)
