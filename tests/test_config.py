"""The configuration file: where it is found, what it may say, and how it goes together with the command line."""

from __future__ import annotations

import pytest

from cgsafe.config import Config, ConfigError, load, merge
from cgsafe.findings import Confidence
from cgsafe.selection import choose, split_codes, unknown_codes
from cgsafe.source import discover
from samples import RULES


def error_of(text: str, write, name: str = "cgsafe.toml") -> str:
    write({name: text})
    with pytest.raises(ConfigError) as caught:
        load()
    return str(caught.value)


def test_all_keys(write):
    write(
        {
            "pyproject.toml": """
            [project]
            name = "x"
            [tool.cgsafe]
            select = ["CG1", "cg401"]
            ignore = ["CG102"]
            exclude = ["tests"]
            min-confidence = "high"
            """
        }
    )
    config = load()
    assert (config.select, config.ignore, config.exclude) == (("CG1", "CG401"), ("CG102",), ("tests",))
    assert config.min_confidence is Confidence.HIGH


def test_nothing_configured(write):
    write({"pyproject.toml": "[project]\nname = 'x'\n", ".git/HEAD": ""})
    assert load() == Config()
    settings = merge(load())
    assert (settings.select, settings.ignore, settings.exclude) == ((), (), ())
    assert settings.min_confidence is Confidence.MEDIUM


def test_the_nearest_folder_counts_and_a_file_of_its_own_comes_first(write, tmp_path, monkeypatch):
    write(
        {
            "cgsafe.toml": "select = ['CG4']",
            "a/pyproject.toml": "[tool.cgsafe]\nselect = ['CG1']",
            "a/b/pyproject.toml": "[tool.other]",
            "a/c/cgsafe.toml": "select = ['CG2']",
            "a/c/pyproject.toml": "[tool.cgsafe]\nselect = ['CG3']",
        }
    )
    for folder, expected in ((".", "CG4"), ("a", "CG1"), ("a/b", "CG1"), ("a/c", "CG2")):
        monkeypatch.chdir(tmp_path / folder)
        assert load().select == (expected,)


def test_nothing_above_the_repository_is_looked_at(write, tmp_path, monkeypatch):
    write({"cgsafe.toml": "select = ['CG4']", "repo/.git/HEAD": "", "repo/src/a.py": ""})
    monkeypatch.chdir(tmp_path / "repo/src")
    assert load() == Config()


def test_broken_toml_is_told_with_its_line(write):
    message = error_of("select = ['CG1']\nignore = [\n", write, "pyproject.toml")
    assert message.startswith("pyproject.toml")
    assert "not valid TOML" in message
    assert error_of("a = 1\nb 2\n", write).startswith("cgsafe.toml:2: not valid TOML: ")


def test_text_that_is_none(write):
    assert error_of(b"\xff\xfe", write) == "cgsafe.toml: not valid UTF-8"  # type: ignore[arg-type]


def test_an_unknown_key_is_told_with_its_line_and_what_was_meant(write):
    text = "[tool.other]\nselct = 1\n\n[tool.cgsafe]\nignore = []\nselct = ['CG1']\n"
    assert error_of(text, write, "pyproject.toml") == "pyproject.toml:6: unknown key `selct`; did you mean `select`?"
    assert error_of("[tool]\ncgsafe.zzz = 1", write, "pyproject.toml").startswith("pyproject.toml: unknown key")
    assert error_of("tool.cgsafe.zzz = 1", write, "pyproject.toml").startswith("pyproject.toml:1: unknown key")
    assert error_of("[tool.cgsafe.zzz]\na = 1", write, "pyproject.toml").startswith("pyproject.toml:1: unknown key")
    assert error_of("min_confidence = 'low'", write) == (
        "cgsafe.toml:1: unknown key `min_confidence`; did you mean `min-confidence`?"
    )
    assert "known are select, extend-select, ignore" in error_of("zzz = 1", write)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select = 'CG1'", '`select`: expected a list of strings, found a string; write ["CG1"]'),
        ("ignore = [1]", "`ignore`: expected a list of strings, found an integer in it"),
        ("exclude = true", "`exclude`: expected a list of strings, found a boolean"),
        ("min-confidence = 'hihg'", '`min-confidence`: expected one of low, medium, high, found "hihg"'),
        ("min-confidence = 2", "`min-confidence`: expected one of low, medium, high, found an integer"),
    ],
)
def test_a_value_of_the_wrong_kind(write, text, message):
    assert error_of(f"# a comment\n{text}\n", write) == f"cgsafe.toml:2: {message}"


def test_what_is_no_toml_or_is_at_the_wrong_place(write):
    assert error_of("select = " + "9" * 6000, write) == "cgsafe.toml: not valid TOML: a number is too long"
    assert "without `[tool.cgsafe]`" in error_of("[tool.cgsafe]\nselect = []\n", write)
    assert "expected a file's name" in error_of('baseline = "a\\u0000b"', write)


def test_a_byte_order_mark_does_not_matter(write, tmp_path):
    (tmp_path / "cgsafe.toml").write_bytes(b"\xef\xbb\xbfignore = ['CG101']\r\n")
    assert load(str(tmp_path)).ignore == ("CG101",)


def test_a_table_that_is_none(write):
    assert "expected a table, found an integer" in error_of("[tool]\ncgsafe = 1", write, "pyproject.toml")


def test_select_replaces_and_the_others_add():
    config = Config(
        path="cgsafe.toml", select=("CG1",), ignore=("CG102",), exclude=("tests",), min_confidence=Confidence.HIGH
    )
    same = merge(config)
    assert (same.select, same.ignore, same.exclude) == (("CG1",), ("CG102",), ("tests",))
    assert same.min_confidence is Confidence.HIGH
    more = merge(config, ignore=("CG4",), exclude=("gen",), min_confidence=Confidence.LOW)
    assert (more.select, more.ignore, more.exclude) == (("CG1",), ("CG102", "CG4"), ("tests", "gen"))
    assert more.min_confidence is Confidence.LOW
    other = merge(config, select=("CG102",), jobs=3, all_paths=True)
    assert (other.select, other.ignore) == (("CG102",), ())
    assert (other.jobs, other.all_paths) == (3, True)


def test_patterns_are_relative_to_the_file_that_they_stand_in(write, tmp_path, monkeypatch):
    write(
        {
            "cgsafe.toml": "exclude = ['/top.py', 'sub/gen', 'skip', '!sub/gen/skip']",
            "top.py": "",
            "sub/top.py": "",
            "sub/gen/a.py": "",
            "sub/sub/gen/b.py": "",
            "sub/skip/c.py": "",
        }
    )
    assert discover(["."], merge(load()).exclude)[0] == ["sub/sub/gen/b.py", "sub/top.py"]
    monkeypatch.chdir(tmp_path / "sub")
    assert discover(["."], merge(load()).exclude)[0] == ["sub/gen/b.py", "top.py"]
    assert discover([".."], merge(load()).exclude)[0] == ["../sub/sub/gen/b.py", "../sub/top.py"]


# -- choosing rules ----------------------------------------------------------------------------------------------------


def codes(select: str = "", ignore: str = "") -> list[str]:
    return [rule.code for rule in choose(RULES, split_codes([select]), split_codes([ignore]))]


def test_codes_are_split_and_put_in_capitals():
    assert split_codes(["cg1, CG2", "CG1", ",", ""]) == ("CG1", "CG2")


def test_the_longer_prefix_wins():
    assert codes() == ["CG101", "CG102", "CG401"]
    assert codes("CG1") == ["CG101", "CG102"]
    assert codes("CG1", "CG101") == ["CG102"]
    assert codes("CG101", "CG1") == ["CG101"]
    assert codes("", "CG1") == ["CG401"]
    assert codes("CG101", "CG101") == []


def test_unknown_codes_are_told_with_near_misses():
    assert unknown_codes(["CG", "CG1", "CG401"], RULES) == []
    assert unknown_codes(["CG103"], RULES) == [
        "unknown code `CG103`; did you mean CG102 (host-read) or CG101 (tensor-truth-value) or CG401"
        " (capture-without-stream)?"
    ]
    assert unknown_codes(["TENSOR-TRUTH"], RULES) == [
        "unknown code `TENSOR-TRUTH`; did you mean CG101 (tensor-truth-value)?"
    ]
    assert unknown_codes(["XYZ"], RULES) == ["unknown code `XYZ`; `cgsafe rules` lists all"]
