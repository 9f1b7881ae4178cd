"""The runner of the examples itself, without a GPU: a stand-in for torch records numbers as a graph does."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import run_fixtures
from cgsafe import evidence
from run_fixtures import FIXTURES, all_examples, digest, expected, name_of, said

# Tensors of one number. What runs inside of `cuda.graph` is recorded, numbers of Python as they are then.
STAND_IN = """
import contextlib

recording = None


class Tensor:
    def __init__(self, value, shape=(1,)):
        self.value, self.shape = value, shape

    def _into(self, compute):
        made = Tensor(compute(), self.shape)
        if recording is not None:
            recording.steps.append(lambda: setattr(made, "value", compute()))
        return made

    def __mul__(self, other):
        return self._into(lambda: self.value * (other.value if isinstance(other, Tensor) else other))

    def __add__(self, other):
        return self._into(lambda: self.value + (other.value if isinstance(other, Tensor) else other))

    __matmul__ = __sub__ = __mul__

    def clone(self):
        return self._into(lambda: self.value)

    def item(self):
        if recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        return self.value

    def fill_(self, value):
        self.value = value

    def float(self):
        return self

    abs = max = float


def ones(*shape, device=None):
    return Tensor(1.0, shape)


tensor = Tensor
no_grad = contextlib.nullcontext
manual_seed = print
__version__ = "9.9.0+fake"


def allclose(a, b, rtol, atol, equal_nan):
    return abs(a.value - b.value) < 1e-6


class nn:
    class Module:
        def cuda(self):
            return self

        def __call__(self, *args):
            return self.forward(*args)


class version:
    cuda = "99.0"


class cuda:
    Stream = object
    synchronize = staticmethod(lambda: None)
    stream = contextlib.nullcontext
    get_device_name = staticmethod(lambda: "NVIDIA FAKE 1")

    class CUDAGraph:
        def __init__(self):
            self.steps = []

        def capture_begin(self):
            pass

        def replay(self):
            for step in self.steps:
                step()

    @staticmethod
    @contextlib.contextmanager
    def graph(graph, stream=None):
        global recording
        graph.capture_begin()
        recording = graph
        try:
            yield
        except Exception as error:
            raise RuntimeError("operation failed due to a previous error during capture")
        finally:
            recording = None
"""

HEAD = "import torch\n"
PLAIN = HEAD + "def make():\n    return (lambda x: x * 2), (torch.ones(4, device='cuda'),)\n"
READS = HEAD + "def make():\n    return (lambda x: x * x.item()), (torch.ones(4, device='cuda'),)\n"
CAPTURE = (
    HEAD
    + """
def capture():
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = x + 1
    def feed():
        nonlocal x
        {feed}
    return graph, out, lambda: x + 1, feed
"""
)
KEPT = (
    HEAD
    + """
def capture():
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = x + 1
    graph.replay()
    kept, wanted = {kept}, (x + 1).clone()
    return graph, kept, lambda: wanted, lambda: x.fill_(5.0)
"""
)
COUNTER = (
    HEAD
    + """
class Counts(torch.nn.Module):
    count = 0
    def forward(self, x):
        self.count += 1
        return x * self.count

def make():
    return Counts().cuda(), (torch.ones(4, device="cuda"),)
"""
)


def worked_example():
    """The one in fixtures/README.md."""
    (code,) = re.findall(r"```python\n(.*?)```", (FIXTURES / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return code


def good_twin():
    """The same with the scale in a tensor."""
    text = worked_example().replace("self.scale = 1.0", 'self.scale = torch.ones(1, device="cuda")')
    return text.replace("model.scale = 2.0", "model.scale.fill_(2.0)").replace('ON_GPU = "wrong"\n', "")


def script(folder, files, *arguments):
    """Run the script over examples (by `CODE/name`), with the stand-in for torch."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site/torch.py").write_text(STAND_IN)
    for name, text in files.items():
        path = folder / "fixtures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, run_fixtures.__file__, "--fixtures", str(folder / "fixtures"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture
def run(tmp_path):
    return functools.partial(script, tmp_path)


def outcome_in(done):
    """The outcome of the one example, without its time."""
    first = done.stdout.splitlines()[0]
    return done.returncode, re.sub(r" \(\d+ s\)$", "", first)


AGREED = "captured, and the replay agreed with eager code"
DIFFERED = "captured, and the replay differed from eager code"


# Name, text, whether it is not as it should be, and what is told.
CASES = [
    ("good.py", PLAIN, 0, AGREED),
    ("good.py", READS, 1, "the capture failed: RuntimeError: operation not permitted when stream is capturing"),
    ("bad.py", READS, 0, "the capture failed: RuntimeError: operation not permitted when stream is capturing"),
    ("bad.py", PLAIN, 1, AGREED),
    ("bad.py", PLAIN + 'ON_GPU = "ok"\n', 0, AGREED),
    ("bad.py", READS + 'ON_GPU = "ok"\n', 1, "the capture failed"),
    ("bad.py", PLAIN + 'ON_GPU = "wrong"\n', 1, AGREED),
    ("bad.py", COUNTER + 'ON_GPU = "wrong"\n', 0, f"{DIFFERED}: by up to"),
    ("good.py", COUNTER, 1, DIFFERED),
    ("good.py", PLAIN + "def change(fn, x):\n    x.fill_(3.0)\n", 0, AGREED),
    ("bad.py", PLAIN + 'ON_GPU = "wrong"\ndef change(fn, x):\n    x.fill_(3.0)\n', 1, AGREED),
    ("bad.py", worked_example(), 0, DIFFERED),
    ("bad.py", worked_example().replace('"wrong"', '"ok"'), 1, DIFFERED),
    ("good.py", good_twin(), 0, AGREED),
    ("bad.py", CAPTURE.format(feed="x = torch.tensor(5.0)") + 'ON_GPU = "wrong"\n', 0, DIFFERED),
    ("good.py", CAPTURE.format(feed="x.fill_(5.0)"), 0, AGREED),
    # The output may be asked for after the replay; one that is kept from before is overwritten by the next.
    ("good.py", CAPTURE.format(feed="x.fill_(5.0)").replace("graph, out,", "graph, lambda: out,"), 0, AGREED),
    ("bad.py", KEPT.format(kept="out") + 'ON_GPU = "wrong"\n', 0, DIFFERED),
    ("good.py", KEPT.format(kept="out.clone()"), 0, AGREED),
    (
        "bad.py",
        COUNTER + 'ON_GPU = "wrong"\ndef change(fn, x): ...\n',
        1,
        "could not be judged: the replay differs",
    ),
    ("bad.py", HEAD + "def make():\n    return torch.absent\n", 1, "could not be judged: failed before any capture"),
    ("bad.py", HEAD + "def make():\n    return (lambda x: x.absent), (torch.ones(4),)\n", 1, "could not be judged"),
    ("bad.py", "import os\nos._exit(3)\n", 1, "could not be judged: exit code 3"),
    ("bad.py", "1 / 0\n", 1, "could not be judged: exit code 1: ZeroDivisionError"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the script says about each of the cases, by number; all run at once, as the examples do."""
    folder = tmp_path_factory.mktemp("cases")
    done = script(folder, {f"CG{number}/{name}": text for number, (name, text, _, _) in enumerate(CASES, 100)})
    assert done.returncode == 1
    lines = done.stdout.splitlines()[:-1]
    assert done.stdout.splitlines()[-1].endswith(f"{sum(wrong for _, _, wrong, _ in CASES)} not as they should be")
    return {int(line[5:8]): line for line in lines}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_an_example_does_is_held_against_what_it_says(told, number):
    name, _, wrong, line = CASES[number]
    assert told[100 + number].startswith(f"{'!! ' if wrong else '   '}CG{100 + number}/{name}: {line}")


def test_a_shape_that_differs_is_told(run):
    text = HEAD + 'ON_GPU = "wrong"\ndef make():\n    return (lambda x: x * 2), (torch.ones(4),)\n'
    text += "def change(fn, x):\n    x.shape = (5,)\n"
    assert outcome_in(run({"CG999/bad.py": text}))[1].endswith("shape (4,) instead of shape (5,)")


def test_a_folder_runs_its_main(run):
    done = run({"CG999/good/main.py": "from part import make\n", "CG999/good/part.py": PLAIN})
    assert outcome_in(done) == (0, f"   CG999/good: {AGREED}")


def test_codes_choose(run):
    done = run({"CG101/good.py": PLAIN, "CG201/good.py": PLAIN, "CG202/good.py": PLAIN}, "CG2")
    assert [line.split(":")[0].strip() for line in done.stdout.splitlines()[:-1]] == ["CG201/good.py", "CG202/good.py"]
    assert run({}, "CG7").returncode == 2


@pytest.mark.parametrize("text", ['ON_GPU = "maybe"\n', "ON_GPU = 1\n"])
def test_what_an_example_cannot_say(run, text):
    done = run({"CG999/bad.py": PLAIN + text})
    assert done.returncode == 2
    assert "CG999/bad.py: ON_GPU" in done.stderr


def test_a_good_example_says_nothing_else(run):
    assert run({"CG999/good.py": PLAIN + 'ON_GPU = "wrong"\n'}).returncode == 2


def test_the_table_that_is_written(run, tmp_path):
    done = run({"CG999/bad.py": READS, "CG998/good.py": PLAIN}, "--evidence", str(tmp_path))
    assert done.returncode == 0
    text = (tmp_path / "9.9.0-fake-1.json").read_text()
    table = evidence.parse(text)
    assert (table.torch, table.cuda, table.device) == ("9.9.0", "99.0", "NVIDIA FAKE 1")
    assert [(name, row.outcome) for name, row in table.outcomes.items()] == [
        ("CG998/good.py", "agrees"),
        ("CG999/bad.py", "fails"),
    ]
    assert table.outcomes["CG998/good.py"].digest == evidence.digest([("good.py", PLAIN)])
    assert str(tmp_path) not in text
    assert run({}, "--evidence", str(tmp_path / "x.json"), "CG9").returncode == 2, "a part is no table"


def test_an_example_that_does_not_end_is_ended(monkeypatch, tmp_path):
    example = tmp_path / "bad.py"
    example.write_text("")
    (tmp_path / "torch.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(run_fixtures, "TIMEOUT_S", 1)
    result = run_fixtures.judged(example)
    assert str(result.outcome) == "could not be judged: did not end within 1 s"
    assert not result.right


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("one\ntwo", "RuntimeError: one"),
        ("it raised:\n\nCompilerError: two\nthree", "RuntimeError: it raised: CompilerError: two"),
        ("no file /root/some/where/x.py, /usr/lib/y.so", "RuntimeError: no file x.py, y.so"),
        ("https://host/a/b and a/b/c and 1 / 2 / 3", "RuntimeError: https://host/a/b and a/b/c and 1 / 2 / 3"),
        ("x" * 400, f"RuntimeError: {'x' * 283}..."),
    ],
)
def test_an_error_is_one_line_without_folders(text, wanted):
    assert said(RuntimeError(text)) == wanted


# -- the built-in rules' examples and tables ---------------------------------------------------------------------------


@pytest.mark.parametrize("example", all_examples(), ids=name_of)
def test_an_example_says_what_it_does_on_a_gpu(example):
    assert expected(example) in (evidence.FAILS, evidence.AGREES, evidence.DIFFERS)


@pytest.mark.parametrize("path", sorted(run_fixtures.REPOSITORY.glob("rules/evidence/*")), ids=lambda path: path.stem)
def test_a_table_of_evidence(path):
    """What was seen of the examples as they are is what they say; sorted, and without anything of a machine."""
    text = path.read_text(encoding="utf-8")
    table = evidence.parse(text)
    assert text == evidence.dump(table)
    assert path.name == evidence.file_name(table)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", table.date)
    assert re.findall(r"(?<![\w.])/\w+/", json.dumps(list(map(str, table.outcomes.values())))) == []
    for example in all_examples():
        row = table.outcomes.get(name_of(example))
        if row is not None and row.digest == digest(example):
            assert row.outcome == expected(example), name_of(example)


def test_the_script_and_explain_know_an_example_by_the_same_digest():
    from cgsafe.catalogue import examples
    from cgsafe.rule import load_rules

    for rule in load_rules()[0]:
        for example in examples(rule, "bad") + examples(rule, "good"):
            assert evidence.digest(example.files) == digest(FIXTURES / rule.code / example.name)


def test_the_script_needs_nothing_but_torch_beside_the_repository():
    """It runs where neither pytest nor what cgsafe depends on is installed."""
    script = Path(run_fixtures.__file__)
    done = subprocess.run([sys.executable, "-I", "-S", script, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
