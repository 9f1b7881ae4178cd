"""What is true, or false, in special cases only: an answer keeps that through functions, variables, `and`, `or`, `not`."""

from __future__ import annotations

import json
import textwrap

import pytest

from cgsafe.findings import Confidence
from expectations import TORCH, cases, verify

PROFILE = json.dumps(
    {
        "guards": {
            "in_classes": {
                "*": {
                    "is_prefill": "seldom",
                    "is_drafting": "seldom",
                    "is_decode": "usually",
                    "whole.is_step": "seldom",
                }
            }
        },
        "doubts": {"attributes": ["debugging"]},
    }
)
HEAD = (
    TORCH
    + """

class Modes:
    def __init__(self, given):
        self.mode, self.whole, self.parts = given.mode, given.whole, given.parts


class Base(nn.Module):
    def __init__(self, width: int, debugging: bool):
        super().__init__()
        self.width = width
        self.debugging = debugging

"""
)

# `x.item()` stands under `if {test}:`; what the class says besides, as `self.seldom`.
SELDOM = {
    "itself": "return batch.mode.is_prefill()",
    "the last of an and-chain": "return self.width > 8 and batch.parts is not None and batch.mode.is_prefill()",
    "the first of an and-chain": "return batch.mode.is_prefill() and self.width > 8",
    "in the middle, beside what is not known": "return batch.ready and batch.mode.is_prefill() and bool(batch.parts)",
    "in an and-chain in an and-chain": "return self.width > 8 and (batch.parts and batch.mode.is_prefill())",
    "not usually": "return not batch.mode.is_decode()",
    "not usually, in an and-chain": "return self.width > 8 and not batch.mode.is_decode()",
    "not (usually or more)": "return not (batch.mode.is_decode() or self.width > 8)",
    "each way of an or": "return batch.mode.is_prefill() or batch.mode.is_drafting()",
    "each way of an or, in chains": "return (batch.a and batch.mode.is_prefill()) or not batch.mode.is_decode()",
    "kept in a variable": """
        wide = self.width > 8
        found = wide and batch.mode.is_prefill()
        return found
        """,
    "one of two returns": """
        if batch.parts is None:
            return False
        return batch.mode.is_prefill()
        """,
    "returns true there": """
        if batch.mode.is_prefill():
            return True
        return False
        """,
    "returns true there, far from the test": """
        if not batch.mode.is_prefill():
            return False
        if self.width > 8:
            return False
        return True
        """,
    "returns a bool there": """
        if self.width > 3 and batch.mode.is_prefill():
            return self.width > 8
        return False
        """,
    "by another function": """
        return batch.parts is not None and self.asks(batch)

    def asks(self, batch):
        return self.width > 3 and batch.mode.is_prefill()
        """,
    "by bool()": "return bool(batch.parts and batch.mode.is_prefill())",
    "in a ternary": "return batch.mode.is_prefill() if batch.parts else False",
    "nothing else": """
        if batch.parts is None:
            return None
        return batch.mode.is_prefill()
        """,
    "a flag of whoever debugs": "return self.width > 8 and self.debugging",
    "asked of one attribute only": "return batch.whole.is_step()",
}
OFTEN = {
    "the other way round": "return not batch.mode.is_prefill()",
    "usually": "return batch.mode.is_decode()",
    "usually, in an and-chain": "return self.width > 8 and batch.mode.is_decode()",
    "one way of an or": "return self.width > 8 or batch.mode.is_prefill()",
    "not (seldom and more)": "return not (batch.mode.is_prefill() and self.width > 8)",
    "one of two returns": """
        if self.width > 8:
            return batch.mode.is_prefill()
        return batch.parts is None
        """,
    "returns true elsewhere, too": """
        if batch.mode.is_prefill():
            return True
        return self.width > 8
        """,
    "returns false there": """
        if batch.mode.is_prefill():
            return False
        return True
        """,
    "of another attribute": "return batch.mode.is_step()",
    "a number of whoever asks": "return batch.mode.is_prefill() + 1",
}


def model(body: str, test: str, expect: str) -> str:
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) if "def " not in body else " " * 8 + body.strip()
    return (
        HEAD
        + f"""
class M(Base):
    def forward(self, x: torch.Tensor, batch: Modes):
        {test}
            x = x * x.max().item(){expect}
        return x

    def seldom(self, batch: Modes) -> bool:
{body}
"""
    )


TESTS = (
    "if self.seldom(batch):",
    "if self.width > 2 and self.seldom(batch):",
    "known = self.seldom(batch)\n        if known:",
    "known = self.seldom(batch) and not self.width\n        if known:",
    "other = not self.seldom(batch)\n        if not other:",
    "while self.seldom(batch):",
)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("body", cases(SELDOM))
def test_seldom(check, body, test):
    text = model(body, test, "")
    verify(check, {"model.py": text}, profile=PROFILE)


@pytest.mark.parametrize("body", cases(SELDOM))
def test_seldom_is_a_guess_and_says_why(check, body):
    report = check({"model.py": model(body, TESTS[0], "")}, profile=PROFILE, min_confidence="low")
    found = [f for f in report.findings if f.code == "CG102"]
    assert [f.confidence for f in found] == [Confidence.LOW]
    assert "only where `" in found[0].message


@pytest.mark.parametrize("test", TESTS[:3])
@pytest.mark.parametrize("body", cases(OFTEN))
def test_often(check, body, test):
    verify(check, {"model.py": model(body, test, "  # expect: CG102")}, profile=PROFILE)


@pytest.mark.parametrize("body", cases(SELDOM))
def test_what_runs_otherwise_is_no_guess(check, body):
    text = model(body, "if not self.seldom(batch):", "  # expect: CG102")
    verify(check, {"model.py": text}, profile=PROFILE)


@pytest.mark.parametrize("body", cases({name: body for name, body in SELDOM.items() if "debugging" not in body}))
def test_a_capture_that_is_seen_knows_no_seldom_ones(check, body):
    text = model(body, TESTS[0], "  # expect: CG102")
    text += """

def record(batch: Modes):
    model = M(9, False)
    x = torch.zeros(8, device="cuda")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model(x, batch)
    with torch.cuda.graph(graph, stream=stream):
        model(x, batch)
"""
    verify(check, {"model.py": text}, profile=PROFILE)
