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


LAYERS = """
    import torch
    from torch import nn


    class Slow(nn.Module):
        def __init__(self, width: int):
            super().__init__()
            self.width = width

        def forward(self, x: torch.Tensor):
            return x * x.max().item()


    class Fast(nn.Module):
        def forward(self, x: torch.Tensor):
            return x
"""
CHOOSER = """
    import torch
    from torch import nn
    {imports}

    HERE = is_cpu()


    def is_cpu() -> bool:
        return DEVICES["cpu"]


    def packs(config) -> bool:
        if not HERE or config is None:
            return False
        return config.packed


    class Model(nn.Module):
        def __init__(self, config, slow: bool):
            super().__init__()
            self.own = HERE
            packed = packs(config)
            wide = config.width > 8
            {body}

        def forward(self, x: torch.Tensor):
            return self.inner(x)


    {more}
"""
BEFORE = "from layers import Fast, Slow"
WITHIN = "from layers import Fast"
MADE = "if {}:\n                self.inner = Slow(8)\n            else:\n                self.inner = Fast()"
LOCAL = MADE.replace("self.inner = Slow", "from layers import Slow\n                self.inner = Slow")


def slow(write, imports, body, more="pass"):
    """Of what is found in the layer, whether it is a guess."""
    write({"layers.py": LAYERS, "choose.py": CHOOSER.format(imports=imports, body=body, more=more)})
    rules, _ = load_rules()
    settings = merge(load(), jobs=1, cache=False, min_confidence=Confidence.LOW)
    report = engine.check(["layers.py", "choose.py"], settings, rules)
    assert not report.errors
    return [(f.confidence is Confidence.LOW, f.message) for f in report.findings if f.function == "Slow.forward"]


@pytest.mark.parametrize(
    ("imports", "body"),
    [
        (BEFORE, MADE.format("HERE")),
        (BEFORE, MADE.format("is_cpu()")),
        (BEFORE, MADE.format("packed")),
        (WITHIN, LOCAL.format("packed")),
        (BEFORE, MADE.format("packed and wide")),
        (BEFORE, MADE.format("self.own")),
        (
            BEFORE,
            "if not HERE:\n                self.inner = Fast()\n            else:\n                self.inner = Slow(8)",
        ),
        (BEFORE, "if wide:\n                " + MADE.format("HERE").replace("\n", "\n    ")),
        (BEFORE, "with torch.device('cuda'):\n                " + MADE.format("HERE").replace("\n", "\n    ")),
        ("import layers\n    from layers import Fast", MADE.format("HERE").replace("Slow", "layers.Slow")),
        (BEFORE, MADE.format("HERE") + "\n            assert not isinstance(self.inner, Slow)"),
    ],
)
def test_what_only_another_device_makes_is_a_guess(write, imports, body):
    ((guess, message),) = slow(write, imports, body)
    assert guess
    assert "only code that does not run there makes `Slow`" in message


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (MADE.format("slow"), "pass"),
        (MADE.format("not HERE"), "pass"),
        (MADE.format("wide or packed"), "pass"),
        (MADE.format("HERE"), "SPARE = Slow(4)"),
        (MADE.format("HERE"), "KINDS = [\n        Slow,\n    ]"),
        (MADE.format("HERE"), "from layers import Slow as Other"),
        (MADE.format("HERE"), "def make():\n        return Slow(3)"),
        (MADE.format("HERE"), "class Wide(Slow):\n        pass"),
        (MADE.format("HERE") + "\n            kind = Slow", "pass"),
        ("self.inner = Fast()", "pass"),
    ],
)
def test_what_others_may_make_is_none(write, body, more):
    assert [guess for guess, _ in slow(write, BEFORE, body, more)] == [False]


AROUND = """class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.slow = Slow(4)

        def forward(self, x: torch.Tensor):
            return {result}"""


@pytest.mark.parametrize("result", ["self.slow(x)", "x"])
def test_what_only_such_a_class_makes_is_a_guess_as_well(write, result):
    """The maker itself is made for another device only."""
    body, more = MADE.format("HERE").replace("Slow(8)", "Around()"), AROUND.format(result=result)
    assert [guess for guess, _ in slow(write, BEFORE, body, more)] == [True]
    assert [guess for guess, _ in slow(write, BEFORE, body.replace("HERE", "slow"), more)] == [False]


def test_who_makes_a_class_is_asked_again_where_something_changed(write, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rules, _ = load_rules()
    guesses = []
    for condition in ("HERE", "HERE", "slow", "packed", "slow"):
        text = CHOOSER.format(imports=BEFORE, body=MADE.format(condition), more="pass")
        write({"layers.py": LAYERS, "choose.py": text})
        report = engine.check(["layers.py", "choose.py"], merge(load(), jobs=1), rules)
        guesses.append([f.function for f in report.findings] == [])
    assert guesses == [True, True, False, True, False]
