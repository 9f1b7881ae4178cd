"""The command line as a whole: commands and options alike, near misses, completion, nothing heavy imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import pytest

from cgsafe.cli import cli, main

COMMANDS = {"baseline", "check", "config", "explain", "roots", "rules", "server", "why"}


def options():
    """(command, option) for all options there are."""
    for name, command in cli.commands.items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield name, parameter


def run(*arguments, **keywords):
    command = [sys.executable, "-m", "cgsafe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **keywords)


def test_every_command_and_option_is_explained_as_a_sentence():
    assert set(cli.commands) == COMMANDS
    for name, command in cli.commands.items():
        text = command.get_short_help_str(limit=200)
        assert text.endswith("."), name
        assert len(text) < 66, f"{name}: it must fit on a line"
    for name, option in options():
        sentence = (option.help or "").split("  [")[0]
        assert sentence[:1].isupper(), f"{name} {option.opts}: {option.help}"
        assert sentence.endswith("."), f"{name} {option.opts}: {option.help}"


def test_options_of_one_name_are_alike_in_all_commands():
    seen = {}
    for name, option in options():
        for spelling in (*option.opts, *option.secondary_opts):
            if spelling in ("-o", "--output", "--all-paths"):
                continue  # what goes there differs
            kind = (option.name, sorted(option.opts), option.multiple, option.is_flag, option.default, option.metavar)
            text = "" if spelling in ("--min-confidence", "--output-format") else option.help
            other, expected = seen.setdefault(spelling, (name, (kind, text)))
            assert (kind, text) == expected, f"{spelling}: {name} and {other}"


def test_without_arguments_the_help_is_shown_and_2_returned():
    done = run()
    assert done.returncode == 2
    assert "Usage: cgsafe" in done.stdout + done.stderr
    assert "Start with `cgsafe check FOLDER`" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("chek", "no such command `chek`; did you mean `check`?"),
        ("Rules", "no such command `Rules`; did you mean `rules`?"),
        ("models", "no such command `models`; to check it: cgsafe check models"),
        ("xyz", "no such command `xyz`; there are baseline, check, config, explain, roots, rules, server, why"),
    ],
)
def test_an_unknown_command_is_answered_by_what_was_meant(write, capsys, word, answer):
    write({"models/m.py": ""})
    assert main([word]) == 2
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version(option, capsys):
    assert main([option]) == 0
    assert capsys.readouterr().out.startswith("cgsafe ")


def test_a_prefix_explains_all_its_rules(capsys):
    assert main(["explain", "cg40", "CG401", "host-read"]) == 0
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("CG")]
    assert told[:2] == ["CG401", "CG402"]
    assert told[-1] == "CG102"
    assert len(told) == len(set(told)), "each rule once"


@pytest.mark.parametrize("command", ["check", "roots", "baseline"])
def test_a_path_that_is_not_there_is_told_alike_and_without_a_line(write, capsys, command):
    write({})
    assert main([command, "nope"]) == 2
    assert capsys.readouterr().err.startswith("cgsafe: nope: no such file or folder\n")


@pytest.mark.parametrize("arguments", [["why", "m.py:1"], ["roots"], ["check"], ["baseline"], ["config"]])
def test_a_configuration_with_a_code_that_is_none_is_refused_everywhere(write, capsys, arguments):
    write({"m.py": "x = 1\n", "cgsafe.toml": 'select = ["XX1"]\n'})
    assert main(arguments) == 2
    assert "cgsafe.toml:1" in capsys.readouterr().err


def test_a_baseline_holds_what_the_hot_path_shows(write, capsys):
    write({"m.py": "x = 1\n"})
    assert main(["baseline", "--hot-path", "--extend-select", "CG1", "-o", "known.tsv"]) == 0
    assert "known.tsv: 0 known" in capsys.readouterr().err


def test_a_file_for_the_findings_has_a_short_name_too(write, capsys):
    folder = write({"m.py": "x = 1\n"})
    assert main(["check", "-o", "out.json", "--output-format", "json"]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads((folder / "out.json").read_text())["findings"] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cgsafe ch", "plain,check\n"),
        ("cgsafe check --diff-", "plain,--diff-base\n"),
        ("cgsafe check --color a", "plain,auto\nplain,always\n"),
        ("cgsafe explain cg50", "plain,CG501\n"),
        ("cgsafe explain tensor-t", "plain,tensor-truth-value\n"),
        ("cgsafe check fix", "file,fix\n"),
        ("cgsafe baseline fix", "file,fix\n"),
    ],
)
def test_the_shell_completes(words, expected):
    environment = {**os.environ, "_CGSAFE_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    code = "from cgsafe.cli import run; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.startswith(expected)


HEAVY = ("libcst", "rich", "pygls", "lsprotocol", "jsonschema", "yaml", "asyncio")


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["--version"], ("cgsafe.engine", "cgsafe.rule", "json", "difflib", "subprocess", "pathspec")),
        (["--help"], ("cgsafe.engine", "cgsafe.rule")),
        (["rules"], ("cgsafe.engine", "cgsafe.walk.walker")),
        (["explain", "CG101"], ("cgsafe.engine", "cgsafe.walk.walker")),
        (["check", "m.py"], ()),
        (["check", "m.py", "--output-format", "sarif"], ()),
        (["roots", "m.py"], ()),
    ],
)
def test_nothing_heavy_is_imported(write, arguments, more):
    folder = write({"m.py": "x = 1\n"})
    code = "import sys; from cgsafe.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "cgsafe.cli" in loaded
    assert loaded & {*HEAVY, *more} == set()


def test_the_language_server_ends_well():
    """Its library closes the streams: that is no error of ours."""
    pytest.importorskip("pygls")

    def message(**content):
        body = json.dumps({"jsonrpc": "2.0", **content})
        return f"Content-Length: {len(body)}\r\n\r\n{body}"

    start = {"processId": None, "rootUri": None, "capabilities": {}}
    text = message(id=1, method="initialize", params=start) + message(method="initialized", params={})
    text += message(id=2, method="shutdown") + message(method="exit")
    done = run("server", input=text, timeout=60)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert '"name": "cgsafe"' in done.stdout or '"name":"cgsafe"' in done.stdout
