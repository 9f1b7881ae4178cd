"""What a capture does with streams (CG402, CG409)."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

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
INIT = """
        self.side = torch.cuda.Stream()
        self.other = torch.cuda.Stream()
        self.ready = torch.cuda.Event()
        self.done = torch.cuda.Event()
"""


def program(forward: str, rest: str = "") -> dict[str, str]:
    """A model with streams and events, and a runner that captures it."""
    lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()", INIT.strip("\n"), ""]
    lines.append("    def forward(self, x: torch.Tensor) -> torch.Tensor:")
    lines.append(textwrap.indent(textwrap.dedent(forward).strip("\n"), " " * 8))
    lines.append("        return x\n")
    lines.append(textwrap.indent(textwrap.dedent(rest).strip("\n"), " " * 4))
    return {"model.py": TORCH + "\n\n" + "\n".join(lines) + RUNNER}


FORK = "self.side.wait_stream(torch.cuda.current_stream())"
JOIN = "torch.cuda.current_stream().wait_stream(self.side)"
WORK = "with torch.cuda.stream(self.side):\n    y = x * 2"

HAZARDS = {
    "a fork without a join": (f"{FORK}  # expect: CG402\n{WORK}", ""),
    "a fork by an event": ("self.ready.record()\nself.side.wait_event(self.ready)  # expect: CG402\n" + WORK, ""),
    "a fork by event.wait": ("self.ready.record()\nself.ready.wait(self.side)  # expect: CG402\n" + WORK, ""),
    "a fork by record_event": (
        f"event = torch.cuda.current_stream().record_event()\nself.side.wait_event(event)  # expect: CG402\n{WORK}",
        "",
    ),
    "a fork in a callee": ("self.fork(x)", f"def fork(self, x):\n    {FORK}  # expect: CG402\n    return x"),
    "two forks, one join": (
        f"{FORK}\nself.other.wait_stream(torch.cuda.current_stream())  # expect: CG402\n{WORK}\n{JOIN}",
        "",
    ),
    "a fork of a fork, only the first joined": (
        f"{FORK}\nwith torch.cuda.stream(self.side):\n"
        "    self.other.wait_stream(torch.cuda.current_stream())  # expect: CG402\n" + JOIN,
        "",
    ),
    "a local stream": (
        "side = torch.cuda.Stream()\nside.wait_stream(torch.cuda.current_stream())  # expect: CG402\n"
        "with torch.cuda.stream(side):\n    y = x * 2",
        "",
    ),
    "the join waits the wrong way around": (f"{FORK}\n{WORK}\n{FORK}  # expect: CG402", ""),
    "an event of before the capture": ("torch.cuda.current_stream().wait_event(self.ready)  # expect: CG402", ""),
    "event.wait of before the capture": ("self.ready.wait()  # expect: CG402", ""),
    "a stream that was not forked": (f"{JOIN}  # expect: CG402", ""),
    "work on a stream that was not forked": ("with torch.cuda.stream(self.side):  # expect: CG409\n    y = x * 2", ""),
    "work on the default stream": (
        "with torch.cuda.stream(torch.cuda.default_stream()):  # expect: CG409\n    y = x * 2",
        "",
    ),
    "work in a callee": (
        "with torch.cuda.stream(self.side):  # expect: CG409\n    self.copy(x)",
        "def copy(self, x):\n    return x * 2",
    ),
}

SILENT = {
    "fork and join": (f"{FORK}\n{WORK}\n{JOIN}", ""),
    "fork and join by events": (
        "self.ready.record()\nself.side.wait_event(self.ready)\n"
        "with torch.cuda.stream(self.side):\n    y = x * 2\n    self.done.record()\n"
        "torch.cuda.current_stream().wait_event(self.done)",
        "",
    ),
    "events that name their stream": (
        "self.ready.record(torch.cuda.current_stream())\nself.ready.wait(self.side)\n"
        "with torch.cuda.stream(self.side):\n    y = x * 2\nself.done.record(self.side)\nself.done.wait()",
        "",
    ),
    "join by record_event": (
        f"{FORK}\n{WORK}\ntorch.cuda.current_stream().wait_event(self.side.record_event())",
        "",
    ),
    "the current stream in a variable": (
        "main = torch.cuda.current_stream()\nself.side.wait_stream(main)\n" + WORK + "\nmain.wait_stream(self.side)",
        "",
    ),
    "a fork of a fork, joined inside out": (
        f"{FORK}\nwith torch.cuda.stream(self.side):\n    self.other.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(self.other):\n        y = x * 2\n"
        f"    torch.cuda.current_stream().wait_stream(self.other)\n{JOIN}",
        "",
    ),
    "joined through another stream": (
        f"{FORK}\n{WORK}\nself.other.wait_stream(self.side)\ntorch.cuda.current_stream().wait_stream(self.other)",
        "",
    ),
    "join in a callee": (f"{FORK}\n{WORK}\nself.join()", f"def join(self):\n    {JOIN}"),
    "fork in one callee, join in another": (
        "self.fork()\n" + WORK + "\nself.join()",
        f"def fork(self):\n    {FORK}\n\ndef join(self):\n    {JOIN}",
    ),
    "both under the same condition": (
        f"if x.shape[0] > 2:\n    {FORK}\n    y = x * 2\nif x.shape[0] > 2:\n    {JOIN}",
        "",
    ),
    "in a loop": (
        f"for i in range(3):\n    {FORK}\n    with torch.cuda.stream(self.side):\n        y = x * i\n    {JOIN}",
        "",
    ),
    "two streams in a loop": (
        "for s in (self.side, self.other):\n    s.wait_stream(torch.cuda.current_stream())\n"
        "    with torch.cuda.stream(s):\n        y = x * 2\n"
        "for s in (self.side, self.other):\n    torch.cuda.current_stream().wait_stream(s)",
        "",
    ),
    "a stream passed around": (
        "self.fork(self.side)\n" + WORK + "\nself.join(self.side)",
        "def fork(self, s):\n    s.wait_stream(torch.cuda.current_stream())\n\n"
        "def join(self, s):\n    torch.cuda.current_stream().wait_stream(s)",
    ),
    "the current stream itself": ("with torch.cuda.stream(torch.cuda.current_stream()):\n    y = x * 2", ""),
    "an external event": ("event = torch.cuda.Event(external=True)\nevent.wait()", ""),
    "set_stream": (f"{FORK}\ntorch.cuda.set_stream(self.side)", ""),
    "behind a question about capture": (
        f"if not torch.cuda.is_current_stream_capturing():\n    {FORK}\n    self.ready.wait()\n    {JOIN}",
        "",
    ),
    "a stream from nobody knows where": (
        "from elsewhere import pick_stream\ns = pick_stream()\ns.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(s):\n    y = x * 2",
        "",
    ),
    "no stream": ("with torch.cuda.stream(None):\n    y = x * 2", ""),
    "a stream or none": (
        "s = self.side if x.shape[0] > 2 else None\nif s is not None:\n    s.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(s):\n    y = x * 2\nif s is not None:\n    torch.cuda.current_stream().wait_stream(s)",
        "",
    ),
    "a join in finally": (f"{FORK}\ntry:\n    y = x * 2\nfinally:\n    {JOIN}", ""),
    "timing events": ("self.ready.record()\ny = x * 2\nself.done.record()", ""),
}


def test_a_context_manager_that_forks_and_joins(check):
    """What `__enter__` forks, `__exit__` joins."""
    files = program("with Side(self.side):\n    y = x * 2")
    files["model.py"] += """

class Side:
    def __init__(self, stream: torch.cuda.Stream):
        self.stream = stream

    def __enter__(self):
        self.stream.wait_stream(torch.cuda.current_stream())
        return self

    def __exit__(self, *error):
        torch.cuda.current_stream().wait_stream(self.stream)
"""
    verify(check, files)


@pytest.mark.parametrize("code", cases(HAZARDS))
def test_hazard(check, code):
    verify(check, program(*code))


@pytest.mark.parametrize("code", cases(SILENT))
def test_silent(check, code):
    verify(check, program(*code))
