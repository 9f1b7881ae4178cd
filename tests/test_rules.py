"""Every rule: its documentation, and its examples in `fixtures/CODE/` with the expected codes on their lines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cgsafe.catalogue import examples, examples_folder, summary
from cgsafe.cli import main
from cgsafe.rule import load_rules
from expectations import cases, expected_in, reported, verify

FIXTURES = Path(__file__).parent.parent / "fixtures"
RULES = load_rules()[0]


def all_examples() -> list[Path]:
    return sorted(path for path in FIXTURES.glob("CG*/*") if path.name.startswith(("bad", "good")))


GAPS: dict[str, str] = {}


def files_of(example: Path) -> dict[str, str]:
    if example.is_file():
        return {example.name: example.read_text(encoding="utf-8")}
    return {p.relative_to(example).as_posix(): p.read_text(encoding="utf-8") for p in sorted(example.rglob("*.py"))}


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


# -- the examples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", cases({name_of(path): path for path in all_examples()}, GAPS))
def test_example(check, example):
    files = files_of(example)
    code = example.parent.name
    wanted = {found for text in files.values() for _, found in expected_in(text)}
    assert wanted == ({code} if example.name.startswith("bad") else set()), "an example is about its own rule only"
    verify(check, files, **({"min_confidence": "low", "select": code} if is_guess(files) else {}))


def is_guess(files: dict[str, str]) -> bool:
    """The rule's findings are hidden unless asked for."""
    return any('SHOWN_AT = "low"' in text for text in files.values())


@pytest.mark.xfail(bool(GAPS), strict=True, reason="some examples fail alone")
def test_all_examples_at_once(check):
    """Checked together, as one tree, the examples say the same as each alone."""
    files = {
        f"{example.parent.name}/{example.name}{'' if example.is_file() else '/' + name}": text
        for example in all_examples()
        for name, text in files_of(example).items()
        if not is_guess(files_of(example))
    }
    wanted = {(path, line, code) for path, text in files.items() for line, code in expected_in(text)}
    assert reported(check(files)) == wanted


@pytest.mark.parametrize("example", all_examples(), ids=name_of)
def test_an_example_says_how_it_runs(example):
    """`make()` or `capture()`, as fixtures/README.md describes, and nothing that runs on import but definitions."""
    entry = example if example.is_file() else example / "main.py"
    functions = {node.name for node in ast.parse(entry.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert len(functions & {"make", "capture"}) == 1


# -- the rules ---------------------------------------------------------------------------------------------------------


def test_rules_come_through_the_entry_points():
    rules, problems = load_rules()
    assert problems == []
    assert {"CG101", "CG102", "CG103", "CG301", "CG401"} <= {rule.code for rule in rules}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_documents_itself(rule):
    assert re.fullmatch(r"CG\d{3}", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert rule.__doc__, "what it is about, and why"
    assert len(summary(rule)) <= 120
    assert summary(rule).endswith(".")
    assert "\n\n" in rule.__doc__, "the consequence stands in a paragraph of its own"
    assert rule.instead
    assert list(rule.handlers()), "a rule subscribes to something"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_has_examples(rule):
    bad, good = examples(rule, "bad"), examples(rule, "good")
    assert len(bad) >= 2
    assert len(good) >= 2
    assert any(len(example.files) > 1 for example in bad + good), "one of them across modules"
    for example in bad:
        codes = {code for _, text in example.files for _, code in expected_in(text)}
        assert codes == {rule.code}


def test_names_and_codes_are_unique():
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


def test_every_folder_of_examples_belongs_to_a_rule():
    folders = {path.name for path in FIXTURES.iterdir() if path.is_dir()}
    assert folders == {rule.code for rule in RULES}
    assert not (FIXTURES / "__init__.py").exists()
    for rule in RULES:
        assert Path(examples_folder(rule) or "").name == rule.code
        assert not (FIXTURES / rule.code / "__init__.py").exists()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_code_is_explained(rule, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", rule.code, "--all-examples"]) == 0
    out = capsys.readouterr().out
    assert rule.name in out
    for title in ("Instead", "Bad: ", "Good: "):
        assert f"\n{title}" in out


def test_every_code_is_listed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["rules"]) == 0
    out = capsys.readouterr().out
    assert [line[:5] for line in out.splitlines() if line.startswith("CG")] == [rule.code for rule in RULES]
