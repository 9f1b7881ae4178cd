"""`cgsafe why` and `cgsafe roots`: what is told of a line, captured or not, and of the roots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cgsafe.cli import main

MODEL = """
import torch
from torch import nn

from helpers import far, never, setup


def gpu_sync_allowed():
    return None


class Sampler(nn.Module):
    def forward(self, x):
        return x.argmax(-1).tolist()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.limit = 4

    def forward(self, x: torch.Tensor, scale: float = 1.0):
        total = x.sum()
        if torch.cuda.is_current_stream_capturing():
            y = x * scale
        else:
            y = self.checked(x)
        if not torch.cuda.is_current_stream_capturing() and scale > 2:
            never(x)
        with gpu_sync_allowed():
            print(total.item())
        if total > self.limit:
            return far(y)
        return y + self.plugin.apply_late(y)

    def checked(self, x):
        return x[x > 0]

    def apply_late(self, y):
        return y.item()
"""
HELPERS = """
def far(t):
    half = t / 2
    return half.item()


def never(t):
    return t.item()


def setup(t):
    return never(t)
"""


@pytest.fixture
def ask(write, capsys):
    """Ask about the line that holds a text; returns the JSON answer."""
    write({"model.py": MODEL, "helpers.py": HELPERS, "pyproject.toml": ""})

    def asker(path: str, text: str, *options: str) -> dict:
        lines = Path(path).read_text().split("\n")
        line = next(number for number, content in enumerate(lines, 1) if text in content)
        assert main(["why", f"{path}:{line}", "--output-format", "json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return asker


def values(answer: dict) -> dict:
    return {v["source"]: v["values"] for v in answer["values"]}


def test_a_captured_line_has_its_root_its_path_and_its_values(ask):
    answer = ask("model.py", "if total > self.limit")
    assert answer["captured"] == "yes"
    assert [p["root"]["function"] for p in answer["paths"]] == ["Model.forward"]
    held = values(answer)
    assert held["total"] == ["tensor on cuda, 0-dim (sure)"]
    assert held["self.limit"] == ["4"]
    assert [f["code"] for f in answer["findings"]] == ["CG101"]


def test_the_path_leads_through_other_files(ask):
    answer = ask("helpers.py", "return half.item()")
    assert [(s["path"], s["note"]) for s in answer["paths"][0]["trace"]] == [("model.py", "calls far")]
    assert answer["values"][0]["origin"].startswith("`t / 2`")


def test_a_hidden_finding_is_told_with_the_reason(ask):
    answer = ask("model.py", "if total > self.limit", "--min-confidence", "high")
    assert answer["findings"] == []
    assert [h["code"] for h in answer["hidden"]] == ["CG101"]
    assert "confidence is medium" in answer["hidden"][0]["reason"]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("model.py", "y = self.checked(x)", "`torch.cuda.is_current_stream_capturing()` is always True"),
        ("model.py", "never(x)", "since `torch.cuda.is_current_stream_capturing()` is True"),
        ("model.py", "print(total.item())", "inside `with gpu_sync_allowed()`"),
        ("model.py", "return x.argmax", "classes named `*Sampler` run outside of captures"),
        ("model.py", "return y.item()", "calls `self.plugin.apply_late` here; what that is, is not known"),
        ("model.py", "return x[x > 0]", "`Model.forward` is captured and calls `checked` here, but this line is not"),
        ("helpers.py", "return t.item()", "`Model.forward` is captured and calls `never` here, but this line is not"),
        ("helpers.py", "return never(t)", "no call of `setup` was found"),
        ("model.py", "from helpers import", "runs once, when the module is imported"),
    ],
)
def test_a_line_that_is_not_captured_has_the_nearest_reason(ask, path, text, expected):
    answer = ask(path, text)
    assert answer["captured"] == "no"
    assert expected in " ".join(r["message"] for r in answer["reasons"])
    assert answer["nearest_root"]["function"] == "Model.forward"


def test_a_def_line_and_a_line_without_code(ask, capsys):
    assert ask("helpers.py", "def far")["captured"] == "yes"
    assert main(["why", "helpers.py:4"]) == 0
    assert "holds no statement; this is the next one" in capsys.readouterr().out


def test_text_for_people(ask, capsys):
    assert main(["why", "model.py:31"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("model.py:31 in Model.forward: captured\n")
    assert "total: tensor on cuda, 0-dim (sure) (from `x.sum()`, line 22)" in out


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("model.py", "expected PATH:LINE"),
        ("model.py:0", "expected PATH:LINE"),
        ("model.py:999", "there is no line 999"),
        ("missing.py:3", "no such file"),
        ("broken.py:1", "not Python source"),
    ],
)
def test_a_question_without_an_answer_is_a_usage_error(ask, capsys, place, message):
    Path("broken.py").write_text("def f(:\n")
    assert main(["why", place]) == 2
    assert message.lower() in capsys.readouterr().err.lower()


def test_watching_leaves_nothing_behind(ask):
    from cgsafe.walk.frame import _STATEMENTS, Frame

    before = dict(_STATEMENTS)
    ask("model.py", "total = x.sum()")
    assert before == _STATEMENTS
    assert "eval" not in vars(Frame)


def test_roots_and_what_is_none(ask, capsys):
    assert main(["roots", "--all", "--output-format", "json", "--no-cache"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(r["function"], r["kind"], r["findings"]) for r in told["roots"]] == [
        ("Model.forward", "module-forward", 2)
    ]
    assert [(r["name"], "*Sampler" in r["reason"]) for r in told["refused"]] == [("Sampler", True)]


def test_roots_are_recalled_from_the_cache(ask, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    outs = []
    for _ in range(2):
        assert main(["roots", "--all"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]
    assert "Model.forward  module-forward  2 findings" in outs[0]
