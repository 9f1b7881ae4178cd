"""The output formats, given a report."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from cgsafe.findings import Confidence, Edit, Fix, Problem, Report, Root, Severity, Step
from cgsafe.report import FORMATS, Options, renderer
from cgsafe.report.style import escape
from samples import RULES, finding

CODE = """\
def forward(self, x):
    if x > 0:
        return x
    return -x
"""


def rendered(name: str, report: Report, **options: Any) -> str:
    out = io.StringIO()
    renderer(name)(report, out, Options(**options))
    return out.getvalue()


def report_of(*findings: Any, **values: Any) -> Report:
    return Report(findings=list(findings), **{"files_checked": 1, "files_known": 3, "roots": 2, **values})


# -- all formats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"grouped", "html"}))  # these have an order of their own
def test_the_order_is_that_of_path_line_column_code(name):
    findings = [
        finding(message="m1"),
        finding(message="m2", path="a.py", line=9),
        finding(message="m3", column=3),
        finding(message="m4", code="CG001"),
        finding(message="m5", line=1),
        finding(message="m6", path="a.py", line=10),
    ]
    text = rendered(name, report_of(*findings))
    assert re.findall(r"m\d", text) == ["m2", "m6", "m5", "m3", "m4", "m1"]
    assert text == rendered(name, report_of(*reversed(findings)))


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_text_does_not_reach_the_terminal(name, write):
    evil = "\x1b[2J\u202e\r\n\x07\u2028\udcff"
    write({"model.py": f"x = 1  # {evil[:5]}\n".encode()})
    hostile = finding(
        message=f"m {evil}",
        path=f"a{evil}.py",
        function=f"f{evil}",
        root=Root("k", f"r {evil}", f"p{evil}", 1, f"f{evil}"),
        trace=(Step(f"t{evil}", 1, f"f{evil}", f"n {evil}"),),
        fix=Fix(f"fix {evil}"),
    )
    text = rendered(name, report_of(hostile, finding(line=1, column=1, end_line=1, end_column=30)))
    assert text.encode("utf-8")
    assert set(text) - set("\n") == {c for c in text if c.isprintable()}


def test_escaping():
    assert escape("plain \u00e9\u4e2d") == "plain \u00e9\u4e2d"
    assert escape("a\tb\x1b\u202e\U000e0001") == r"a\tb\x1b\u202e\U000e0001"


# -- text --------------------------------------------------------------------------------------------------------------


def test_text_says_where_what_why_and_what_to_do(write):
    write({"model.py": CODE})
    text = rendered("text", report_of(finding()), rules={rule.code: rule for rule in RULES})
    assert text == (
        """\
model.py:2:8: CG101 error[medium] `x > 0` is a tensor on the GPU; its truth value waits for it
  1 | def forward(self, x):
  2 |     if x > 0:
    |        ^^^^^
  path:
    model.py:1  Model.forward  root: the forward of an nn.Module
    model.py:2  Model.forward  the truth value is taken here
  fix: use `torch.where` (by hand)
  the GPU says: RuntimeError: operation not permitted when stream is capturing

1 finding (1 error, 0 warnings) in 1 file.
More about each: cgsafe explain CG101
"""
    )


def test_text_tells_the_error_of_a_code_once(write):
    write({"model.py": CODE})
    rules = {rule.code: rule for rule in RULES}
    text = rendered("text", report_of(finding(), finding(line=3), finding(code="CG102")), rules=rules)
    assert text.count("the GPU says") == 1


def test_text_quiet_has_no_summary_and_verbose_tells_more():
    assert rendered("text", report_of(), quiet=True) == ""
    assert rendered("text", report_of()) == "No findings in 1 file.\n"
    assert rendered("text", report_of(), verbose=True).splitlines()[-1] == "3 known files, 2 capture roots."


def test_text_tells_what_is_hidden_and_what_failed():
    text = rendered("text", report_of(hidden=2, errors=[Problem("a.py", 1, "m")]), min_confidence="high")
    assert text == (
        "No findings in 1 file; 1 problem kept the check from being complete.\n"
        "2 findings below high confidence not shown.\n"
    )


def test_text_shows_further_paths_and_what_lies_outside(write):
    write({"model.py": CODE})
    also = ((Root("graph-context", "with torch.cuda.graph", "run.py", 7, "capture"), (Step("run.py", 8, "capture"),)),)
    text = rendered("text", report_of(finding(outside=True, root_count=5, also=also)))
    assert "(outside the given paths)" in " ".join(text.split())
    assert "  path (5 roots in all):\n" in text
    assert "  also:\n    run.py:7  capture  root: with torch.cuda.graph\n    run.py:8  capture\n" in text


@pytest.mark.parametrize(
    ("fix", "effort"),
    [
        (Fix("do it"), "by hand"),
        (Fix("do it", "safe", transform=("a",)), "try --fix"),
        (Fix("do it", "unsafe", transform=("a",)), "try --fix --unsafe-fixes"),
        (Fix("do it", "safe", (Edit("model.py", 1, 1, 1, 1, ""),)), "can be applied as it is"),
        (Fix("do it", "unsafe", (Edit("model.py", 1, 1, 1, 1, ""),)), "an edit to review"),
    ],
)
def test_text_says_what_a_fix_takes(fix, effort):
    assert f"  fix: do it ({effort})\n" in rendered("text", report_of(finding(fix=fix)))
    assert "fix:" not in rendered("text", report_of(finding(fix=None)))


@pytest.mark.parametrize("width", [80, 200])
def test_text_fits_the_screen(write, width):
    write({"model.py": "x = " + " + ".join(f"name_{n}" for n in range(60)) + "\n"})
    wordy = " ".join(["word"] * 60)
    text = rendered(
        "text",
        report_of(
            finding(
                line=1,
                column=300,
                end_line=1,
                end_column=307,
                message=wordy,
                fix=Fix(wordy),
                trace=(
                    Step(
                        "some/long/folder/name/of/a/model/modeling_file.py",
                        1234,
                        "AClass.with_a_long_method_name",
                        wordy,
                    ),
                ),
            )
        ),
        width=width,
    )
    assert max(map(len, text.splitlines())) <= width
    assert text.count("word") == 180
    code, marks = (line for line in text.splitlines() if re.match(r"\s+1? \|", line))
    assert (
        code[marks.index("^") : marks.rindex("^") + 1] == ("x = " + " + ".join(f"name_{n}" for n in range(60)))[299:306]
    )


@pytest.mark.parametrize("column", [1, 5, 40, 150, 260, 395])
@pytest.mark.parametrize("width", [40, 80])
def test_the_marks_stand_below_the_place_in_a_long_line(write, column, width):
    line = "".join(f"{n:03}_" for n in range(100))
    write({"model.py": line})
    text = rendered("text", report_of(finding(line=1, column=column, end_line=1, end_column=column + 5)), width=width)
    code, marks = (line for line in text.splitlines() if re.match(r"\s+1? \|", line))
    assert len(code) <= width
    assert code[marks.index("^") : marks.rindex("^") + 1] == line[column - 1 : column + 4]


def test_the_marks_count_columns_of_the_screen(write):
    # A tab is four columns, a wide character two, an escaped one as many as its escape.
    line = "\tif '\u4e2d\u6587\x1b' == x:"
    write({"model.py": line.encode()})
    start = line.index("x:") + 1
    text = rendered("text", report_of(finding(line=1, column=start, end_line=1, end_column=start + 1)))
    shown = "    if '\u4e2d\u6587\\x1b' == x:"
    before = shown.index("x:") + 2  # the two wide characters take a column more each
    assert f"  1 | {shown}\n    | {' ' * before}^\n" in text


def test_a_place_of_several_lines(write):
    write({"model.py": "if (\n    a\n    and b\n):\n    pass\n"})
    text = rendered("text", report_of(finding(line=1, column=4, end_line=4, end_column=2)))
    assert (
        """\
  1 | if (
    |    ^
  2 |     a
    |     ^
  3 |     and b
    |     ^^^^^
  4 | ):
    | ^
"""
        in text
    )


def test_a_place_of_many_lines_is_cut(write):
    write({"model.py": "f(\n" + "    a,\n" * 20 + ")\n"})
    text = rendered("text", report_of(finding(line=1, column=1, end_line=22, end_column=2)))
    assert text.count(" a,") == 2
    assert "... to line 22" in text


@pytest.mark.parametrize(("line", "column", "end_column"), [(0, 1, 2), (99, 1, 2), (2, 500, 600), (2, 9, 3)])
def test_a_place_that_is_not_in_the_file_breaks_nothing(write, line, column, end_column):
    write({"model.py": CODE})
    text = rendered("text", report_of(finding(line=line, column=column, end_line=line, end_column=end_column)))
    assert f"model.py:{line}:{column}: CG101" in text


def test_text_without_the_file_and_from_standard_input(write):
    write({})
    assert " | " not in rendered("text", report_of(finding()))
    assert "2 |     if x > 0:" in rendered("text", report_of(finding(path="-")), stdin=CODE.encode())


def test_colours_only_decorate(write):
    write({"model.py": CODE})
    report = report_of(finding(), finding(severity=Severity.WARNING, line=3), errors=[Problem("x", 0, "y")])
    for name in ("text", "concise"):
        colored = rendered(name, report, color=True)
        assert "\x1b[1;31m" in colored
        assert "\x1b[1;33m" in colored
        assert re.sub(r"\x1b\[[\d;]*m", "", colored) == rendered(name, report)


# -- concise -----------------------------------------------------------------------------------------------------------


def test_concise_is_one_line_each_and_never_wraps():
    long = "word " * 100
    text = rendered(
        "concise",
        report_of(finding(), finding(line=3, message=long + "\nend", outside=True, confidence=Confidence.HIGH)),
        width=40,
    )
    assert text == (
        "model.py:2:8: CG101 error[medium] `x > 0` is a tensor on the GPU; its truth value waits for it\n"
        f"model.py:3:8: CG101 error[high] {long}\\nend (outside the given paths)\n"
    )
    assert rendered("concise", report_of()) == ""


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_json_keeps_its_contract():
    edit = Edit("model.py", 2, 8, 2, 13, "y")
    root = Root("graph-context", "with torch.cuda.graph", "run.py", 7, "capture")
    full = finding(
        fix=Fix("do it", "safe", (edit,)),
        root_count=2,
        also=((root, (Step("run.py", 8, "capture", "calls"),)),),
    )
    text = rendered("json", report_of(full, hidden=4, errors=[Problem("b.py", 3, "bad"), Problem("a.py", 0, "gone")]))
    assert text.endswith("}\n")
    assert text.isascii()
    data = json.loads(text)
    assert list(data) == ["version", "tool", "findings", "errors", "summary"]
    assert data["version"] == 1
    assert data["tool"]["name"] == "cgsafe"
    assert data["errors"] == [
        {"path": "a.py", "line": 0, "message": "gone"},
        {"path": "b.py", "line": 3, "message": "bad"},
    ]
    assert data["findings"] == [
        {
            "code": "CG101",
            "name": "tensor-truth-value",
            "severity": "error",
            "confidence": "medium",
            "message": "`x > 0` is a tensor on the GPU; its truth value waits for it",
            "path": "model.py",
            "line": 2,
            "column": 8,
            "end_line": 2,
            "end_column": 13,
            "function": "Model.forward",
            "root": {
                "kind": "module-forward",
                "reason": "the forward of an nn.Module",
                "path": "model.py",
                "line": 1,
                "function": "Model.forward",
            },
            "trace": [
                {"path": "model.py", "line": 2, "function": "Model.forward", "note": "the truth value is taken here"}
            ],
            "root_count": 2,
            "also": [
                {
                    "root": {
                        "kind": "graph-context",
                        "reason": "with torch.cuda.graph",
                        "path": "run.py",
                        "line": 7,
                        "function": "capture",
                    },
                    "trace": [{"path": "run.py", "line": 8, "function": "capture", "note": "calls"}],
                }
            ],
            "fix": {
                "description": "do it",
                "safety": "safe",
                "edits": [
                    {
                        "path": "model.py",
                        "line": 2,
                        "column": 8,
                        "end_line": 2,
                        "end_column": 13,
                        "replacement": "y",
                    }
                ],
            },
            "fingerprint": "f00d",
            "outside": False,
            "source": "",
            "suppression": None,
            "baseline": "",
            "region": "captured",
            "accepted": "",
        }
    ]
    assert data["summary"] == {
        "findings": 1,
        "errors": 1,
        "warnings": 0,
        "by_code": {"CG101": 1},
        "hidden": 4,
        "suppressed": 0,
        "in_baseline": 0,
        "stale_in_baseline": 0,
        "untouched": 0,
        "files_checked": 1,
        "files_known": 3,
        "roots": 2,
        "problems": 2,
    }


def test_json_without_a_fix_and_with_statistics():
    report = report_of(finding(fix=None), statistics={"widened": 3})
    data = json.loads(rendered("json", report, statistics=True))
    assert data["findings"][0]["fix"] is None
    assert data["summary"]["statistics"] == {"widened": 3}
    # Times differ from run to run, so they are only there when asked for.
    assert "statistics" not in json.loads(rendered("json", report))["summary"]


def test_json_takes_any_file_name():
    data = json.loads(rendered("json", report_of(finding(path="caf\udce9\n.py"))))
    assert data["findings"][0]["path"] == "caf\udce9\n.py"
