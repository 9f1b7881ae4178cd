"""`cgsafe rules` and `cgsafe explain`."""

from __future__ import annotations

import json
import sys
import types

import pytest

import cgsafe.rule
from cgsafe.catalogue import examples, excerpt, shortest
from cgsafe.cli import main
from samples import RULES


@pytest.fixture(autouse=True)
def known_rules(monkeypatch):
    monkeypatch.setattr(cgsafe.rule, "load_rules", lambda: (list(RULES), []))
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def test_rules_are_listed(capsys):
    assert main(["rules"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "code   name                    severity  summary",
        "CG101  tensor-truth-value      error     The truth value of a device tensor makes the host wait for",
        "                                         the GPU.",
        "CG102  host-read               warning   A device tensor is read by the host.",
        "CG401  capture-without-stream  error     A capture without a stream of its own.",
    ]


def test_rules_as_json(capsys):
    assert main(["rules", "--output-format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [rule["code"] for rule in data["rules"]] == ["CG101", "CG102", "CG401"]
    assert data["rules"][1]["severity"] == "warning"


def test_explain(capsys, write, monkeypatch):
    root = write(
        {
            "pack/fixtures/CG101/bad_if.py": "if tensor:\n\tpass\n",
            "pack/fixtures/CG101/bad_and_more.py": "while tensor: ...\n\n\nx = 1\n",
            "pack/fixtures/CG101/good_parts/model.py": "import layer\n",
            "pack/fixtures/CG101/good_parts/layer.py": "x = 1\n",
            "pack/fixtures/CG101/notes.txt": "",
        }
    )
    package = types.SimpleNamespace(__file__=str(root / "pack/__init__.py"))
    monkeypatch.setitem(sys.modules, "samples", package)
    assert main(["explain", "cg101"]) == 0
    assert (
        capsys.readouterr().out
        == """\
CG101 tensor-truth-value (error)

The truth value of a device tensor makes the host wait for the GPU.

While a graph is captured nothing may wait.

    if tensor: ...

What the GPU says
    RuntimeError: operation not permitted when stream is capturing

Measured on
    torch 2.9, one GPU

Instead
    Compute both sides and choose with `torch.where`.

When it is all right
    Outside of captured code.

Bad: bad_if.py
    if tensor:
        pass
    (1 more with --all-examples)

Good: good_parts
    # layer.py
    x = 1
    # model.py
    import layer
"""
    )
    assert main(["explain", "CG101", "--all-examples"]) == 0
    assert "Bad: bad_and_more.py" in capsys.readouterr().out


def test_explain_finds_examples_beside_the_package(capsys, write, monkeypatch):
    root = write({"repo/rules/__init__.py": "", "repo/fixtures/CG102/bad.py": "x.item()\n"})
    monkeypatch.setitem(sys.modules, "samples", types.SimpleNamespace(__file__=str(root / "repo/rules/__init__.py")))
    assert main(["explain", "CG102"]) == 0
    assert "    x.item()\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        ({"bad_a.py": "a\nb\n", "bad_b.py": "c\n"}, ("bad_b.py", ["c"])),
        ({"bad_a.py": "a\n", "bad_b.py": "c\n"}, ("bad_a.py", ["a"])),
        ({"bad_a.py": "a\nb\nc\n", "bad_b/main.py": "d\n", "bad_b/other.py": "e\n"}, ("bad_b", ["d", "e"])),
        # Marks count, for what is shown and for what is short.
        ({"bad_a.py": "a\nb\n", "bad_b.py": "c\n\n# docs: begin\nd\n# docs: end\ne\n"}, ("bad_b.py", ["d"])),
        (
            {"bad_b.py": "# docs: begin\na\n# docs: end\nb\n#docs: begin\nif c:\n    # docs: end\n    d\n"},
            ("bad_b.py", ["a\n\nif c:"]),
        ),
        ({"bad_b.py": "a\n# docs: begin\nb\nc\n"}, ("bad_b.py", ["b\nc"])),
        ({"bad_b/main.py": "a\n", "bad_b/part.py": "b\n# docs: begin\nc\n# docs: end\n"}, ("bad_b", ["c"])),
        (
            {"bad_b.py": "x = '# docs: begin'\n# docs: begins here\n"},
            ("bad_b.py", ["x = '# docs: begin'\n# docs: begins here"]),
        ),
    ],
)
def test_the_shortest_example_is_shown_where_it_matters(write, monkeypatch, files, shown):
    root = write({f"pack/fixtures/CG101/{name}": text for name, text in files.items()})
    monkeypatch.setitem(sys.modules, "samples", types.SimpleNamespace(__file__=str(root / "pack/__init__.py")))
    (example,) = shortest(examples(RULES[0], "bad"))
    assert (example.name, [text.strip() for _, text in excerpt(example).files]) == shown


def test_all_of_an_example_is_shown_without_its_marks(capsys, write, monkeypatch):
    root = write({"pack/fixtures/CG101/bad.py": "a\n# docs: begin\nb\n# docs: end\nc\n"})
    monkeypatch.setitem(sys.modules, "samples", types.SimpleNamespace(__file__=str(root / "pack/__init__.py")))
    assert main(["explain", "CG101"]) == 0
    assert capsys.readouterr().out.endswith("Bad: bad.py\n    b\n")
    assert main(["explain", "CG101", "--all-examples"]) == 0
    assert capsys.readouterr().out.endswith("Bad: bad.py\n    a\n    b\n    c\n")


def test_explain_takes_several_and_names(capsys):
    assert main(["explain", "host-read", "CG401"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("CG")] == [
        "CG102 host-read (warning)",
        "CG401 capture-without-stream (error)",
    ]


def test_explain_of_an_unknown_rule_is_2(capsys):
    assert main(["explain", "CG101", "tensor-truth"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "unknown rule `tensor-truth`; did you mean CG101 (tensor-truth-value)?" in err
