"""`--diff-base` and `--staged`: findings in changed lines, and those that a change causes elsewhere."""

from __future__ import annotations

import json
import subprocess

import pytest

from cgsafe.cli import main
from expectations import TORCH

HELPER = "def scale(t):\n    return len(t.shape)\n\n\ndef other(t):\n    return t.sum().item()\n"
MODEL = f"""{TORCH}from helper import other, scale


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
        if scale(x) > 1:
            return other(x)
        return x.tolist()
"""


def git(*arguments: str) -> None:
    options = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *options, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(write):
    """A repository with a model and its helper, both committed."""
    root = write({"model.py": MODEL, "helper.py": HELPER, "pyproject.toml": ""})
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    return root


def found(capsys, *options: str) -> list[tuple[str, int, str]]:
    capsys.readouterr()
    code = main(["check", "--output-format", "json", "--no-cache", *options])
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert code == (1 if data["findings"] else 0), err
    return [(f["path"], f["line"], f["code"]) for f in data["findings"]]


def test_no_change_no_findings(repository, capsys):
    assert len(found(capsys)) == 2
    assert found(capsys, "--diff-base", "HEAD") == []
    assert found(capsys, "--staged") == []
    assert main(["check", "--diff-base", "main", "--no-cache"]) == 0
    assert "2 findings elsewhere, not of this change.\n" in capsys.readouterr().out


def test_a_finding_in_a_changed_line(repository, capsys):
    (repository / "model.py").write_text(
        MODEL.replace("        return x.tolist()", "        x.cpu()\n        return x.tolist()")
    )
    assert found(capsys, "--diff-base", "main") == [("model.py", 11, "CG102")]


def test_a_path_through_a_changed_line(repository, capsys):
    """The call is new or changed, the hazard below it is not."""
    (repository / "model.py").write_text(MODEL.replace("return other(x)", "return other(x * 2)"))
    assert found(capsys, "--diff-base", "main") == [("helper.py", 6, "CG102")]


def test_a_helper_that_breaks_its_captured_caller(repository, capsys):
    """No line of the path is changed: what the helper returns makes the difference."""
    (repository / "helper.py").write_text(HELPER.replace("return len(t.shape)", "return t.abs().max()"))
    assert found(capsys, "--diff-base", "main") == [("model.py", 9, "CG101")]
    assert found(capsys, "model.py", "--diff-base", "main") == [("model.py", 9, "CG101")]


def test_lines_that_are_taken_away_can_cause_findings(repository, capsys):
    guarded = MODEL.replace("        return x.tolist()", "        x = len(x.shape)\n        return x.tolist()")
    (repository / "model.py").write_text(guarded)
    git("commit", "-qam", "two")
    (repository / "model.py").write_text(MODEL)
    assert found(capsys, "--diff-base", "HEAD") == [("model.py", 11, "CG102")]


def test_moved_and_renamed_code_is_not_changed(repository, capsys):
    text = (repository / "model.py").read_text()
    (repository / "model.py").unlink()
    (repository / "network.py").write_text("# a comment\n" + text)
    assert found(capsys, "--diff-base", "main") == []


def test_new_files_are_changed_whether_git_knows_them_or_not(repository, capsys):
    (repository / "new.py").write_text(
        TORCH + "class New(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n"
    )
    assert found(capsys, "--diff-base", "main") == [("new.py", 6, "CG102")]
    assert found(capsys, "--staged") == []
    git("add", "new.py")
    assert found(capsys, "--staged") == [("new.py", 6, "CG102")]


def test_changes_are_those_since_the_branch_left(repository, capsys):
    """What happened on the other branch meanwhile is not of this change."""
    git("checkout", "-q", "-b", "topic")
    (repository / "model.py").write_text(MODEL.replace("x.tolist()", "x.cpu()"))
    git("commit", "-qam", "topic")
    git("checkout", "-q", "main")
    (repository / "helper.py").write_text(HELPER.replace("t.sum().item()", "t.item()"))
    git("commit", "-qam", "main")
    git("checkout", "-q", "topic")
    assert found(capsys, "--diff-base", "main") == [("model.py", 11, "CG102")]


def test_what_is_staged_is_checked_not_what_is_on_disk(repository, capsys):
    (repository / "model.py").write_text("# more\n" + MODEL.replace("x.tolist()", "x.cpu()"))
    git("add", "model.py")
    (repository / "model.py").write_text(MODEL.replace("x.tolist()", "x"))
    assert found(capsys, "--staged") == [("model.py", 12, "CG102")]
    (repository / "helper.py").write_text(HELPER.replace("return len(t.shape)", "return t.max()"))
    assert found(capsys, "--staged") == [("model.py", 12, "CG102")]


def test_before_the_first_commit_all_is_new(write, capsys):
    write({"model.py": MODEL, "helper.py": HELPER, "pyproject.toml": ""})
    git("init", "-q")
    git("add", ".")
    assert len(found(capsys, "--staged")) == 2


def test_from_a_folder_below_the_top(repository, capsys, monkeypatch):
    (repository / "sub").mkdir()
    monkeypatch.chdir(repository / "sub")
    (repository / "model.py").write_text(MODEL.replace("x.tolist()", "x.cpu()"))
    assert found(capsys, "..", "--diff-base", "main") == [("../model.py", 11, "CG102")]


def test_nothing_that_the_repository_configures_is_run(repository, capsys):
    """Filters, hooks and diff programs stay unused."""
    git("config", "filter.evil.clean", "touch ran; cat")
    git("config", "diff.evil.textconv", "touch ran; cat")
    git("config", "core.fsmonitor", "touch ran")
    (repository / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    (repository / "model.py").write_text(MODEL.replace("x.tolist()", "x.cpu()"))
    assert len(found(capsys, "--diff-base", "HEAD")) == 1
    assert found(capsys, "--staged") == []
    assert not (repository / "ran").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--diff-base", "nowhere"], "--diff-base: git knows no commit `nowhere`; is it fetched?"),
        (["--diff-base", "--output=x"], "--diff-base: git knows no commit `--output=x`; is it fetched?"),
        (["--diff-base", "HEAD", "--staged"], "--diff-base and --staged exclude each other"),
    ],
)
def test_wrong_usage(repository, capsys, options, message):
    assert main(["check", *options]) == 2
    assert message in capsys.readouterr().err


def test_outside_of_a_repository(write, capsys, tmp_path):
    write({"m.py": MODEL})
    assert main(["check", "--staged"]) == 2
    assert "--staged:" in (err := capsys.readouterr().err)
    assert "is not in a git repository" in err


def test_without_git(repository, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert main(["check", "--diff-base", "HEAD"]) == 2
    assert "git is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("place", [".git", "absolute"])
def test_in_a_hook_git_names_its_folder(repository, capsys, monkeypatch, write, place):
    """With GIT_DIR set, the working directory is the top, wherever the paths lie."""
    write({"sub/m.py": MODEL.replace("helper", "sub.helper"), "sub/helper.py": HELPER})
    git("add", ".")
    monkeypatch.setenv("GIT_DIR", place if place == ".git" else str(repository / ".git"))
    for option in (["--staged"], ["--diff-base", "HEAD"]):
        assert "sub/m.py" in {path for path, _, _ in found(capsys, *option, "sub")}


def test_what_lies_in_a_submodule_is_not_of_this_repository(repository, capsys, write):
    write({"part/m.py": MODEL.replace("helper", "part.helper"), "part/helper.py": HELPER})
    git("init", "-q", "part")
    git("-C", "part", "add", ".")
    git("-C", "part", "commit", "-q", "-m", "one")
    git("add", "part")
    git("commit", "-q", "-m", "two")
    assert found(capsys, "--diff-base", "HEAD") == []


def test_a_merge_conflict_cannot_be_committed(repository, capsys):
    git("checkout", "-q", "-b", "other")
    (repository / "model.py").write_text(MODEL.replace("> 1", "> 2"))
    git("commit", "-q", "-a", "-m", "two")
    git("checkout", "-q", "main")
    (repository / "model.py").write_text(MODEL.replace("> 1", "> 3"))
    git("commit", "-q", "-a", "-m", "three")
    with pytest.raises(subprocess.CalledProcessError):
        git("merge", "other")
    assert main(["check", "--staged"]) == 2
    assert "model.py has a merge conflict" in capsys.readouterr().err


def test_a_new_file_that_is_named_by_itself(repository, capsys, write):
    """As pre-commit does: the state before lacks the file, and can be judged all the same."""
    write({"helper.py": HELPER.replace("len(t.shape)", "t.sum()"), "new.py": "x = 1\n"})
    git("add", ".")
    for option in (["--staged"], ["--diff-base", "HEAD"]):
        assert found(capsys, *option, "model.py", "helper.py", "new.py") == [("model.py", 9, "CG101")]
