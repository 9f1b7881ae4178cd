"""Modules that only eager functions run: who makes them, and what captured code is seen to call."""

from __future__ import annotations

import pytest

from cgsafe import engine
from cgsafe.config import load, merge
from cgsafe.findings import Confidence
from cgsafe.rule import load_rules

TOWER = """
    import torch
    from torch import nn


    class Block(nn.Module):
        def forward(self, x: torch.Tensor):
            return x * x.max().item()


    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block()])

        @classmethod
        def of(cls, config):
            return cls()

        @classmethod
        def width(cls, config):
            return cls.size(config)

        @staticmethod
        def size(config):
            return config.width

        def forward(self, x: torch.Tensor):
            return x * x.sum().item()
"""
MODEL = """
    import torch
    from torch import nn
    from tower import Tower as Eyes


    class Model(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.eyes = {made}

        def {name}(self, pixels: torch.Tensor):
            return self.eyes(pixels)

        def forward(self, x: torch.Tensor):
            return {result}


    {more}
"""
EAGER = "[profile.functions]\neager = ['see']"


def found(write, made="Eyes()", name="see", result="x", more="pass", profile=EAGER):
    """(function, whether it is a guess) of what is found."""
    write({"tower.py": TOWER, "model.py": MODEL.format(made=made, name=name, result=result, more=more)})
    write({"cgsafe.toml": profile})
    rules, _ = load_rules()
    report = engine.check(
        ["tower.py", "model.py"], merge(load(), jobs=1, cache=False, min_confidence=Confidence.LOW), rules
    )
    assert not report.errors
    return {(f.function, f.confidence is Confidence.LOW) for f in report.findings}


@pytest.mark.parametrize("made", ["Eyes()", "Eyes.of(config)"])
def test_what_only_an_eager_function_runs_is_a_guess(write, made):
    assert found(write, made) == {("Tower.forward", True), ("Block.forward", True)}


@pytest.mark.parametrize(
    "change",
    [
        {"profile": ""},
        {"name": "look"},
        {"result": "self.eyes(x)"},
        {"more": "EYES = Eyes()"},
        {"more": "class Other(nn.Module):\n        def __init__(self):\n            self.own = Eyes()"},
        {"made": "make(Eyes.width(config), 'Eyes')"},
    ],
    ids=[
        "no profile",
        "no eager function",
        "called by the forward",
        "made by others",
        "made by another module",
        "asked for something, made elsewhere",
    ],
)
def test_without_that_evidence_it_is_none(write, change):
    assert ("Tower.forward", False) in found(write, **change)


def test_the_message_names_the_function(write):
    write({"tower.py": TOWER, "model.py": MODEL.format(made="Eyes()", name="see", result="x", more="pass")})
    write({"cgsafe.toml": EAGER})
    rules, _ = load_rules()
    report = engine.check(["tower.py"], merge(load(), jobs=1, cache=False, min_confidence=Confidence.LOW), rules)
    assert all("`Model.see` seems to run" in f.message for f in report.findings)


def test_subclasses_of_what_runs_outside_of_captures_do_so_as_well(write):
    write({"heads.py": TOWER})
    write(
        {"model.py": "from heads import Tower\n\n\nclass Wide(Tower):\n    def forward(self, x):\n        x.item()\n"}
    )
    rules, _ = load_rules()
    for profile, count in (("", 1), ("[profile.roots]\nnot_captured_modules = ['heads']", 0)):
        write({"cgsafe.toml": profile})
        report = engine.check(["model.py"], merge(load(), jobs=1, cache=False), rules)
        assert len(report.findings) == count
