"""Baselines: what counts as the same finding, what is stale, and what the file looks like."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from cgsafe import baseline
from cgsafe.cli import main
from expectations import TORCH

MODEL = f"""{TORCH}

class Model(nn.Module):
    def forward(self, x: torch.Tensor, n: int):
        if x.sum() > n:
            return x
        return self.scale(x)

    def scale(self, t):
        return t * t.max().item() + t.max().item()
"""
NEW = "        y = x.tolist()\n"


def known(write, files: dict[str, str], *options: str) -> None:
    write({"pyproject.toml": "", **files})
    assert main(["baseline", "-q", "-o", "base.tsv", *options]) == 0


def fresh(capsys, *options: str) -> list[tuple[str, int, str]]:
    """What a check reports as new."""
    capsys.readouterr()
    code = main(["check", "--baseline", "base.tsv", "--output-format", "json", "--no-cache", *options])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == (1 if findings else 0)
    return [(f["path"], f["line"], f["code"]) for f in findings]


def test_the_file_is_sorted_has_a_line_for_each_finding_and_no_line_numbers(write, tmp_path):
    known(write, {"b.py": MODEL, "a/c.py": MODEL})
    lines = (tmp_path / "base.tsv").read_text().splitlines()
    entries = [line.split("\t") for line in lines if not line.startswith("#")]
    assert len(entries) == 6
    assert entries == sorted(entries, key=lambda e: (e[0], e[2], e[1], e[3], e[4]))
    assert [e[:4] for e in entries[:2]] == [
        ["a/c.py", "CG101", "Model.forward", "x.sum() > n"],
        ["a/c.py", "CG102", "Model.scale", "t.max().item()"],
    ]


def test_what_is_known_is_not_reported_and_what_is_new_is(write, capsys, tmp_path):
    known(write, {"m.py": MODEL})
    assert fresh(capsys) == []
    (tmp_path / "m.py").write_text(MODEL.replace("        if x.sum", f"{NEW}        if x.sum"))
    assert fresh(capsys) == [("m.py", 8, "CG102")]


CHANGES = {
    "moved lines": lambda text: {"m.py": text.replace("\n\nclass", "\n\n# a comment\nX = 1\n\n\nclass")},
    "methods in another order": lambda text: {"m.py": reordered(text)},
    "another layout": lambda text: {
        "m.py": text.replace("x.sum() > n", "(\n                x.sum()\n                > n\n        )").replace(
            "t.max().item() +", "t.max(\n        ).item()+"
        )
    },
    "a renamed file": lambda text: {"other.py": text},
    "a file in another folder": lambda text: {"package/__init__.py": "", "package/m.py": text},
    "a renamed function": lambda text: {"m.py": text.replace("scale", "rescale")},
    "a renamed class and file": lambda text: {"other.py": text.replace("Model", "Network")},
    "a function that moved to another class": lambda text: {
        "m.py": text.replace("    def scale", "class Rest(nn.Module):\n    def scale").replace(
            "self.scale(x)", "Rest.scale(self, x)"
        )
    },
}


def reordered(text: str) -> str:
    head, scale = text.split("    def scale")
    before, forward = head.split("    def forward")
    return f"{before}    def scale{scale}\n    def forward{forward}"


@pytest.mark.parametrize("change", CHANGES)
def test_what_only_moved_stays_known(write, capsys, tmp_path, change):
    known(write, {"m.py": MODEL})
    (tmp_path / "m.py").unlink()
    write(CHANGES[change](MODEL))
    assert fresh(capsys) == []


def test_one_more_of_the_same_is_new(write, capsys, tmp_path):
    known(write, {"m.py": MODEL})
    (tmp_path / "m.py").write_text(MODEL.replace("return t * t", "a = t.max().item()\n        return a * t * t"))
    assert len(fresh(capsys)) == 1


def test_a_copy_in_another_file_is_new_while_the_old_one_is_there(write, capsys, tmp_path):
    known(write, {"m.py": MODEL})
    (tmp_path / "copy_of.py").write_text(MODEL)
    assert {path for path, _, _ in fresh(capsys)} == {"copy_of.py"}


def test_what_is_fixed_is_told_and_can_be_taken_out(write, capsys, tmp_path):
    known(write, {"m.py": MODEL})
    (tmp_path / "m.py").write_text(MODEL.replace("x.sum() > n", "n > 3") + "\n    def new(self): ...\n")
    assert main(["check", "--baseline", "base.tsv", "--no-cache"]) == 0
    out, err = capsys.readouterr()
    assert "2 in the baseline" in out
    assert err == "cgsafe: base.tsv: 1 entry no longer found; `cgsafe baseline --prune -o base.tsv` removes them\n"
    assert main(["baseline", "--prune", "-o", "base.tsv"]) == 0
    assert capsys.readouterr().err == "cgsafe: base.tsv: 2 known (0 added, 1 taken out)\n"
    assert main(["check", "--baseline", "base.tsv", "--no-cache"]) == 0
    assert capsys.readouterr().err == ""


def test_pruning_adds_nothing_and_follows_what_moved(write, tmp_path, capsys):
    known(write, {"m.py": MODEL})
    (tmp_path / "m.py").rename(tmp_path / "other.py")
    (tmp_path / "new.py").write_text(MODEL)
    assert main(["baseline", "--update", "-q", "-o", "base.tsv"]) == 0
    paths = [line.split("\t")[0] for line in (tmp_path / "base.tsv").read_text().splitlines() if "\t" in line]
    assert len(paths) == 3
    assert len(fresh(capsys)) == 3  # those of the other of the two files


def test_a_part_of_the_tree_says_nothing_about_the_rest(write, tmp_path, capsys):
    known(write, {"m.py": MODEL, "other.py": MODEL})
    before = (tmp_path / "base.tsv").read_text()
    assert main(["check", "m.py", "--baseline", "base.tsv", "--no-cache"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["check", "--select", "CG102", "--baseline", "base.tsv", "--no-cache"]) == 0
    assert main(["check", "--min-confidence", "high", "--baseline", "base.tsv", "--no-cache"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["baseline", "m.py", "-q", "-o", "base.tsv"]) == 0
    assert (tmp_path / "base.tsv").read_text() == before


@pytest.mark.parametrize("part", ["n.py", "part"])
def test_a_part_of_the_tree_says_nothing_about_a_file_that_was_renamed(write, tmp_path, capsys, part):
    known(write, {"m.py": MODEL, "n.py": "x = 1", "part/o.py": "x = 1"})
    before = (tmp_path / "base.tsv").read_text()
    (tmp_path / "m.py").rename(tmp_path / "renamed.py")
    assert main(["check", part, "--baseline", "base.tsv", "--no-cache"]) == 0
    assert "no longer found" not in capsys.readouterr().err
    for words in (["--prune"], []):
        assert main(["baseline", *words, "-q", "-o", "base.tsv", part]) == 0
        assert (tmp_path / "base.tsv").read_text() == before
    assert main(["check", "--baseline", "base.tsv", "--no-cache"]) == 0
    (tmp_path / "renamed.py").unlink()
    assert main(["baseline", "--prune", "-q", "-o", "base.tsv"]) == 0  # it is gone for good, and all was looked at
    assert "m.py" not in (tmp_path / "base.tsv").read_text()


def test_the_two_sides_of_a_merge_conflict_count(write, tmp_path, capsys):
    known(write, {"m.py": MODEL})
    lines = (tmp_path / "base.tsv").read_text().splitlines()
    head, entries = lines[:2], lines[2:]
    conflict = ["<<<<<<< ours", *entries[:2], "||||||| base", "=======", *entries[1:], ">>>>>>> theirs"]
    (tmp_path / "base.tsv").write_text("\n".join([*head, *conflict]) + "\n")
    assert main(["check", "--baseline", "base.tsv", "--no-cache"]) == 0
    assert capsys.readouterr().err == (
        "cgsafe: base.tsv: marks of a merge conflict on lines 3, 6, 7, 10; the entries of all sides count\n"
    )
    assert main(["baseline", "--prune", "-q", "-o", "base.tsv"]) == 0
    assert (tmp_path / "base.tsv").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "base.tsv: no such baseline; `cgsafe baseline -o base.tsv` writes it"),
        (b"# cgsafe baseline, version 9\n", "base.tsv:1: written by a later cgsafe: version 9 is not known"),
        (b"\n# x\nm.py CG101\n", "base.tsv:3: not a line of a baseline: expected path"),
        (b"\xff\xfe", "base.tsv: not valid UTF-8, so no baseline"),
        (b"# cgsafe baseline, version " + b"9" * 5000, "base.tsv:1: written by a later cgsafe"),
        ("m.py\tCG101\n".encode("utf-16"), "base.tsv: not valid UTF-8, so no baseline"),
        (b"m.py    CG101    f    x    0123\n", "base.tsv:1: not a line of a baseline"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_a_usage_error(write, capsys, content, message):
    write({"m.py": MODEL, **({"base.tsv": content} if content is not None else {})})
    assert main(["check", "--baseline", "base.tsv", "--no-cache"]) == 2
    out, err = capsys.readouterr()
    assert (out, message in err) == ("", True)


def test_an_incomplete_check_leaves_the_baseline_alone(write, tmp_path, capsys):
    known(write, {"m.py": MODEL})
    before = (tmp_path / "base.tsv").read_text()
    (tmp_path / "broken.py").write_text("def\n")
    assert main(["baseline", "-o", "base.tsv"]) == 2
    assert "stays as it is" in capsys.readouterr().err
    assert (tmp_path / "base.tsv").read_text() == before


def test_the_configuration_names_the_baseline(write, tmp_path, monkeypatch, capsys):
    write({"cgsafe.toml": "baseline = 'known.tsv'\n", "sub/m.py": MODEL})
    assert main(["baseline", "-q"]) == 0
    assert (tmp_path / "known.tsv").exists()
    monkeypatch.chdir(tmp_path / "sub")
    assert main(["check", "--no-cache"]) == 0
    assert main(["check", "--no-cache", "--no-baseline"]) == 1


def test_odd_names_and_expressions_stay_on_one_line(write, capsys):
    name = "#a\tb\n.py"
    known(write, {name: MODEL.replace("x.sum() > n", "x.sum() > f('\\t\\x1b')")})
    assert fresh(capsys) == []


def test_the_lines_are_read_back_as_they_were_written(tmp_path):
    entries = [baseline.Entry("a.py", "f", "CG101", "x", "1"), baseline.Entry("a.py", "", "CG001", "# y", "2")]
    path = tmp_path / "base.tsv"
    path.write_text(baseline.text_of(entries))
    assert sorted(baseline.load(str(path)).entries) == sorted(entries)
    assert textwrap.dedent(path.read_text()).count("\n") == 4


@pytest.mark.parametrize("change", [lambda b: b"\xef\xbb\xbf" + b, lambda b: b.replace(b"\n", b"\r\n")])
def test_what_an_editor_does_to_the_file_does_not_matter(write, tmp_path, capsys, change):
    known(write, {"m.py": MODEL})
    path = tmp_path / "base.tsv"
    path.write_bytes(change(path.read_bytes()))
    assert fresh(capsys) == []


def test_a_baseline_can_go_to_standard_output(write, tmp_path, capsys):
    known(write, {"m.py": MODEL})
    assert main(["baseline", "-q", "-o", "-"]) == 0
    assert capsys.readouterr().out == (tmp_path / "base.tsv").read_text()
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("words", ["baseline -q -o", "check -q --output-format json-lines --output"])
def test_results_can_go_to_a_pipe_by_name(write, words):
    """What is in it already is not waited for."""
    known(write, {"m.py": MODEL})
    command = [sys.executable, "-m", "cgsafe", *words.split(), "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1 if "check" in words else 0, "")
    assert "CG101" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--baseline", ""],
        ["check", "--diff-base", ""],
        ["check", "--output", ""],
        ["check", "-", "--stdin-filename", ""],
        ["baseline", "-o", ""],
    ],
)
def test_a_value_that_a_script_left_empty_is_told(write, capsys, arguments):
    write({"m.py": MODEL})
    assert main(arguments) == 2
    assert "the value is empty" in capsys.readouterr().err
