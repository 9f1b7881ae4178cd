"""The command line, with a stand-in for the engine: options, exit codes, and what goes where."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import types

import pytest

import cgsafe.rule
from cgsafe import __version__, cli, terminal
from cgsafe.cli import main
from cgsafe.findings import Confidence, Problem, Report
from cgsafe.report import FORMATS
from samples import RULES, finding


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """Known rules, no colours, an empty folder without a configuration above it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cgsafe.rule, "load_rules", lambda: (list(RULES), []))
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)


def clean() -> Report:
    return Report(files_checked=1)


def found() -> Report:
    return Report(findings=[finding()], files_checked=1)


# -- exit codes --------------------------------------------------------------------------------------------------------


def test_clean_is_0(stub_engine, capsys):
    stub_engine(clean())
    assert main(["check", "a.py"]) == 0
    assert capsys.readouterr() == ("No findings in 1 file.\n", "")


def test_findings_are_1_and_go_to_standard_output(stub_engine, capsys):
    stub_engine(found())
    assert main(["check", "a.py", "--output-format", "concise"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("model.py:2:8: CG101 error[medium] ")
    assert err == ""


def test_a_file_that_could_not_be_checked_is_2_and_the_findings_are_still_told(stub_engine, capsys):
    report = found()
    report.errors = [Problem("b.py", 3, "invalid syntax"), Problem("a\x1b.py", 0, "no such file or folder")]
    stub_engine(report)
    assert main(["check", "--output-format", "concise"]) == 2
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err == "cgsafe: a\\x1b.py: no such file or folder\ncgsafe: b.py:3: invalid syntax\n"


def test_nothing_checked_is_2_and_said(stub_engine, capsys):
    stub_engine(Report())
    assert main(["check", "empty", "-q"]) == 2
    assert capsys.readouterr().err == "cgsafe: nothing was checked: no Python files in empty\n"


def test_no_rule_left_is_2(stub_engine, capsys):
    calls = stub_engine(clean())
    assert main(["check", "--select", "CG1", "--ignore", "CG101,CG102"]) == 2
    assert "nothing was checked: no rule is left" in capsys.readouterr().err
    assert calls == []


def test_an_internal_error_is_2_and_told_without_a_traceback(stub_engine, capsys):
    stub_engine(ZeroDivisionError("oops"))
    assert main(["check"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "cgsafe: internal error: ZeroDivisionError: oops (-v shows where)\n")
    assert main(["check", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_interrupted_is_130(stub_engine, capsys):
    stub_engine(KeyboardInterrupt())
    assert main(["check"]) == 130
    assert capsys.readouterr().err.strip() == "cgsafe: interrupted"


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--min-confidence", "sure"],
        ["check", "--output-format", "xml"],
        ["check", "--jobs", "-1"],
        ["check", "--no-such-option"],
        ["check", "-q", "-v"],
        ["no-such-command"],
        ["explain"],
    ],
)
def test_wrong_usage_is_2(stub_engine, capsys, arguments):
    calls = stub_engine(clean())
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, calls) == ("", [])
    assert "Error" in err


def test_rules_that_cannot_be_loaded_are_told(stub_engine, capsys, monkeypatch):
    stub_engine(clean())
    monkeypatch.setattr(cgsafe.rule, "load_rules", lambda: (list(RULES), ["rules from `x` could not be loaded"]))
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "cgsafe: rules from `x` could not be loaded\n"
    assert main(["rules"]) == main(["explain", "CG101"]) == 2
    monkeypatch.setattr(cgsafe.rule, "load_rules", lambda: ([], []))
    assert main(["check"]) == 2
    assert "no rules are installed" in capsys.readouterr().err


# -- what the engine is asked ------------------------------------------------------------------------------------------


def test_the_engine_gets_what_was_asked(stub_engine):
    calls = stub_engine(clean())
    arguments = ["check", "b", "a.py", "--select", "cg1,CG401", "--select", "CG102", "--ignore", "CG101"]
    arguments += [
        "--min-confidence",
        "LOW",
        "--exclude",
        "x",
        "--exclude",
        "y/",
        "-j",
        "3",
        "--no-cache",
        "--all-paths",
    ]
    assert main(arguments) == 0
    (call,) = calls
    settings = call["settings"]
    assert call["paths"] == ["b", "a.py"]
    assert settings.select == ("CG1", "CG401", "CG102")
    assert settings.ignore == ("CG101",)
    assert settings.exclude == ("x", "y/")
    assert settings.min_confidence is Confidence.LOW
    assert (settings.jobs, settings.cache, settings.all_paths, settings.stdin) == (3, False, True, None)
    assert [rule.code for rule in call["rules"]] == ["CG102", "CG401"]


def test_without_a_path_the_current_folder_is_checked(stub_engine):
    calls = stub_engine(clean())
    assert main(["check"]) == 0
    assert calls[0]["paths"] == ["."]
    assert calls[0]["settings"] == cgsafe.settings.Settings()


def test_standard_input_is_read_only_when_it_is_asked_for(stub_engine, monkeypatch):
    calls = stub_engine(clean())
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(b"x = 1\r\n")))
    assert main(["check", "a.py"]) == main(["check", "-"]) == 0
    assert [call["settings"].stdin for call in calls] == [None, b"x = 1\r\n"]


def test_unknown_codes_are_2_with_near_misses(stub_engine, capsys):
    calls = stub_engine(clean())
    assert main(["check", "--select", "CG110"]) == 2
    assert "--select: unknown code `CG110`; did you mean CG10" in capsys.readouterr().err
    assert main(["check", "--ignore", "host-reads"]) == 2
    assert "--ignore: unknown code `HOST-READS`; did you mean CG102 (host-read)?" in capsys.readouterr().err
    assert calls == []


def test_the_configuration_is_used(stub_engine, write, capsys):
    calls = stub_engine(clean())
    write({"pyproject.toml": "[tool.cgsafe]\nselect = ['CG4']\nexclude = ['tests']\nmin-confidence = 'high'\n"})
    assert main(["check"]) == 0
    assert calls[0]["settings"].exclude == ("tests",)
    assert calls[0]["settings"].min_confidence is Confidence.HIGH
    assert [rule.code for rule in calls[0]["rules"]] == ["CG401"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.cgsafe]\nselekt = []\n", "pyproject.toml:2: unknown key `selekt`; did you mean `select`?"),
        ("[tool.cgsafe]\n\nignore = ['CG999']\n", "pyproject.toml:3: `ignore`: unknown code `CG999`"),
        ("[tool.cgsafe\n", "pyproject.toml:1: not valid TOML"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_2(stub_engine, write, capsys, text, message):
    calls = stub_engine(clean())
    write({"pyproject.toml": text})
    assert main(["check"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert calls == []


# -- output ------------------------------------------------------------------------------------------------------------


def test_the_formats_offered_are_those_there_are():
    assert tuple(FORMATS) == cli.FORMAT_NAMES


def test_json_is_one_document(stub_engine, capsys):
    report = found()
    report.errors = [Problem("b.py", 3, "invalid syntax")]
    report.statistics = {"widened": 2}
    stub_engine(report)
    assert main(["check", "--output-format", "json", "--statistics"]) == 2
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["summary"]["statistics"] == {"widened": 2}
    assert err == "cgsafe: b.py:3: invalid syntax\n"


def test_statistics_go_to_standard_error(stub_engine, capsys):
    report = found()
    report.statistics = {"widened_functions": 2, "seconds": 0.123}
    stub_engine(report)
    assert main(["check", "--output-format", "concise", "--statistics"]) == 1
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    rows = [line.rsplit(maxsplit=1) for line in err.splitlines()]
    assert ["CG101 tensor-truth-value", "1"] in rows
    assert ["widened functions", "2"] in rows
    assert ["seconds", "0.12"] in rows


def test_output_to_a_file(stub_engine, capsys, tmp_path):
    stub_engine(found())
    old = tmp_path / "out.json"
    old.write_text("old")
    old.chmod(0o640)
    assert main(["check", "--output-format", "json", "--output", "out.json"]) == 1
    assert capsys.readouterr() == ("", "")
    assert json.loads(old.read_text())["summary"]["findings"] == 1
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == [".git", "out.json"], "nothing is left behind"


def test_output_to_a_new_file_through_a_link(stub_engine, tmp_path):
    stub_engine(found())
    (tmp_path / "link").symlink_to("real.txt")
    assert main(["check", "--output", "link"]) == 1
    assert (tmp_path / "link").is_symlink()
    assert "CG101" in (tmp_path / "real.txt").read_text()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "real.txt").stat().st_mode) == 0o666 & ~umask


def test_output_keeps_the_old_file_when_writing_fails(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(terminal.os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        terminal.write_file(str(target), "new")
    assert target.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == [".git", "out"]


def test_output_that_cannot_be_written_is_2_before_the_work(stub_engine, capsys, tmp_path):
    calls = stub_engine(found())
    assert main(["check", "--output", "no/such/folder/out"]) == 2
    assert main(["check", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("--output: ") == 2
    assert calls == []


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="no devices here")
def test_output_to_a_device_does_not_replace_it(stub_engine):
    stub_engine(found())
    assert main(["check", "--output", "/dev/null"]) == 1
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "variables", "screen", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour(stub_engine, monkeypatch, choice, variables, screen, expected):
    stub_engine(found())
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = Screen() if screen else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["check", "--color", choice, "--output-format", "concise"]) == 1
    assert ("\x1b[" in stream.getvalue()) is expected


def test_a_file_gets_colours_only_when_told_so(stub_engine, monkeypatch, tmp_path):
    stub_engine(found())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["check", "--output", "plain"]) == main(["check", "--output", "bright", "--color", "always"]) == 1
    assert "\x1b" not in (tmp_path / "plain").read_text()
    assert "\x1b" in (tmp_path / "bright").read_text()


def test_the_screen_says_how_wide_text_is(stub_engine, monkeypatch):
    stub_engine(Report(findings=[finding(message="word " * 50)], files_checked=1))
    monkeypatch.setenv("COLUMNS", "60")
    stream = Screen()
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["check", "--color", "never"]) == 1
    assert max(map(len, stream.getvalue().splitlines())) <= 60


SCRIPT = """
import sys, types
import cgsafe, cgsafe.rule
from samples import RULES, finding
from cgsafe.cli import main
from cgsafe.findings import Report
cgsafe.rule.load_rules = lambda: (list(RULES), [])
engine = types.ModuleType("cgsafe.engine")
engine.check = lambda *_: Report(findings=[finding(message="caf\\u00e9 " * 20)] * 5000, files_checked=1)
sys.modules["cgsafe.engine"] = cgsafe.engine = engine
sys.exit(main(["check", "--output-format", "concise"]))
"""


def run_script(**options: object) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.path.dirname(__file__), "PYTHONIOENCODING": "ascii"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, **options
    )


def test_a_reader_that_goes_away_is_no_fault():
    process = run_script()
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


def test_a_narrow_encoding_is_no_fault():
    out, err = run_script().communicate()
    assert err == b""
    assert out.count(b"\n") == 5000
    assert rb"caf\xe9" in out


def test_the_bar_appears_on_long_runs_only(capsys):
    now = 0.0
    bar = terminal.Bar(True, clock=lambda: now)
    bar("reading", 1, 10)
    assert bar._bar is None
    now = terminal.LONG_RUN + 0.1
    bar("reading", 2, 10)
    bar("walking", 1, 4)
    assert bar._bar is not None
    assert [(task.description, task.completed, task.total) for task in bar._bar.tasks] == [
        ("reading", 2, 10),
        ("walking", 1, 4),
    ]
    bar.close()
    assert capsys.readouterr().out == ""


def test_no_bar_without_a_terminal():
    now = 0.0
    bar = terminal.Bar(False, clock=lambda: now)
    now = 100.0
    bar("reading", 2, 10)
    assert bar._bar is None


# -- starting up -----------------------------------------------------------------------------------------------------


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cgsafe {__version__}\n"


def test_python_m(tmp_path):
    done = subprocess.run([sys.executable, "-m", "cgsafe", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"cgsafe {__version__}\n", "")


def test_version_imports_nothing_heavy():
    code = "import sys; from cgsafe.cli import main; main(['--version']); print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "rich",
        "pathspec",
        "json",
        "dataclasses",
        "cgsafe.engine",
        "cgsafe.report",
        "cgsafe.source",
        "cgsafe.rule",
    }
    assert heavy.isdisjoint(done.stdout.split())


def test_help_tells_the_exit_codes(capsys):
    assert main(["check", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Exit codes:" in out
    assert "130  interrupted" in out
