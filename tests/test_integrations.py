"""Where the tool is run from: standard input under a name, --watch, pre-commit, GitHub."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from cgsafe.cli import main
from cgsafe.watch import looker, watch
from expectations import TORCH

REPOSITORY = Path(__file__).resolve().parent.parent
HELPER = "def scale(t):\n    return t.item()\n"
MODEL = f"{TORCH}from .helper import scale\nclass M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return scale(x)\n"


def with_stdin(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text.encode())))


# -- standard input under a name ---------------------------------------------------------------------------------------


def test_standard_input_stands_for_a_file(write, capsys, monkeypatch):
    """Its neighbours are known, and it stands for what is on disk."""
    write({"p/__init__.py": "", "p/helper.py": "def scale(t):\n    return t\n", "p/model.py": MODEL})
    with_stdin(monkeypatch, HELPER)
    assert main(["check", "-", "--stdin-filename", "p/helper.py", "--no-cache", "--output-format", "concise"]) == 1
    assert capsys.readouterr().out.startswith("p/helper.py:2:12: CG102 ")


def test_standard_input_stands_for_a_file_that_is_not_there_yet(write, capsys, monkeypatch):
    write({"p/__init__.py": "", "p/helper.py": HELPER})
    with_stdin(monkeypatch, MODEL)
    assert main(["check", "-", "--stdin-filename", "p/new.py", "--no-cache"]) == 1
    out = capsys.readouterr().out
    assert "helper.py:2:12: CG102" in out
    assert "p/new.py:6" in out.replace(" ", "")
    with_stdin(monkeypatch, "def\n")
    assert main(["check", "-", "--stdin-filename", "p/new.py", "--no-cache"]) == 2
    assert "p/new.py:1: syntax error" in capsys.readouterr().err


def test_a_name_without_standard_input_is_wrong_usage(write, capsys):
    write({"m.py": ""})
    assert main(["check", "m.py", "--stdin-filename", "m.py"]) == 2
    assert "--stdin-filename goes with the path `-`" in capsys.readouterr().err


# -- --watch -----------------------------------------------------------------------------------------------------------


def test_watch_runs_again_for_each_change(write, tmp_path):
    write({"p/__init__.py": "", "p/a.py": "x = 1\n", "p/b.py": ""})
    look = looker(["p/a.py"], ())
    runs = []
    changes = iter(
        [
            lambda: None,
            lambda: (tmp_path / "p/b.py").write_text("y = 1\n"),
            lambda: (tmp_path / "p/c.py").write_text(""),
            lambda: None,
            lambda: (tmp_path / "p/a.py").unlink(),
            lambda: (tmp_path / "cgsafe.toml").write_text("ignore = []"),
        ]
    )

    def pause() -> None:
        change = next(changes, None)
        if change is None:
            raise KeyboardInterrupt
        change()

    with pytest.raises(KeyboardInterrupt):
        watch(lambda: runs.append(1), look, pause)
    assert len(runs) == 5


def test_a_change_during_a_run_is_not_missed(write, tmp_path):
    write({"a.py": "x = 1\n"})
    runs = []

    def run() -> None:
        runs.append(1)
        if len(runs) == 1:
            (tmp_path / "a.py").write_text("x = 10\n")

    def pause() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(run, looker(["a.py"], ()), pause)
    assert len(runs) == 2


def test_watch_does_not_go_with_standard_input(write, capsys, monkeypatch):
    write({})
    with_stdin(monkeypatch, "")
    assert main(["check", "-", "--watch"]) == 2
    assert "--watch cannot look at standard input" in capsys.readouterr().err


# -- pre-commit and GitHub ---------------------------------------------------------------------------------------------


def test_the_hooks_are_commands_that_there_are():
    yaml = pytest.importorskip("yaml")
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["cgsafe", "cgsafe-fix", "cgsafe-staged"]
    usage = subprocess.run([sys.executable, "-m", "cgsafe", "check", "--help"], capture_output=True, text=True).stdout
    for hook in hooks:
        program, command, *options = shlex.split(hook["entry"])
        assert (program, command, hook["language"], hook["require_serial"]) == ("cgsafe", "check", "python", True)
        for option in options:
            if option.startswith("--") and option != "--fix":
                assert option in usage


def step_of(name: str) -> dict:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((REPOSITORY / "action.yml").read_text())
    (step,) = [step for step in action["runs"]["steps"] if step["name"] == name]
    return step


def run_action(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run the action's check with these inputs; exit code, outputs and log."""
    temporary = folder / "runner"
    (temporary / "cgsafe/bin").mkdir(parents=True, exist_ok=True)
    command = temporary / "cgsafe/bin/cgsafe"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cgsafe "$@"\n')
    command.chmod(0o755)
    (temporary / "output").write_text("")
    given = {"paths": "m.py", "format": "github", "output": "", "args": "", "fail": "true", **inputs}
    environment = {
        **os.environ,
        "RUNNER_TEMP": str(temporary),
        "GITHUB_OUTPUT": str(temporary / "output"),
        **{f"CGSAFE_{key.upper()}": value for key, value in given.items()},
    }
    script = step_of("Check")["run"]
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
    outputs = dict(line.split("=", 1) for line in (temporary / "output").read_text().splitlines())
    return done.returncode, outputs, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_action_checks(write):
    hot = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n"
    root = write({"m.py": hot, "dir with space/n.py": "x = 1\n"})
    code, outputs, log = run_action(root)
    assert (code, outputs) == (1, {"findings": "true"})
    assert "\n::error file=m.py,line=6" in "\n" + log
    code, outputs, _ = run_action(root, format="sarif", fail="false", paths="m.py\ndir with space\n")
    assert (code, outputs) == (0, {"findings": "true", "output": "cgsafe.sarif"})
    assert len(json.loads((root / "cgsafe.sarif").read_text())["runs"][0]["results"]) == 1
    code, outputs, _ = run_action(root, args="--ignore\nCG102\n")
    assert (code, outputs) == (0, {"findings": "false"})
    code, _, log = run_action(root, paths="--help; $(touch ran)")
    assert code == 2
    assert not (root / "ran").exists()
    assert "no such file" in log


def test_the_action_pastes_no_input_into_a_script():
    for name in ("Install cgsafe", "Check"):
        assert "${{" not in step_of(name)["run"]
