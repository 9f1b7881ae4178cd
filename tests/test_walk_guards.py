"""Branches that cannot run under capture, and narrowing: what a condition says of the code behind it."""

from __future__ import annotations

import textwrap

import pytest

from cgsafe.findings import Confidence
from expectations import TORCH, cases, verify, verify_forward

BODIES = {
    "capturing, negated": """
        if not torch.cuda.is_current_stream_capturing():
            x.item()
        return x
        """,
    "capturing": """
        if torch.cuda.is_current_stream_capturing():
            return x
        return x.item()
        """,
    "capturing and more": """
        if flag and torch.cuda.is_current_stream_capturing():
            return x
        return x.item()  # expect: CG102
        """,
    "capturing or more": """
        if flag or torch.cuda.is_current_stream_capturing():
            return x
        return x.item()
        """,
    "not capturing, and the tensor": """
        if not torch.cuda.is_current_stream_capturing() and x.sum() > 0:
            return x
        """,
    "the tensor, and not capturing": """
        if x.sum() > 0 and not torch.cuda.is_current_stream_capturing():  # expect: CG101
            return x
        """,
    "capturing, kept in a variable": """
        capturing = torch.cuda.is_current_stream_capturing()
        if not capturing:
            x.item()
        return x
        """,
    "capturing, in a ternary": """
        return x if torch.cuda.is_current_stream_capturing() else x * x.max().item()
        """,
    "capturing, as an assertion's way out": """
        assert torch.cuda.is_current_stream_capturing() or x.sum() > 0
        """,
    "capturing, by its import": """
        from torch.cuda import is_current_stream_capturing as recording
        if not recording():
            x.item()
        """,
    "capturing, compared": """
        if torch.cuda.is_current_stream_capturing() is False:
            x.item()
        if torch.cuda.is_current_stream_capturing() == True:
            return x
        x.item()
        """,
    "capturing, raised": """
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("not while recording")
        x.item()
        """,
    "compiling is not capturing": """
        if not torch.compiler.is_compiling():
            x.item()  # expect: CG102
        """,
    "compiling is false in a plain capture": """
        if torch.compiler.is_compiling():
            x.item()
        """,
    "compiling by dynamo": """
        if torch._dynamo.is_compiling():
            x.item()
        """,
    "scripting and tracing are off": """
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            x.item()
        """,
    "cuda is available": """
        if not torch.cuda.is_available():
            x.item()
        """,
    "device type is cpu": """
        if x.device.type == "cpu":
            return x.item()
        return x
        """,
    "device type is not cuda": """
        if x.device.type != "cuda":
            return x.item()
        return x
        """,
    "device type is cuda": """
        if x.device.type == "cuda":
            return x.item()  # expect: CG102
        return x
        """,
    "is_cuda": """
        if not x.is_cuda:
            return x.item()
        return x
        """,
    "device type of mps": """
        if x.device.type in ("mps", "npu") or x.device.type == "xpu":
            return x.item()
        """,
    "device compared": """
        if x.device == torch.device("cpu"):
            return x.item()
        return x
        """,
    "is None": """
        y = x.sum() if flag else None
        if y is None:
            return y
        return y.item()  # expect: CG102
        """,
    "isinstance, an int": """
        t = x.sum() if flag else n
        if isinstance(t, int):
            return x if t > 3 else -x
        return x if t > 3 else -x  # expect: CG101
        """,
    "isinstance, a tensor": """
        t = x.sum() if flag else n
        if isinstance(t, torch.Tensor):
            return t.item()  # expect: CG102
        return x if t > 3 else -x
        """,
    "isinstance, negated with an early return": """
        t = x.sum() if flag else n
        if not isinstance(t, torch.Tensor):
            return x if t > 3 else -x
        return int(t)  # expect: CG103
        """,
    "is_tensor": """
        t = x.sum() if flag else n
        if torch.is_tensor(t):
            return x
        return x if t > 3 else -x
        """,
    "isinstance of several classes": """
        t = x.sum() if flag else n
        if isinstance(t, (int, float)):
            return x if t > 3 else -x
        return x
        """,
    "isinstance in an and": """
        t = x.sum() if flag else n
        if isinstance(t, int) and t > 3:
            return x
        """,
    "isinstance in an or": """
        t = x.sum() if flag else n
        if isinstance(t, torch.Tensor) or t > 3:
            return x
        """,
    "isinstance in a conditional": """
        t = x.sum() if flag else n
        return t.item() if isinstance(t, torch.Tensor) else t  # expect: CG102
        """,
    "truth of an optional of the host": """
        t = n if flag else None
        if t and t > 3:
            return x
        """,
    "assert isinstance": """
        t = x.sum() if flag else n
        assert isinstance(t, int)
        return x if t > 3 else -x
        """,
    "walrus is None": """
        if (t := (x.sum() if flag else None)) is not None:
            return t.item()  # expect: CG102
        """,
    "training": """
        if self.training:
            return x
        return -x
        """,
}

HELPERS = {
    "returns it": """
        def capturing():
            return torch.cuda.is_current_stream_capturing()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if not capturing():
                    x.item()
        """,
    "returns its negation": """
        def eager() -> bool:
            return not torch.cuda.is_current_stream_capturing()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if eager():
                    x.item()
        """,
    "asks whether it is available first": """
        def capturing() -> bool:
            if not torch.cuda.is_available():
                return False
            return torch.cuda.is_current_stream_capturing()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if not capturing():
                    x.item()
        """,
    "capturing or compiling": """
        def busy() -> bool:
            return torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if not busy():
                    x.item()
        """,
    "guards itself": """
        def check(t):
            if torch.cuda.is_current_stream_capturing():
                return
            assert t.isfinite().all()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                check(x)
        """,
    "decorator that guards": """
        def eager_only(f):
            def wrapper(*args):
                if torch.cuda.is_current_stream_capturing():
                    return None
                return f(*args)

            return wrapper

        @eager_only
        def check(t):
            assert t.isfinite().all()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                check(x)
        """,
    "method": """
        class M(nn.Module):
            @property
            def recording(self):
                return torch.cuda.is_current_stream_capturing()

            def forward(self, x: torch.Tensor):
                if self.recording:
                    return x
                return x.item()
        """,
    "argument": """
        def step(t, recording):
            if recording:
                return t
            return t.item()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return step(x, recording=torch.cuda.is_current_stream_capturing())
        """,
    "compiling alone does not help a plain capture": """
        def tracing():
            return torch.compiler.is_compiling()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if not tracing():
                    x.item()  # expect: CG102
        """,
    "compiling helps in compiled code": """
        @torch.compile(mode="reduce-overhead")
        def run(x: torch.Tensor):
            if not torch.compiler.is_compiling():
                x.item()
            return x
        """,
    "version checks": """
        from packaging import version

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if version.parse(torch.__version__) < version.parse("2.0"):
                    return x
        """,
    "host environment": """
        import os

        DEBUG = os.environ.get("DEBUG") == "1"

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if os.environ.get("FAST"):
                    return x
                if DEBUG:
                    return -x
        """,
}

ANSWERS = {
    "isinstance, kept in a variable": """
        def scaled(x, alpha: torch.Tensor | float):
            by_tensor = isinstance(alpha, torch.Tensor)
            if by_tensor:
                return x * alpha + float(alpha)  # expect: CG103
            return x * float(alpha)

        class M(nn.Module):
            def __init__(self, deep: bool):
                super().__init__()
                self.alpha = torch.ones(3, device="cuda").max() if deep else 1.0

            def forward(self, x: torch.Tensor):
                return scaled(x, self.alpha)
        """,
    "asked before the variable is renewed": """
        def scaled(x, alpha: torch.Tensor | float):
            by_tensor = isinstance(alpha, torch.Tensor)
            alpha = x.max()
            if by_tensor:
                return x
            return x * float(alpha)  # expect: CG103

        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: float):
                return scaled(x, n) + scaled(x, x)
        """,
}


@pytest.mark.parametrize("program", cases(ANSWERS))
def test_answers_that_are_kept(check, program):
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})


GAPS: dict[str, str] = {}


PLATFORM = """
    def __getattr__(name):
        return find(name)
"""


@pytest.mark.parametrize("test", ["platform.is_cpu()", "platform.is_xpu()", "n > 3 and platform.is_cpu()"])
def test_predicates_of_an_unknown_object_are_no_host_values(check, test):
    head = "from place import platform\n\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor, n: int):\n"
    model = f"{head}        if {test}:\n            x.item()\n"
    verify(check, {"place.py": PLATFORM, "model.py": TORCH + model})


@pytest.mark.parametrize("body", cases(BODIES, GAPS))
def test_guards(check, body):
    verify_forward(check, body)


@pytest.mark.parametrize("program", cases(HELPERS))
def test_helpers(check, program):
    verify(check, {"model.py": TORCH + "\n" + textwrap.dedent(program)})


NOT_SERVED = {
    "training": "if self.training:\n    x.item()",
    "training, of a function that is called": "if self.training:\n    self.counts(x)",
    "training, and more": "if self.training and x.any():\n    pass",
    "training, by an early return": "if not self.training:\n    return x\nx.item()",
    "labels": "if labels is not None:\n    x[labels > 0].sum()",
    "labels, and the values of them": "if labels is not None and labels.max() > 3:\n    x = x + 1",
    "labels, by an early return": "if labels is None:\n    return x\nx.item()",
}
SERVED = {
    "not training": "if not self.training:\n    x.item()",
    "training or not": "if self.training or flag:\n    x.item()",
    "behind the branch": "if self.training:\n    x = x + 1\nx.item()",
    "no labels": "if labels is None:\n    x.item()",
    "what only resembles labels": "if class_of is not None:\n    x.item()",
}


def training_program(body: str, around: str = "") -> str:
    head = "labels: torch.Tensor | None = None, class_of: torch.Tensor | None = None, flag: bool = False"
    model = (
        f"class Model(nn.Module):\n    def counts(self, x):\n        return x.item()\n\n"
        f"    def forward(self, x: torch.Tensor, {head}):\n{textwrap.indent(body, ' ' * 8)}\n        return x\n"
    )
    return f"{TORCH}\n\n{model}{textwrap.dedent(around)}"


@pytest.mark.parametrize("body", cases(NOT_SERVED))
def test_what_only_training_runs_is_a_guess(check, body):
    files = {"model.py": training_program(body)}
    method = "Model.counts" if "counts" in body else "Model.forward"
    assert not [f for f in check(files).findings if f.function == "Model.forward"]
    low = [f for f in check(files, min_confidence=Confidence.LOW).findings if f.function == method]
    assert low
    assert method == "Model.counts" or all("only where" in f.message for f in low)


@pytest.mark.parametrize("body", cases(SERVED))
def test_what_a_served_model_runs_is_none(check, body):
    assert [f.function for f in check({"model.py": training_program(body)}).findings] == ["Model.forward"]


@pytest.mark.parametrize("body", cases(NOT_SERVED))
def test_a_capture_that_the_code_opens_may_train(check, body):
    around = """

    def main(x, labels):
        model = Model().cuda()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            model(torch.ones(3, device="cuda"), torch.ones(3, device="cuda"))
    """
    assert [f.code for f in check({"model.py": training_program(body, around)}).findings if f.code != "CG501"]
