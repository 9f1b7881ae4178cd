"""What an owner sets on the objects that it makes, while it is made itself, is known when they run."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

HEAD = (
    TORCH
    + """

class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, t):
        return t * self.weight


class Experts(nn.Module):
    def __init__(self, width: int, strict: bool = False):
        super().__init__()
        self.width = width
        self.strict = strict
        self.norm = None

    def bind(self, norm):
        if norm is None:
            self.norm = None
            return
        self.norm = norm

    def bind_if_strict(self, norm):
        if self.strict:
            self.norm = norm

    def bind_unless_wide(self, norm):
        if self.width > 64:
            return
        self.norm = norm

    def bind_by_another(self, norm):
        self.bind(norm)

    def forward(self, t):
        if self.norm is None:
            t = t * t.max().item()  # expect: CG102
        return t

"""
)
QUIET = HEAD.replace("  # expect: CG102", "")

# The body of the constructor of a model that calls `self.experts`.
SET = {
    "an attribute": """
        self.experts = Experts(width)
        self.experts.norm = Norm(width)
        """,
    "before it is kept": """
        experts = Experts(width)
        experts.norm = Norm(width)
        self.experts = experts
        """,
    "by its method": """
        self.experts = Experts(width)
        self.experts.bind(Norm(width))
        """,
    "by its method, of what is given": """
        norm = Norm(width)
        self.experts = Experts(width)
        self.experts.bind(norm)
        """,
    "by a method that calls another": """
        self.experts = Experts(width)
        self.experts.bind_by_another(Norm(width))
        """,
    "one of two": """
        if deep:
            self.experts = Experts(width)
        else:
            self.experts = Experts(2 * width, True)
        self.experts.norm = Norm(width)
        """,
    "one of two, by its method": """
        if deep:
            self.experts = Experts(width)
        else:
            self.experts = Experts(2 * width, True)
        self.experts.bind(Norm(width))
        """,
    "what is set of what was set before": """
        self.experts = Experts(width)
        self.experts.strict = True
        self.experts.bind_if_strict(Norm(width))
        """,
    "in a method of the owner": """
        self.experts = Experts(width)
        self.finish(width)

    def finish(self, width):
        self.experts.norm = Norm(width)
        """,
    "what a function makes": """
        self.experts = make(width)
        """,
}
NOT_SET = {
    "nothing": """
        self.experts = Experts(width)
        """,
    "None": """
        self.experts = Experts(width)
        self.experts.norm = None
        """,
    "None, by its method": """
        self.experts = Experts(width)
        self.experts.bind(None)
        """,
    "sometimes": """
        self.experts = Experts(width)
        if deep:
            self.experts.norm = Norm(width)
        """,
    "sometimes, by its method": """
        self.experts = Experts(width)
        if deep:
            self.experts.bind(Norm(width))
        """,
    "something else": """
        self.experts = Experts(width)
        self.experts.other = Norm(width)
        """,
    "another that was made alike": """
        self.other = Experts(width)
        self.other.norm = Norm(width)
        self.experts = Experts(width)
        """,
    "another that was made alike, afterwards": """
        self.experts = Experts(width)
        self.other = Experts(width)
        self.other.bind(Norm(width))
        """,
    "by a method under a condition": """
        self.experts = Experts(width, deep)
        self.experts.bind_if_strict(Norm(width))
        """,
    "by a method that may return before": """
        self.experts = Experts(width)
        self.experts.bind_unless_wide(Norm(width))
        """,
    "taken back": """
        self.experts = Experts(width)
        self.experts.norm = Norm(width)
        self.experts.norm = None
        """,
}


def model(head: str, body: str) -> str:
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) if "def " not in body else body.strip("\n ")
    return (
        head
        + f"""
def make(width):
    experts = Experts(width)
    experts.norm = Norm(width)
    return experts


class Model(nn.Module):
    def __init__(self, width: int, deep: bool):
        super().__init__()
        {body.strip()}

    def forward(self, x: torch.Tensor):
        return self.experts(x)
"""
    )


@pytest.mark.parametrize("body", cases(SET))
def test_what_an_owner_sets(check, body):
    verify(check, {"model.py": model(QUIET, body)})


@pytest.mark.parametrize("body", cases(NOT_SET))
def test_what_no_owner_sets(check, body):
    verify(check, {"model.py": model(HEAD, body)})


FURTHER = """
class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.experts = Experts(width)

    def forward(self, t):
        return self.experts(t)


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.layer = Layer(width)
        {setter}

    def forward(self, x: torch.Tensor):
        return self.layer(x)
"""


@pytest.mark.parametrize(
    ("setter", "head"),
    [
        ("self.layer.experts.norm = Norm(width)", QUIET),
        ("self.layer.experts.bind(Norm(width))", QUIET),
        ("self.layer.experts = Experts(width)", HEAD),
        ("self.layer.norm = Norm(width)", HEAD),
        ("experts = self.layer.experts\n        experts.norm = Norm(width)", HEAD),  # another name is not followed
    ],
)
def test_what_an_owner_sets_further_inside(check, setter, head):
    verify(check, {"model.py": head + FURTHER.format(setter=setter)})


def test_what_a_forward_sets_on_another_object_does_not_count(check):
    """Only what is set while an owner is made comes before all captures."""
    text = model(HEAD, "self.experts = Experts(width)").replace(
        "return self.experts(x)",
        "out = self.experts(x)\n        self.experts.norm = Norm(8)\n        return out",
    )
    assert "CG102" in {f.code for f in check({"model.py": text}).findings}
