"""Settings beyond the choice of rules: what they do, how they go wrong, and `cgsafe config`."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from cgsafe.cli import main
from cgsafe.config import DEFAULTS, KEYS, ConfigError, load
from cgsafe.schemas import text_of
from expectations import TORCH
from samples import ReadRule, TruthRule

MODEL = f"""{TORCH}
class M(nn.Module):
    def forward(self, x: torch.Tensor):
        if x.sum() > 0:
            return x
        return x.item()
"""


def codes(capsys, *options: str) -> list[tuple[str, str, str]]:
    capsys.readouterr()
    assert main(["check", "--no-cache", "--output-format", "json", *options]) in (0, 1)
    return [(f["path"], f["code"], f["severity"]) for f in json.loads(capsys.readouterr().out)["findings"]]


def test_severities(write, capsys):
    write({"cgsafe.toml": "severity = { CG1 = 'warning', CG101 = 'error' }", "m.py": MODEL})
    assert codes(capsys) == [("m.py", "CG101", "error"), ("m.py", "CG102", "warning")]


def test_per_file_ignores(write, capsys, monkeypatch, tmp_path):
    write(
        {
            "pyproject.toml": "[tool.cgsafe.per-file-ignores]\n'sub/*.py' = ['CG101']\ntests = ['CG']\n",
            "m.py": MODEL,
            "sub/m.py": MODEL,
            "sub/tests/m.py": MODEL,
        }
    )
    expected = [("m.py", "CG101"), ("m.py", "CG102"), ("sub/m.py", "CG102")]
    assert [row[:2] for row in codes(capsys)] == expected
    monkeypatch.chdir(tmp_path / "sub")
    assert [row[:2] for row in codes(capsys)] == [("m.py", "CG102")]
    assert main(["check", "--no-cache", "--show-suppressed", "--output-format", "concise"]) == 1
    assert "(suppressed by per-file-ignores: ../sub/*.py)" in capsys.readouterr().out


def test_extend_select_and_exclude(write, capsys):
    write(
        {
            "cgsafe.toml": "ignore = ['CG1']\nextend-select = ['CG102']\nexclude = ['a']\nextend-exclude = ['b']",
            "m.py": MODEL,
            "a/m.py": MODEL,
            "b/m.py": MODEL,
        }
    )
    assert [row[:2] for row in codes(capsys)] == [("m.py", "CG102")]
    assert [row[:2] for row in codes(capsys, "--extend-select", "CG101")] == [("m.py", "CG101"), ("m.py", "CG102")]
    assert [row[:2] for row in codes(capsys, "--select", "CG101")] == [("m.py", "CG101")]


def test_a_reason_is_required(write, capsys):
    write(
        {"cgsafe.toml": "require-reason = true", "m.py": MODEL.replace("x.item()", "x.item()  # cgsafe: ignore[CG102]")}
    )
    assert [row[:2] for row in codes(capsys, "--select", "CG0,CG102")] == [("m.py", "CG002")]


# -- what goes wrong ---------------------------------------------------------------------------------------------------

WRONG = {
    "a severity": (
        "[severity]\nCG101 = 'fatal'",
        '2: `severity.CG101`: expected one of error, warning, found "fatal"',
    ),
    "no table": ("severity = 'error'", "1: `severity`: expected a table of codes and severities, found "),
    "codes of a pattern": (
        "[per-file-ignores]\n'a' = ['CG1']\n'b.py' = 'CG1'",
        "3: `per-file-ignores.b.py`: expected a list",
    ),
    "a flag": ("# x\nrequire-reason = 'yes'", '2: `require-reason`: expected true or false, found "yes"'),
    "a file": ("baseline = 3", "1: `baseline`: expected a file's name, found an integer"),
    "a near miss": ("require_reason = true", "1: unknown key `require_reason`; did you mean `require-reason`?"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_place(write, name):
    text, message = WRONG[name]
    write({"cgsafe.toml": text})
    with pytest.raises(ConfigError) as caught:
        load()
    assert str(caught.value).startswith(f"cgsafe.toml:{message}")


@pytest.mark.parametrize(
    "text", ["extend-select = ['CG999']", "severity = { CG999 = 'error' }", "per-file-ignores = { 'a' = ['CG999'] }"]
)
def test_unknown_codes_are_told_with_near_misses(write, capsys, text):
    write({"cgsafe.toml": text, "m.py": MODEL})
    for command in (["check"], ["config"]):
        assert main(command) == 2
        err = capsys.readouterr().err
        assert "cgsafe.toml:1: `" in err
        assert "unknown code `CG999`" in err


def test_plugins_are_installed_entry_points(write, capsys, monkeypatch):
    points = [EntryPoint(name, f"{name}:x", "cgsafe.rules") for name in ("builtin", "more", "others")]
    targets = {"builtin": lambda: [TruthRule], "more": ReadRule, "others": None}
    monkeypatch.setattr(EntryPoint, "load", lambda self: targets[self.name])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    write({"cgsafe.toml": "plugins = ['more']", "m.py": "x = 1\n"})
    assert main(["config"]) == main(["check", "--no-cache", "-q"]) == 0
    write({"cgsafe.toml": "plugins = ['mroe']"})
    assert main(["check", "--no-cache", "-q"]) == 2
    assert "the plugin `mroe` is not installed; did you mean `more`?" in capsys.readouterr().err


# -- showing it --------------------------------------------------------------------------------------------------------


def test_config_shows_what_is_in_force_and_where_it_comes_from(write, capsys, monkeypatch, tmp_path):
    write({"pyproject.toml": "[tool.cgsafe]\nselect = ['CG1']\nseverity = { CG101 = 'warning' }\n", "sub/x.py": ""})
    monkeypatch.chdir(tmp_path / "sub")
    assert main(["config"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert 'select = ["CG1"] # ../pyproject.toml:2' in lines
    assert 'severity = { "CG101" = "warning" } # ../pyproject.toml:3' in lines
    assert 'min-confidence = "medium" # default' in lines
    assert main(["config", "--output-format", "json"]) == 0
    settings = {row["key"]: row for row in json.loads(capsys.readouterr().out)["settings"]}
    assert settings.keys() == KEYS.keys()
    assert settings["select"] == {"key": "select", "value": ["CG1"], "path": "../pyproject.toml", "line": 2}
    assert settings["baseline"] == {"key": "baseline", "value": None, "path": None, "line": 0}


def test_config_without_a_file(write, capsys):
    write({".git/HEAD": ""})
    assert main(["config"]) == 0
    assert capsys.readouterr().out.startswith("# no configuration file: all defaults\n")


def test_the_schema_and_the_defaults_know_each_key(capsys):
    assert main(["config", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema == json.loads(text_of("config"))
    assert schema["properties"].keys() == KEYS.keys() == DEFAULTS.keys()
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft7Validator(schema)
    validator.validate({"select": ["CG1"], "severity": {"CG1": "error"}, "per-file-ignores": {"a": ["CG1"]}})
    assert not validator.is_valid({"selct": []})
    assert not validator.is_valid({"min-confidence": "sure"})
