"""Tables of what a GPU did with the examples, and how `cgsafe rules` and `cgsafe explain` tell it."""

from __future__ import annotations

import json
import sys
import types

import pytest

import cgsafe.rule
from cgsafe import evidence
from cgsafe.catalogue import examples, measured, seen
from cgsafe.cli import main
from cgsafe.evidence import AGREES, CRASHED, DIFFERS, FAILS, Outcome, Table
from cgsafe.rule import load_rules
from samples import RULES, TruthRule

BAD, GOOD = "if tensor:  # expect: CG101\n    pass\n", "x = 1\n"
FILES = {"pack/fixtures/CG101/bad_if.py": BAD, "pack/fixtures/CG101/good.py": GOOD}


def table_of(bad=BAD, good=GOOD, **more):
    outcomes = {
        "CG101/bad_if.py": Outcome(FAILS, "AcceleratorError: not permitted", evidence.digest([("bad_if.py", bad)])),
        "CG101/good.py": Outcome(AGREES, "", evidence.digest([("good.py", good)])),
    }
    values = {"torch": "2.11.0", "device": "NVIDIA H200", "date": "2026-12-01", "outcomes": outcomes}
    return Table(**{**values, **more})


@pytest.fixture
def pack(write, monkeypatch):
    """A package of rules with these files, of which the sample rules are part."""
    monkeypatch.setattr(cgsafe.rule, "load_rules", lambda: (list(RULES), []))
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def installed(files):
        evidence.tables.cache_clear()
        root = write(files)
        package = types.SimpleNamespace(__file__=str(root / "pack/__init__.py"))
        monkeypatch.setitem(sys.modules, "samples", package)
        return root / "pack"

    return installed


# -- the tables --------------------------------------------------------------------------------------------------------


def test_a_table_survives_its_file():
    table = table_of(cuda="13.0")
    assert evidence.parse(evidence.dump(table)) == table


def test_a_table_is_sorted_by_example():
    table = table_of(outcomes={name: Outcome(AGREES) for name in ("CG2/b.py", "CG1/good", "CG1/bad.py")})
    assert list(json.loads(evidence.dump(table))["examples"]) == ["CG1/bad.py", "CG1/good", "CG2/b.py"]


@pytest.mark.parametrize(
    ("torch", "device", "name"),
    [
        ("2.11.0+cu130", "NVIDIA H200", "2.11.0-h200.json"),
        ("2.9.1", "NVIDIA GeForce RTX 4090", "2.9.1-rtx-4090.json"),
        ("2.10.0", "NVIDIA A100-SXM4-80GB", "2.10.0-a100-sxm4-80gb.json"),
        ("2.10.0", "odd/../name", "2.10.0-odd-name.json"),
    ],
)
def test_the_usual_name_of_a_table(torch, device, name):
    assert evidence.file_name(table_of(torch=torch, device=device)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"torch": "1", "device": "d", "date": "d", "examples": {"CG101/bad.py": {}}}',
        '{"torch": "1", "device": "d", "date": "d", "examples": {"CG101/bad.py": "fails"}}',
        '{"torch": "1", "examples": {}}',
    ],
)
def test_what_is_no_table(text):
    with pytest.raises(ValueError, match=r"\S"):
        evidence.parse(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x = f(1)\n\ny = '# 2'\n", True),
        ("# a comment\nx = f(1)  # expect: CG101\ny = '# 2'\n# docs: end", True),
        ("x = f(1)\r\ny = '# 2'\r\n", True),
        ("x = f(2)\ny = '# 2'\n", False),
        ("x = f(1)\ny = '# 3'\n", False),
        ("if x: f(1)\ny = '# 2'\n", False),
    ],
)
def test_a_digest_knows_the_code_and_not_its_comments(text, same):
    digest = evidence.digest([("a.py", "x = f(1)\ny = '# 2'\n"), ("b.py", "")])
    assert (evidence.digest([("b.py", ""), ("a.py", text)]) == digest) is same


def test_a_digest_knows_names_and_takes_what_cannot_be_parsed():
    assert evidence.digest([("a.py", "x")]) != evidence.digest([("b.py", "x")])
    assert evidence.digest([("a.py", "x = (\n")]) != evidence.digest([("a.py", "y = '''\n")])


# -- what is told ------------------------------------------------------------------------------------------------------


def test_explain_tells_what_the_gpu_did(pack, capsys):
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of())})
    assert main(["explain", "CG101"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        """
Seen on NVIDIA H200, PyTorch 2.11.0, 2026-12-01
    bad_if.py: the capture failed: AcceleratorError: not permitted
    good.py: captured, and the replay agreed with eager code
"""
    )
    assert "Measured on" not in out


def test_explain_tells_each_machine(pack, capsys):
    other = table_of(torch="2.12.0", cuda="13.1", device="NVIDIA B200")
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of()), "pack/evidence/b.json": evidence.dump(other)})
    assert main(["explain", "CG101"]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Seen on")]
    assert heads == [
        "Seen on NVIDIA H200, PyTorch 2.11.0, 2026-12-01",
        "Seen on NVIDIA B200, PyTorch 2.12.0, CUDA 13.1, 2026-12-01",
    ]


def test_what_was_seen_of_other_code_is_not_told(pack, capsys):
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of(bad="if other:\n    pass\n"))})
    assert main(["explain", "CG101"]) == 0
    seen_part = capsys.readouterr().out.partition("Seen on")[2]
    assert "good.py" in seen_part
    assert "bad_if.py" not in seen_part


def test_without_examples_that_ran_the_table_still_names_the_machine(pack, capsys):
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of(bad="", good=""))})
    assert main(["explain", "CG101"]) == 0
    out = capsys.readouterr().out
    assert "Seen on" not in out
    assert "Measured on\n    NVIDIA H200, PyTorch 2.11.0\n" in out


def test_without_a_table_the_rule_speaks_for_itself(pack, capsys):
    pack(FILES)
    assert main(["explain", "CG101"]) == 0
    assert f"Measured on\n    {TruthRule.measured}\n" in capsys.readouterr().out
    assert main(["rules", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"][0]["measured"] == TruthRule.measured


def test_the_list_of_rules_takes_the_machine_from_the_tables(pack, capsys):
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of())})
    assert main(["rules", "--output-format", "json"]) == 0
    found = [rule["measured"] for rule in json.loads(capsys.readouterr().out)["rules"]]
    assert found == ["NVIDIA H200, PyTorch 2.11.0", "", ""]


def test_a_table_that_cannot_be_used_is_told_and_the_rest_stays(pack, capsys):
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of()), "pack/evidence/b.json": "{"})
    assert main(["explain", "CG101"]) == 0
    out = capsys.readouterr().out
    assert "bad_if.py: the capture failed" in out
    assert "b.json cannot be used" in out


def test_what_a_table_says_does_not_steer_the_terminal(pack, capsys):
    pack({**FILES, "pack/evidence/a.json": evidence.dump(table_of(device="\x1b[31mGPU\n"))})
    assert main(["explain", "CG101"]) == 0
    assert "Seen on \\x1b[31mGPU\\n, " in capsys.readouterr().out


@pytest.mark.parametrize("kind", [FAILS, AGREES, DIFFERS, CRASHED, "of another version"])
def test_every_outcome_is_told_with_its_detail(kind):
    assert str(Outcome(kind, "why")).endswith(": why")
    assert len({str(Outcome(kind)) for kind in (FAILS, AGREES, DIFFERS, CRASHED)}) == 4


# -- the built-in rules ------------------------------------------------------------------------------------------------


def test_the_tables_of_the_built_in_rules_can_be_used():
    for rule in load_rules()[0]:
        assert seen(rule)[1] == []


def test_there_is_evidence():
    evident = [rule for rule in load_rules()[0] if seen(rule)[0]]
    assert evident
    for rule in evident:
        names = {example.name for start in ("bad", "good") for example in examples(rule, start)}
        for sighting in seen(rule)[0]:
            assert {name for name, _ in sighting.outcomes} <= names
        assert "PyTorch" in measured(rule)
