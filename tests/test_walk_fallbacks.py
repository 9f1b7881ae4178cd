"""What runs only after an exception was swallowed is a guess; what other conditions lead to as well is none."""

from __future__ import annotations

import textwrap

import pytest

from cgsafe.findings import Confidence
from expectations import TORCH, cases, reported

HEAD = TORCH + "\n\ndef kernel(x):\n    return torch.relu(x)\n\n"

GUESSES = {
    "what was tried left nothing": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                out = None
                try:
                    out = kernel(x)
                except (NotImplementedError, RuntimeError):
                    pass
                if out is None:
                    out = x * x.max().item()
                return out
        """,
    "a flag that the handler takes back": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fast = True

            def forward(self, x: torch.Tensor):
                out = None
                if self.fast and x.is_cuda:
                    try:
                        out = kernel(x)
                    except Exception:
                        self.fast = False
                if out is None:
                    out = self.slow(x)
                return out

            def slow(self, x):
                return x * x.max().item()
        """,
    "that flag alone": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fast = True

            def forward(self, x: torch.Tensor):
                if self.fast:
                    try:
                        return kernel(x)
                    except RuntimeError:
                        self.fast = False
                        return x
                else:
                    return x * x.max().item()
        """,
}
SURE = {
    "a setting decides": """
        class M(nn.Module):
            def __init__(self, fast: bool):
                super().__init__()
                self.fast = fast

            def forward(self, x: torch.Tensor):
                out = None
                if self.fast:
                    try:
                        out = kernel(x)
                    except RuntimeError:
                        pass
                if out is None:
                    out = x * x.max().item()
                return out
        """,
    "others turn the flag off": """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fast = True

            def exact(self):
                self.fast = False

            def forward(self, x: torch.Tensor):
                if self.fast:
                    try:
                        return kernel(x)
                    except RuntimeError:
                        self.fast = False
                        return x
                return x * x.max().item()
        """,
    "an everyday question": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, table: dict[str, int]):
                out = None
                try:
                    out = table["scale"]
                except KeyError:
                    pass
                if out is None:
                    out = x * x.max().item()
                return out
        """,
    "emptied again": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, flag: bool):
                out = None
                try:
                    out = kernel(x)
                except RuntimeError:
                    pass
                if flag:
                    out = None
                if out is None:
                    out = x * x.max().item()
                return out
        """,
}


def levels(check, program):
    report = check({"model.py": HEAD + textwrap.dedent(program)}, min_confidence=Confidence.LOW)
    assert not report.errors
    assert {code for _, _, code in reported(report)} == {"CG102"}
    return {f.confidence for f in report.findings}


@pytest.mark.parametrize("program", cases(GUESSES))
def test_after_a_failure_is_a_guess(check, program):
    assert levels(check, program) == {Confidence.LOW}


@pytest.mark.parametrize("program", cases(SURE))
def test_what_else_leads_there_counts(check, program):
    assert levels(check, program) == {Confidence.MEDIUM}
