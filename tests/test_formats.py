"""The formats for CI systems and other programs: their structure, and that nothing from checked code breaks it."""

from __future__ import annotations

import io
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from typing import Any

import pytest

from cgsafe.findings import Confidence, Edit, Fix, Problem, Report, Root, Severity, Step, Suppression
from cgsafe.report import FORMATS, Options, renderer
from cgsafe.schemas import text_of
from samples import RULES, finding

EVIL = "\x1b[2J\u202e\r\n::error::\x00\x07\u2028 %0A ]]> --> </script><b>\"'& [bold]x[/bold] \udcff"


def rendered(name: str, report: Report, **options: Any) -> str:
    out = io.StringIO()
    renderer(name)(report, out, Options(rules={rule.code: rule for rule in RULES}, **options))
    return out.getvalue()


def hostile() -> Report:
    bad = finding(
        message=f"m {EVIL}",
        path=f"a{EVIL}.py",
        function=f"f{EVIL}",
        root=Root("k", f"r {EVIL}", f"p{EVIL}", 1, f"f{EVIL}"),
        trace=(Step(f"t{EVIL}", 1, f"f{EVIL}", f"n {EVIL}"), Step(f"t{EVIL}", 2, "g")),
        fix=Fix(f"fix {EVIL}", "safe", (Edit(f"a{EVIL}.py", 1, 1, 1, 2, "x\r\n"),)),
        suppression=Suppression("ignore", 3, f"why {EVIL}"),
        source=EVIL,
    )
    return Report(findings=[bad], errors=[Problem(f"e{EVIL}", 3, f"wrong {EVIL}")], files_checked=1)


def plain() -> Report:
    """Two findings of one root, one elsewhere, one silenced."""
    root = Root("module-forward", "the forward of `M` counts as captured", "model.py", 1, "M.forward")
    call = Step("model.py", 3, "M.forward", "calls helper")
    return Report(
        findings=[
            finding(root=root, trace=(call, Step("helper.py", 2, "helper")), path="helper.py", function="helper"),
            finding(root=root, trace=(call, Step("helper.py", 4, "helper")), path="helper.py", line=4, end_line=5),
            finding(
                code="CG102",
                name="host-read",
                severity=Severity.WARNING,
                confidence=Confidence.HIGH,
                path="dir with space/\u00e9.py",
                baseline="new",
            ),
        ],
        suppressed=[finding(line=9, end_line=9, suppression=Suppression("ignore", 9, "known"))],
        files_checked=3,
    )


@pytest.mark.parametrize("name", FORMATS)
def test_hostile_text_breaks_no_format(name, write):
    write({})
    text = rendered(name, hostile(), show_suppressed=True)
    assert set(text) - {"\n"} == {c for c in text if c.isprintable()}
    assert text.encode("utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_no_findings(name):
    text = rendered(name, Report(files_checked=1))
    assert text.isprintable() or "\n" in text
    if name in ("concise", "json-lines", "github"):
        assert text == ""


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_report_gives_the_same_text(name, write):
    write({"model.py": "a\nb\n"})
    report = plain()
    before = rendered(name, report, show_suppressed=True)
    report.findings.reverse()
    assert rendered(name, report, show_suppressed=True) == before


@pytest.mark.parametrize("name", FORMATS)
def test_silenced_findings_are_shown_only_when_asked_for(name, write):
    write({})
    report = plain()
    report.suppressed[0] = finding(message="quiet one", line=9, suppression=Suppression("ignore", 9, "known"))
    assert "quiet one" not in rendered(name, report)
    assert "quiet one" in rendered(name, report, show_suppressed=True)


# -- grouped -----------------------------------------------------------------------------------------------------------


def test_grouped_puts_the_most_frequent_rule_first():
    text = rendered("grouped", plain())
    assert [line for line in text.splitlines() if line.startswith("CG")] == [
        "CG101 tensor-truth-value  2 findings",
        "CG102 host-read  1 finding",
    ]
    assert text.endswith("\n3 findings of 2 rules.\n")


# -- GitHub ------------------------------------------------------------------------------------------------------------


def test_github_commands():
    first, second, third = rendered("github", plain()).splitlines()
    assert third.startswith("::error file=helper.py,line=4,endLine=5,title=CG101 tensor-truth-value::`x > 0` is")
    assert second.startswith("::error file=helper.py,line=2,col=8,endColumn=12,title=CG101 tensor-truth-value::")
    assert "%0A  model.py:3 M.forward calls helper%0A" in second
    assert first.startswith("::warning file=dir with space/\u00e9.py,line=2,")


def test_github_properties_cannot_be_forged():
    (line,) = rendered("github", hostile()).splitlines()
    command = re.fullmatch(r"::(\w+) (.*?)::(.*)", line)
    assert command is not None
    properties = dict(part.split("=", 1) for part in command[2].split(","))
    assert set(properties) == {"file", "line", "col", "endColumn", "title"}
    assert "%3A%3Aerror%3A%3A" in properties["file"]
    assert " %250A " in properties["file"]
    assert "\\r\\n::error" in command[3]


# -- GitLab ------------------------------------------------------------------------------------------------------------


def test_gitlab_fields_and_unique_fingerprints():
    issues = json.loads(rendered("gitlab", plain()))
    assert [issue["fingerprint"] for issue in issues] == ["f00d", "f00d-2", "f00d-3"]
    assert [issue["severity"] for issue in issues] == ["minor", "major", "major"]
    assert issues[1]["location"]["path"] == "helper.py"
    assert issues[2]["location"]["lines"] == {"begin": 4, "end": 5}


# -- JUnit -------------------------------------------------------------------------------------------------------------


def test_junit_counts_and_cases():
    suites = ElementTree.fromstring(rendered("junit", plain(), show_suppressed=True))
    (suite,) = suites
    assert (suites.get("tests"), suites.get("failures"), suite.get("skipped")) == ("4", "3", "1")
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds == [["failure"], ["failure"], ["failure"], ["skipped"]]
    assert "model.py:3 M.forward calls helper" in (suite[1][0].text or "")


def test_junit_is_well_formed_whatever_is_in_it():
    text = rendered("junit", hostile(), show_suppressed=True)
    suite = ElementTree.fromstring(text)[0]
    skipped, error = suite[0][0], suite[1][0]
    assert skipped.get("message", "").startswith("m \\x1b[2J\\u202e\\r\\n::error::\\x00\\x07\\u2028 %0A ]]> -->")
    assert error.get("message", "").startswith("wrong \\x1b")
    assert [case.tag for case in ElementTree.fromstring(rendered("junit", Report()))[0]] == ["testcase"]


# -- SARIF -------------------------------------------------------------------------------------------------------------


def test_sarif_has_what_readers_look_for():
    report = plain()
    edit = Edit("helper.py", 2, 8, 2, 13, "y")
    report.findings[0] = finding(
        path="helper.py", fix=Fix("do it", "safe", (edit,)), also=((report.findings[1].root, report.findings[1].trace),)
    )
    log = json.loads(rendered("sarif", report, show_suppressed=True))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["CG101", "CG102", "CG401"]
    assert rules[0]["name"] == "TensorTruthValue"
    assert "Instead: Compute both sides" in rules[0]["help"]["text"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["partialFingerprints"] == {"cgsafe/v1": "f00d"}
    odd, fixed, widened, quiet = run["results"]
    place = odd["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "dir%20with%20space/%C3%A9.py", "uriBaseId": "SRCROOT"}
    assert (odd["level"], odd["baselineState"]) == ("warning", "new")
    assert len(fixed["codeFlows"]) == 2
    (replacement,) = fixed["fixes"][0]["artifactChanges"][0]["replacements"]
    assert replacement["deletedRegion"] == {"startLine": 2, "startColumn": 8, "endLine": 2, "endColumn": 13}
    steps = widened["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [step["location"]["physicalLocation"]["region"]["startLine"] for step in steps] == [1, 3, 4]
    assert quiet["suppressions"] == [{"kind": "inSource", "status": "accepted", "justification": "known"}]


def test_sarif_tells_that_the_check_was_not_complete():
    (invocation,) = json.loads(rendered("sarif", hostile()))["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"].startswith("wrong ")


@pytest.mark.parametrize("report", [plain(), hostile(), Report()], ids=["plain", "hostile", "empty"])
def test_sarif_is_valid_by_the_official_schema(report):
    """The schema is not ours to ship: CGSAFE_SARIF_SCHEMA names a copy of sarif-schema-2.1.0.json."""
    path = os.environ.get("CGSAFE_SARIF_SCHEMA")
    if not path:
        pytest.skip("CGSAFE_SARIF_SCHEMA names no copy of the official schema")
    jsonschema = pytest.importorskip("jsonschema")
    with open(path, encoding="utf-8") as file:
        schema = json.load(file)
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(json.loads(rendered("sarif", report, show_suppressed=True)))


# -- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [plain(), hostile(), Report()], ids=["plain", "hostile", "empty"])
def test_json_is_valid_by_its_schema(report):
    schema = json.loads(text_of("report"))
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft7Validator(schema)
    data = json.loads(rendered("json", report, show_suppressed=True))
    validator.validate(data)
    lines = rendered("json-lines", report, show_suppressed=True).splitlines()
    assert [json.loads(line) for line in lines] == data["findings"]


def test_the_schema_names_each_key():
    schema = json.loads(text_of("report"))
    data = json.loads(rendered("json", plain()))
    assert data.keys() == schema["properties"].keys()
    assert data["findings"][0].keys() == schema["definitions"]["finding"]["properties"].keys()
    assert data["summary"].keys() == schema["properties"]["summary"]["properties"].keys()


# -- HTML --------------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The elements of a page, as (depth of open <details>, tag), and what loads something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.depth = 0
        self.seen: list[tuple[int, str]] = []
        self.loads: list[Any] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.depth += tag == "details"
        self.seen.append((self.depth, tag))
        self.loads += [
            a for a in attributes if a[0] in ("src", "href", "action", "background") or a[0].startswith("on")
        ]

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "details"

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_shows_the_tree_of_calls(write):
    write({"helper.py": "def helper(t):\n    if t > 0:\n        pass\n"})
    page = Page(rendered("html", plain()))
    # The root and the call below it are told once, with both findings below them.
    assert [depth for depth, tag in page.seen if tag == "article"] == [1, 2, 2]
    assert page.text.count("calls helper") == 1
    assert page.depth == 0
    marked = re.findall("<mark>(.*?)</mark>", rendered("html", plain()))
    assert marked[0] == "t &gt; 0"


def test_html_needs_nothing_else_and_runs_nothing_of_the_checked_code(write):
    write({"model.py": "<img src=x onerror=alert(1)>\n<script>alert(2)</script>\n"})
    for report in (plain(), hostile(), Report(findings=[finding()], files_checked=1)):
        text = rendered("html", report)
        page = Page(text)
        assert page.loads == []
        assert [tag for _, tag in page.seen if tag in ("script", "img", "b")].count("script") == 1
        assert not {tag for _, tag in page.seen} & {"img", "link", "iframe", "object"}
        assert "http" not in re.sub(r"http-equiv", "", text)
    assert "&lt;img src=x onerror=alert(1)&gt;" in text
