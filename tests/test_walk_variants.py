"""Values that are a tensor in some runs only, objects that captured code makes, and tensors that move later."""

from __future__ import annotations

import textwrap

import pytest

from cgsafe.findings import Confidence
from expectations import TORCH, cases, verify

LAYERS = """
    from abc import ABC, abstractmethod

    class Layer(ABC):
        compileable = False

        @abstractmethod
        def length(self) -> int: ...

    class Growing(Layer):
        def length(self) -> int:
            return self.keys.shape[-2]

    class Fixed(Layer):
        is_compileable = True

        def __init__(self):
            self.filled = torch.zeros((), dtype=torch.long, device="cuda")

        def length(self) -> int:
            return self.filled
    """

VARIANTS = {
    "as a size": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Layer):
                return torch.ones(2, past.length() + 1, device=x.device)  # expect: CG103
        """,
    "through a sum": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Layer | None = None):
                seen = past.length() if past is not None else 0
                total = seen + x.shape[1]
                return x[:, :total]  # expect: CG103
        """,
    "through a sum with a size of something unknown": """
        from elsewhere import embed

        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Layer | None = None):
                seen = past.length() if past is not None else 0
                return torch.ones(2, seen + embed(x).shape[1], device=x.device)  # expect: CG103
        """,
    "in a condition": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Layer):
                if past.length() > 0:  # expect: CG101
                    return x
                return x + 1
        """,
    "behind another that is undecided": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Layer, flag: bool):
                if flag and past.length() > 0:
                    return x
                return x + 1
        """,
    "in a sum of tensors": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Layer):
                return torch.arange(x.shape[1], device=x.device) + past.length()
        """,
    "a list of layers with a class that lacks the method": """
        class Other:
            pass

        class Cache:
            def __init__(self, layers: list[Layer | Other]):
                self.layers = layers

            def length(self) -> int:
                return self.layers[0].length()

        class M(nn.Module):
            def forward(self, x: torch.Tensor, past: Cache):
                return torch.ones(2, past.length(), device=x.device)  # expect: CG103
        """,
    "where the module says that it takes them": """
        class M(nn.Module):
            _can_compile_fullgraph = True

            def forward(self, x: torch.Tensor, past: Layer):
                return torch.ones(2, past.length(), device=x.device)  # expect: CG103
        """,
    "where the module says that it does not": """
        class M(nn.Module):
            _can_compile_fullgraph = False

            def forward(self, x: torch.Tensor, past: Layer):
                return torch.ones(2, past.length(), device=x.device)
        """,
    "the concrete class is known": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.ones(2, Growing().length(), device=x.device)
        """,
}


@pytest.mark.parametrize("program", cases(VARIANTS))
def test_a_tensor_in_some_implementations(check, program):
    verify(check, {"model.py": TORCH + textwrap.dedent(LAYERS) + textwrap.dedent(program)})


def test_the_message_says_which_implementation(check):
    program = textwrap.dedent(LAYERS) + textwrap.dedent(VARIANTS["through a sum"])
    (finding,) = verify(check, {"model.py": TORCH + program}).findings
    assert "when `length` returns a tensor, as in `Fixed`" in finding.message
    assert finding.confidence is Confidence.MEDIUM


def test_what_two_conditions_must_allow_is_a_guess(check):
    program = textwrap.dedent(LAYERS) + textwrap.dedent(VARIANTS["behind another that is undecided"])
    report = check({"model.py": TORCH + program}, min_confidence=Confidence.LOW)
    assert [(f.code, f.confidence) for f in report.findings] == [("CG101", Confidence.LOW)]


OBJECTS = {
    "made by captured code, moved by a method": """
        class Window:
            def __init__(self, size):
                self.size = torch.tensor(size)

            def start(self, x):
                self.size = self.size.to(x.device)  # expect: CG202

            def cut(self, x):
                self.start(x)
                return x.index_select(0, self.size)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Window(4).cut(x)
        """,
    "made by an object that captured code makes": """
        class Inner:
            def __init__(self):
                self.size = torch.zeros(4)

        class Outer:
            def __init__(self):
                self.inner = Inner()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Outer().inner.size.to(x.device)  # expect: CG202
        """,
    "made by a module": """
        class Window:
            def __init__(self):
                self.size = torch.zeros(4)

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.window = Window()

            def forward(self, x: torch.Tensor):
                return self.window.size.to(x.device)
        """,
    "whose constructor waits": """
        class Index:
            def __init__(self, rows, count):
                self.rows = torch.as_tensor(rows, device=rows.device)
                self.count = torch.as_tensor(count, device=rows.device)  # expect: CG201
                self.first = rows[0].item()  # expect: CG102

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Index(x, 4).rows
        """,
    "whose constructor keeps what it is given": """
        class Index:
            def __init__(self, rows, count):
                self.rows = torch.as_tensor(rows, device=rows.device)
                self.count = count

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Index(x, 4).rows
        """,
    "whose constructor waits, made with the module": """
        class Index:
            def __init__(self, rows):
                self.first = rows[0].item()

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.index = Index(torch.zeros(4, device="cuda"))

            def forward(self, x: torch.Tensor):
                return x * self.index.first
        """,
    "moved before it is used elsewhere": """
        class Window:
            def __init__(self):
                self.index = torch.zeros(4, dtype=torch.long)

            def prepare(self, x: torch.Tensor):
                self.index = torch.zeros(4, dtype=torch.long, device=x.device)

            def pick(self, x: torch.Tensor):
                return x[self.index]

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Window().pick(x)
        """,
}


@pytest.mark.parametrize("program", cases(OBJECTS))
def test_objects_and_their_tensors(check, program):
    verify(check, {"model.py": TORCH + textwrap.dedent(program)})


GATED = """
    class M(nn.Module):
        def __init__(self, gate=None):
            super().__init__()
            self.gate = gate

        def forward(self, x: torch.Tensor, mask: torch.Tensor, image: torch.Tensor | None = None, flag: bool = False):
            if image is not None and mask.any():
                x = x + image
            if mask is not None and mask.all():  # expect: CG101
                x = x + 1
            if self.gate is not None and mask.any():  # expect: CG101
                x = x + 2
            y = x.max() if flag else None
            if y is not None and mask.any():  # expect: CG101
                x = x + y
            if image is None or x.max() > 4:
                x = x + 3
            return x
    """


def test_a_test_that_another_input_gates_is_a_guess(check):
    verify(check, {"model.py": TORCH + textwrap.dedent(GATED)})
    report = check({"model.py": TORCH + textwrap.dedent(GATED)}, min_confidence=Confidence.LOW)
    assert {f.confidence for f in report.findings} == {Confidence.LOW, Confidence.MEDIUM}


REGISTRY = """
    class Registry(dict):
        functions = {}

        def __init__(self):
            self.local = {}

        def __getitem__(self, key):
            if key in self.local:
                return self.local[key]
            return self.functions[key]

    def plain(x):
        return x

    def eager(x):
        return torch.where(x > 0, torch.tensor(0.0, device=x.device), x)  # expect: CG201

    class Functions(Registry):
        functions = {"plain": plain, "eager": eager}

    FUNCTIONS = Functions()

    class M(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config

        def forward(self, x: torch.Tensor):
            return FUNCTIONS[self.config.implementation](x)
    """


def test_a_registry_with_a_local_part_that_is_empty(check):
    verify(check, {"model.py": TORCH + textwrap.dedent(REGISTRY)})


def _others(count: int) -> str:
    """As many further implementations, in another file."""
    classes = [f"class Other{n}(Layer):\n    def length(self) -> int:\n        return {n}\n" for n in range(count)]
    return "from layers import Layer\n\n" + "\n\n".join(classes)


def _reads_length() -> dict[str, str]:
    return {
        "layers.py": TORCH + textwrap.dedent(LAYERS),
        "model.py": TORCH
        + textwrap.dedent(
            """
            from layers import Layer

            class M(nn.Module):
                def forward(self, x: torch.Tensor, past: Layer):
                    return torch.ones(2, past.length(), device=x.device)  # expect: CG103
            """
        ),
    }


@pytest.mark.parametrize("count", [2, 12, 60])
def test_implementations_in_other_files_hide_none_that_stands_beside_the_abstract_method(check, count):
    verify(check, {**_reads_length(), "others.py": _others(count)})


def test_templates_of_other_files_are_no_implementations(check):
    files = _reads_length()
    first, fixed = files["layers.py"].split("class Fixed")
    files["layers.py"] = first
    files["modular_x.py"] = f"{TORCH}\nfrom layers import Layer\n\nclass Fixed{fixed}"
    files["model.py"] = files["model.py"].replace("  # expect: CG103", "")
    verify(check, files)
