"""Comments that silence findings, those that tell the walk something, and what is said of those that do nothing."""

from __future__ import annotations

import ast
import json
import textwrap

import pytest

from cgsafe.add_ignores import with_ignores
from cgsafe.cli import main
from cgsafe.comments import Comments
from expectations import TORCH, cases, verify, verify_forward

# -- which findings a comment silences ---------------------------------------------------------------------------------

SILENT = {
    "on the line": "x.item()  # cgsafe: ignore[CG102]",
    "all codes": "x.item()  # cgsafe: ignore",
    "a prefix, in small letters": "x.item()  # cgsafe: ignore[cg1]",
    "several codes": "y = x.item() if x else 0  # cgsafe: ignore[CG101, CG102] a reason",
    "beside another comment": "x.item()  # noqa: E501  # cgsafe: ignore[CG102]  # type: ignore",
    "on the line above": "# cgsafe: ignore[CG102]\nx.item()",
    "above, with other comments between": "# cgsafe: ignore[CG102]\n# another\nx.item()",
    "at the end of a statement of several lines": "print(\n    x.item(),\n    n,\n)  # cgsafe: ignore[CG102]",
    "at the start of it": "print(  # cgsafe: ignore[CG102]\n    x.item(),\n)",
    "inside it": "print(\n    # cgsafe: ignore[CG102]\n    n,\n    x.item(),\n)",
    "behind a string of several lines": 'print(x.item(), """\n""")  # cgsafe: ignore[CG102]',
    "behind a backslash": "y = n + \\\n    x.item()  # cgsafe: ignore[CG102]",
    "a head of several lines": "if (\n    x.sum()\n    > 0\n):  # cgsafe: ignore[CG101]\n    pass",
    "in a range": "# cgsafe: off\nx.item()\nif x:\n    pass\n# cgsafe: on",
    "in a range for some codes": "# cgsafe: off[CG102]\nx.item()\n# cgsafe: on[CG102]",
    "in a range to the end": "# cgsafe: off[CG1]\nx.item()",
    "the whole file": "# cgsafe: ignore-file[CG102] a reason\nx.item()",
}

NOT_SILENT = {
    "another code": "if x.item():  # cgsafe: ignore[CG202]  # expect: CG001, CG102\n    pass",
    "in a string": 'y = "# cgsafe: ignore" + str(x.item())  # expect: CG102',
    "above a blank line": "# cgsafe: ignore[CG102]  # expect: CG001\n\nx.item()  # expect: CG102",
    "behind the statement above": "y = n  # cgsafe: ignore[CG102]  # expect: CG001\nx.item()  # expect: CG102",
    "in the body": "if x.sum() > 0:  # expect: CG101\n    n += 1  # cgsafe: ignore[CG101]  # expect: CG001",
    "after the range": "# cgsafe: off\nx.item()\n# cgsafe: on\nx.item()  # expect: CG102",
    "another code's range": "# cgsafe: off[CG101]  # expect: CG001\nx.item()  # expect: CG102",
    "an end for other codes": "# cgsafe: off[CG102]\nx.item()\n# cgsafe: on[CG101]  # expect: CG002\nx.item()",
    "some of its codes": "x.item()  # cgsafe: ignore[CG101, CG102]  # expect: CG001",
    "not ours": "x.item()  # see cgsafe: ignore  # expect: CG102",
}


@pytest.mark.parametrize("body", cases({**SILENT, **NOT_SILENT}))
def test_what_a_comment_silences(check, body):
    verify_forward(check, body)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_of_all_kinds(check, newline):
    text = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()  # cgsafe: ignore\n"
    report = check({"model.py": text.replace("\n", newline).encode()})
    assert (report.findings, report.errors, len(report.suppressed)) == ([], [], 1)


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_decorators_and_what_they_decorate_are_one(check, at):
    """A comment above the decorators, on one of them or on the `def` silences findings on each of these lines."""
    lines = ["", "@torch.compile", "@torch.no_grad()", "def inner(t):", "    return t * 2"]
    comment = "# cgsafe: ignore[CG301]"
    lines[at - 1] = f"{lines[at - 1]}  {comment}".strip()
    model = ["class M(nn.Module):", "    def forward(self, x: torch.Tensor):", "        return inner(x)"]
    report = check({"model.py": TORCH + "\n".join([*lines, *model])})
    assert (report.findings, [f.code for f in report.suppressed]) == ([], ["CG301"])


def test_a_finding_in_another_file_is_silenced_there(check):
    files = {
        "pyproject.toml": "",
        "helper.py": "def read(t):\n    return t.item()  # cgsafe: ignore[CG102]\n",
        "model.py": f"{TORCH}from helper import read\nclass M(nn.Module):\n"
        "    def forward(self, x: torch.Tensor):\n        return read(x)\n",
    }
    assert check(files, paths=["model.py"]).findings == []


# -- what is said of comments ------------------------------------------------------------------------------------------


def test_unused_is_only_said_where_all_rules_that_count_ran(check):
    text = f"{TORCH}x = 1  # cgsafe: ignore[CG101]\ny = 2  # cgsafe: ignore\n"
    lines = [(f.line, f.code) for f in check({"m.py": text}).findings]
    assert lines == [(4, "CG001"), (5, "CG001")]
    assert check({"m.py": text}, ignore="CG101").findings == []
    assert [f.line for f in check({"m.py": text}, ignore="CG401").findings] == [4]
    assert check({"m.py": text}, ignore="CG001").findings == []


def test_a_comment_is_needed_where_the_finding_is_hidden(check):
    body = "        return foo(x).item()  # cgsafe: ignore[CG102]\n"
    text = f"{TORCH}class M(nn.Module):\n    def forward(self, x):\n{body}"
    report = check({"m.py": text}, min_confidence="high")
    assert [f.code for f in report.findings] in ([], ["CG001"])
    report = check({"m.py": text.replace("foo(x)", "x")}, min_confidence="high")
    assert report.findings == []


def test_unused_says_nothing_where_the_check_was_not_complete(check):
    files = {"m.py": "x = 1  # cgsafe: ignore\n", "broken.py": "def\n"}
    assert check(files).findings == []


def test_a_finding_about_a_comment_can_be_silenced_by_name(check):
    assert check({"m.py": "x = 1  # cgsafe: ignore[CG101, CG001]\n"}).findings == []
    (finding,) = check({"m.py": "x = 1  # cgsafe: ignore\n"}).findings
    assert finding.code == "CG001"


REMOVED = {
    "at the end": ("x = 1  # cgsafe: ignore[CG101]\n", "x = 1\n"),
    "on its own line": ("if 1:\n    # cgsafe: ignore[CG101]\n    x = 1\n", "if 1:\n    x = 1\n"),
    "before another comment": ("x = 1  # cgsafe: ignore[CG101]  # noqa\n", "x = 1  # noqa\n"),
    "behind another comment": ("x = 1  # noqa  # cgsafe: ignore[CG101] why\n", "x = 1  # noqa\n"),
    "at the end of the file": ("x = 1  # cgsafe: ignore[CG101]", "x = 1"),
    "a range": ("# cgsafe: off\nx = 1\n", "x = 1\n"),
}


@pytest.mark.parametrize(("before", "after"), REMOVED.values(), ids=REMOVED)
def test_the_fix_removes_what_is_unused(check, before, after):
    (finding,) = check({"m.py": before}).findings
    assert (finding.code, finding.fix.safety) == ("CG001", "safe")
    assert applied(before, finding.fix.edits) == after


def test_the_fix_keeps_the_codes_that_are_needed(check):
    head = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()  "
    (finding,) = check({"m.py": f"{head}# cgsafe: ignore[CG101,CG102, CG2] why\n"}).findings
    assert applied(f"{head}# cgsafe: ignore[CG101,CG102, CG2] why\n", finding.fix.edits) == (
        f"{head}# cgsafe: ignore[CG102] why\n"
    )


def applied(text: str, edits) -> str:
    lines = text.splitlines(keepends=True)
    (edit,) = edits
    assert edit.path == "m.py"

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[: line - 1])) + column - 1

    return text[: offset(edit.line, edit.column)] + edit.replacement + text[offset(edit.end_line, edit.end_column) :]


def test_a_reason_can_be_required(check):
    text = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()  # cgsafe: ignore[CG102]"
    assert check({"m.py": text}).findings == []
    (finding,) = check({"m.py": text}, require_reason=True).findings
    assert (finding.code, finding.line) == ("CG002", 6)
    assert "a reason is required" in finding.message
    assert check({"m.py": text + " logged once"}, require_reason=True).findings == []


# -- comments that tell the walk something -----------------------------------------------------------------------------


def test_not_captured_cuts_the_walk(check):
    verify(
        check,
        {
            "m.py": f"""{TORCH}
class Logger(nn.Module):  # cgsafe: not-captured
    def forward(self, t):
        return t.item()

class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.logger = Logger()

    def forward(self, x: torch.Tensor):
        self.logger(x)
        self.one(x)
        self.two(x)
        return self.three(x)

    # cgsafe: not-captured
    @torch.no_grad()
    def one(self, t):
        return t.item()

    def two(
        self,
        t,
    ):  # cgsafe: not-captured
        return t.item()

    def three(self, t):
        def inner(s):  # cgsafe: not-captured
            return s.item()

        return inner(t), t.item()  # expect: CG102

class Eager(nn.Module):
    def forward(self, x: torch.Tensor):  # cgsafe: not-captured
        return x.item()
"""
        },
    )


MARKED = {
    "a value on the host": "y = x.sum()  # cgsafe: host\nif y:\n    return x",
    "a tensor of unknown origin": "y = n.thing()  # cgsafe: device\nif y:  # expect: CG101\n    return x",
    "from the line above": "# cgsafe: host\ny = x.sum()\nif y:\n    return x",
    "one of several names": "y, z = x.sum(), x.max()  # cgsafe: host[y]\nif y:\n    return x\nif z:  # expect: CG101\n    return x",
    "an annotated assignment": "y: int = foo(x)  # cgsafe: device\nif y:  # expect: CG101\n    return x",
    "an augmented one": "n += x.sum()  # cgsafe: host\nif n:\n    return x",
    "an attribute": "self.y = x.sum()  # cgsafe: host\nif self.y:\n    return x",
}


@pytest.mark.parametrize("body", cases(MARKED))
def test_where_a_value_lives(check, body):
    verify_forward(check, body)


def test_where_a_parameter_lives(check):
    verify(
        check,
        {
            "m.py": f"""{TORCH}
def helper(a, b):  # cgsafe: device[b]
    if a:
        return 1
    if b:  # expect: CG101
        return 2

class M(nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        # cgsafe: host
        n: torch.Tensor,
        m: torch.Tensor,
        *,
        k: torch.Tensor,  # cgsafe: host
    ):
        if n or k:
            return x
        if m:  # expect: CG101
            return x
        return helper(foo(), bar())
"""
        },
    )


def test_a_marker_changes_what_a_cache_holds(check, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    text = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return self.f(x)\n"
    text += "\n    def f(self, t):\n        return t.item()\n"
    for _ in range(2):
        assert len(check({"m.py": text}, cache=True).findings) == 1
        assert (
            check({"m.py": text.replace("f(self, t):", "f(self, t):  # cgsafe: not-captured")}, cache=True).findings
            == []
        )
        silent = check({"m.py": text.replace("t.item()", "t.item()  # cgsafe: ignore")}, cache=True)
        assert (silent.findings, len(silent.suppressed)) == ([], 1)


# -- the command line --------------------------------------------------------------------------------------------------

MODEL = f"""{TORCH}
class M(nn.Module):
    def forward(self, x: torch.Tensor):
        if x.sum() > 0:  # cgsafe: ignore[CG101] known
            return x
        return x.item()
"""


def test_suppressed_findings_are_counted_and_shown_when_asked_for(write, capsys):
    write({"m.py": MODEL})
    assert main(["check", "m.py", "--no-cache"]) == 1
    out = capsys.readouterr().out
    assert "CG101" not in out.replace("explain", "")
    assert "1 finding (1 error, 0 warnings) in 1 file.\n1 suppressed (--show-suppressed shows them).\n" in out
    assert main(["check", "m.py", "--no-cache", "--show-suppressed", "--output-format", "concise"]) == 1
    shown = [line for line in capsys.readouterr().out.splitlines() if "CG101" in line]
    assert len(shown) == 1
    assert shown[0].endswith("(suppressed by ignore on line 7: known)")
    assert main(["check", "m.py", "--no-cache", "--show-suppressed", "--output-format", "json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [f["suppression"] for f in data["findings"]] == [{"kind": "ignore", "line": 7, "reason": "known"}, None]
    assert (data["summary"]["findings"], data["summary"]["suppressed"]) == (1, 1)


def test_findings_that_are_all_suppressed_are_none(write, capsys):
    write({"m.py": MODEL.replace("x.item()", "x.item()  # cgsafe: ignore[CG102]")})
    assert main(["check", "m.py", "--no-cache", "--show-suppressed"]) == 0
    assert "No findings" in capsys.readouterr().out


def test_add_ignore_silences_what_there_is(write, capsys):
    root = write({"m.py": MODEL})
    assert main(["check", "m.py", "--no-cache", "--add-ignore", "--reason", "to be looked at"]) == 0
    assert capsys.readouterr().err == "cgsafe: silenced 1 finding in 1 file\n"
    assert (root / "m.py").read_text() == MODEL.replace("x.item()", "x.item()  # cgsafe: ignore[CG102] to be looked at")
    assert main(["check", "m.py", "--no-cache"]) == 0


def test_add_ignore_keeps_line_ends_and_encoding(write):
    text = MODEL.replace("x.item()", "x.item(), 'caf\u00e9'").replace("\n", "\r\n")
    root = write({"m.py": b"# coding: latin-1\r\n" + text.encode("latin-1")})
    assert main(["check", "m.py", "--no-cache", "--add-ignore"]) == 0
    changed = (root / "m.py").read_bytes()
    assert changed.decode("latin-1").count("\r\n") == changed.count(b"\n")
    assert "'caf\u00e9'  # cgsafe: ignore[CG102]\r\n".encode("latin-1") in changed


def test_add_ignore_refuses_what_it_cannot_do(write, capsys):
    root = write({"m.py": MODEL})
    assert main(["check", "m.py", "--no-cache", "--reason", "x"]) == 2
    assert main(["check", "m.py", "--no-cache", "--add-ignore", "--reason", "a # b"]) == 2
    assert main(["check", "m.py", "--no-cache", "--add-ignore", "--reason", "a\nb"]) == 2
    assert (root / "m.py").read_text() == MODEL


ADDED = {
    "a plain line": ("x = f(1)", [1], "x = f(1)  # cgsafe: ignore[A1]"),
    "a line with a comment": ("x = 1  # noqa", [1], "x = 1  # noqa  # cgsafe: ignore[A1]"),
    "a line with one of ours": ("x = 1  # cgsafe: ignore[B2] why", [1], "x = 1  # cgsafe: ignore[B2, A1] why"),
    "a comment of ours above": ("# cgsafe: ignore[B2]\nx = 1", [2], "# cgsafe: ignore[B2, A1]\nx = 1"),
    "the middle of a statement": ("f(\n    a,\n    b,\n)", [2], "f(\n    a,  # cgsafe: ignore[A1]\n    b,\n)"),
    "before a backslash": ("x = a + \\\n    b", [1], "x = a + \\\n    b  # cgsafe: ignore[A1]"),
    "in a string": ('x = f"""\n{a}\n"""', [2], 'x = f"""\n{a}\n"""  # cgsafe: ignore[A1]'),
    "in the braces of an f-string": ('x = f"""{\n    a\n}"""', [2], 'x = f"""{\n    a\n}"""  # cgsafe: ignore[A1]'),
    "a long line": (f"if 1:\n    x = '{'a' * 110}'", [2], f"if 1:\n    # cgsafe: ignore[A1]\n    x = '{'a' * 110}'"),
    "two statements": ("x = 1\ny = 2", [1, 2], "x = 1  # cgsafe: ignore[A1]\ny = 2  # cgsafe: ignore[A1]"),
    "twice in one": ("x = (1 +\n  2)", [1, 2], "x = (1 +  # cgsafe: ignore[A1]\n  2)"),
}


@pytest.mark.parametrize(("before", "lines", "after"), ADDED.values(), ids=ADDED)
def test_where_a_comment_is_put(before, lines, after):
    changed = with_ignores(before, [(line, "A1") for line in lines])
    assert changed == after
    assert ast.dump(ast.parse(changed)) == ast.dump(ast.parse(before))
    comments = Comments(changed)
    assert all(any(d.lists("A1") for d in comments.directives) for _ in lines)


def test_comments_in_code_that_does_not_tokenise_are_read_as_far_as_it_goes():
    text = textwrap.dedent("""
        x = 1  # cgsafe: ignore
        y = (
    """)
    assert [d.line for d in Comments(text).directives] == [2]


def test_fix_removes_what_silences_nothing(write, capsys):
    text = MODEL.replace("return x\n", "return x  # cgsafe: ignore[CG102]  # kept\n")
    root = write({"m.py": text.replace("x.item()", "x.item()  # cgsafe: ignore[CG102, CG2] known")})
    assert main(["check", "m.py", "--no-cache", "--fix"]) == 0
    assert (root / "m.py").read_text() == MODEL.replace("return x\n", "return x  # kept\n").replace(
        "x.item()", "x.item()  # cgsafe: ignore[CG102] known"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--fix --add-ignore", "--fix and --add-ignore exclude each other"),
        ("--diff --staged", "--diff and --staged exclude each other"),
        ("--staged --add-ignore", "--staged and --add-ignore exclude each other"),
        ("- --stdin-filename m.py --fix", "--stdin-filename and --fix exclude each other"),
    ],
)
def test_options_that_do_not_go_together(write, capsys, options, message):
    root = write({"m.py": MODEL})
    assert main(["check", *options.split()]) == 2
    assert message in capsys.readouterr().err
    assert (root / "m.py").read_text() == MODEL


def test_add_ignore_leaves_a_read_only_file_alone(write, tmp_path, capsys):
    text = f"{TORCH}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n"
    write({"m.py": text})
    (tmp_path / "m.py").chmod(0o444)
    assert main(["check", "m.py", "--no-cache", "--add-ignore"]) == 2
    assert "m.py: cannot write it: it is read-only" in capsys.readouterr().err
    assert (tmp_path / "m.py").read_text() == text
