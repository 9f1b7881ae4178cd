"""The pages about rules: up to date, complete, and Markdown that says what was meant."""

from __future__ import annotations

import re
import sys
import types
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import cgsafe.docs
from cgsafe import docs, evidence
from cgsafe.catalogue import examples, measured, summary
from cgsafe.rule import load_rules
from samples import RULES, TruthRule, finding

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = REPOSITORY / "rules" / "docs"
BUILT_IN = load_rules()[0]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def inline(markdown):
    """(kind, text) of what a text of one paragraph consists of."""
    opening, content, closing = MARKDOWN.parse(markdown)
    assert (opening.type, closing.type) == ("paragraph_open", "paragraph_close")
    return [(token.type, token.content) for token in content.children or []]


def links(markdown):
    found = [token for block in MARKDOWN.parse(markdown) for token in block.children or []]
    return [str(token.attrs["href"]) for token in found if token.type == "link_open"]


def cells(markdown):
    """The cells of all tables, as text with its code."""
    tokens = MARKDOWN.parse(markdown)
    inner = [after for before, after in pairwise(tokens) if before.type in ("th_open", "td_open")]
    return ["".join(child.content for child in token.children or []) for token in inner]


# -- the pages of the built-in rules -----------------------------------------------------------------------------------


def test_the_pages_are_up_to_date(monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    code = docs.main(["rules", "--check"])
    assert code == 0, capsys.readouterr().out


def test_every_rule_has_a_page_and_a_row():
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in PAGES.iterdir()} == {"README.md", *(f"{rule.code}.md" for rule in BUILT_IN)}
    assert links(index) == [f"{rule.code}.md" for rule in BUILT_IN]
    found = cells(index)
    for rule in BUILT_IN:
        row = found.index(rule.code)
        assert found[row + 1 : row + 4] == [rule.name, rule.severity.value, summary(rule).replace("`", "")]


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    found = links(page.read_text(encoding="utf-8"))
    assert found
    for link in found:
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: rule.code)
def test_a_page_says_what_explain_says(rule):
    tokens = MARKDOWN.parse((PAGES / f"{rule.code}.md").read_text(encoding="utf-8"))
    titles = [after.content for before, after in pairwise(tokens) if before.type == "heading_open"]
    assert titles[0] == f"{rule.code} {rule.name}"
    assert [title for title in titles if title in ("Bad", "Good", "Instead")] == ["Bad", "Good", "Instead"]
    assert any(title.startswith(("Seen on", "Measured on")) for title in titles) == bool(measured(rule))
    blocks = [token.content for token in tokens if token.type == "fence"]
    if rule.error:
        assert f"{rule.error}\n" in blocks
    texts = {text.strip("\n") for start in ("bad", "good") for e in examples(rule, start) for _, text in e.files}
    shown = [token.content.strip("\n") for token in tokens if token.type == "fence" and token.info == "python"]
    for block in shown:
        assert all(any(part in text for text in texts) for part in block.split("\n\n\n"))


def test_the_readme_leads_to_the_index():
    assert "rules/docs/README.md" in links((REPOSITORY / "README.md").read_text(encoding="utf-8"))


# -- Markdown ----------------------------------------------------------------------------------------------------------

NASTY = [
    "x[i] and __init__ and *args, **kwargs",
    "a < b > c <tensor> &amp; & <!-- -->",
    "# not a heading",
    "#1",
    "> not quoted",
    "- no list",
    "+ none",
    "1. none",
    "12) none",
    "2.11.0 is a release",
    "= no heading",
    "=====",
    "---",
    "***",
    "~~not struck~~ and ~",
    "[no](link) ![no](image) [none]: nowhere",
    "back\\slash and \\* and trailing \\",
    "a | b | c",
    "$x$ and 5$",
    "``` no fence",
    "~~~ no fence",
    "one ` alone, two `` alone",
    "    indented",
    "* * *",
    "Ünïcödé — “quotes”",
]


@pytest.mark.parametrize("text", NASTY)
def test_plain_text_stays_what_it_is(text):
    parts = inline(docs.plain(text))
    assert {kind for kind, _ in parts} <= {"text", "text_special"}
    assert "".join(content for _, content in parts) == " ".join(text.split())


@pytest.mark.parametrize("text", [text for text in NASTY if "`" not in text])
def test_prose_keeps_code_as_it_is(text):
    text = " ".join(text.split())
    code = text.rstrip("\\") or "x"
    parts = inline(docs.prose(f"{text} `{code}` {text}"))
    assert [content for kind, content in parts if kind == "code_inline"] == [code]
    assert "".join(content for _, content in parts) == f"{text} {code} {text}"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("`a` and `b_c_d`", ["a", "b_c_d"]),
        ("``a`b`` ends", ["a`b"]),
        ("`unfinished", []),
        ("`one\nline`", ["one line"]),
        ("`x[i:i + 1] = 0` fills", ["x[i:i + 1] = 0"]),
    ],
)
def test_code_in_prose(text, codes):
    assert [content for kind, content in inline(docs.prose(text)) if kind == "code_inline"] == codes


@pytest.mark.parametrize("text", ["a | b", "`a | b`", "||", "`a` | `b`", "a \\| b"])
def test_a_cell_stays_one_cell(text):
    found = cells(f"| head |\n| --- |\n| {docs.cell(docs.prose(text))} |\n")
    assert found == ["head", text.replace("`", "")]


@pytest.mark.parametrize("text", ["x = 1", "```\nx\n```", "s = '````'", "~~~", ""])
def test_a_block_of_code_is_one_block(text):
    (token,) = MARKDOWN.parse("\n".join(docs.fenced(text, "python")))
    assert (token.type, token.info, token.content.rstrip("\n")) == ("fence", "python", text)


def test_paragraphs_blocks_and_lists_of_a_docstring():
    text = "One\nparagraph.\n\n- an item that\n  goes on\n- `x`\n\n    if x:\n        y\n\nThe end."
    kinds = [token.type for token in MARKDOWN.parse("\n".join(docs.paragraphs(text)))]
    assert [kind for kind in kinds if kind.endswith("_open") or kind == "fence"] == [
        *("paragraph_open", "bullet_list_open", "list_item_open", "paragraph_open", "list_item_open", "paragraph_open"),
        *("fence", "paragraph_open"),
    ]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pack(write, monkeypatch):
    """A package with the sample rules; what its folder holds."""
    monkeypatch.setattr(cgsafe.docs, "load_rules", lambda: (list(RULES), []))
    evidence.tables.cache_clear()
    root = write(
        {"pack/__init__.py": "", "pack/fixtures/CG101/bad_x.py": "x\n", "pack/fixtures/CG101/good/main.py": "y\n"}
    )
    monkeypatch.setitem(sys.modules, "samples", types.SimpleNamespace(__file__=str(root / "pack/__init__.py")))
    return root / "pack"


def test_pages_are_written_and_then_up_to_date(pack, capsys):
    assert docs.main(["pack", "--check"]) == 1
    assert "CG401.md: out of date" in capsys.readouterr().out
    assert not (pack / "docs").exists()
    assert docs.main(["pack"]) == 0
    assert {path.name for path in (pack / "docs").iterdir()} == {"README.md", "CG101.md", "CG102.md", "CG401.md"}
    capsys.readouterr()
    assert docs.main(["pack", "--check"]) == 0
    assert capsys.readouterr().out == ""
    assert "(../fixtures/CG101/bad_x.py)" in (pack / "docs/CG101.md").read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda pack: (pack / "docs/CG101.md").write_text("other"),
        lambda pack: (pack / "docs/README.md").unlink(),
        lambda pack: (pack / "fixtures/CG101/bad_x.py").write_text("z\n"),
        lambda pack: (pack / "docs/CG999.md").write_text((pack / "docs/CG101.md").read_text()),
    ],
)
def test_whatever_changes_pages_is_found_and_mended(pack, capsys, change):
    docs.main(["pack"])
    change(pack)
    assert docs.main(["pack", "--check"]) == 1
    assert "python -m cgsafe.docs pack" in capsys.readouterr().out
    assert docs.main(["pack"]) == 0
    assert docs.main(["pack", "--check"]) == 0
    assert not (pack / "docs/CG999.md").exists()


def test_a_rule_that_changes_changes_its_page(pack, monkeypatch):
    docs.main(["pack"])
    monkeypatch.setattr(TruthRule, "instead", "Something else.")
    assert docs.main(["pack", "--check"]) == 1


def test_pages_that_people_wrote_stay(pack):
    docs.main(["pack"])
    (pack / "docs/notes.md").write_text("ours\n")
    assert docs.main(["pack", "--check"]) == 0
    assert docs.main(["pack"]) == 0
    assert (pack / "docs/notes.md").read_text() == "ours\n"


def test_a_folder_without_rules_is_2(pack, capsys):
    assert docs.main(["elsewhere"]) == 2
    assert "no installed rule lies in `elsewhere`" in capsys.readouterr().err


def test_evidence_that_cannot_be_used_is_2_and_writes_nothing(pack, capsys):
    (pack / "evidence").mkdir()
    (pack / "evidence/a.json").write_text("{")
    assert docs.main(["pack"]) == 2
    assert "a.json cannot be used" in capsys.readouterr().err
    assert not (pack / "docs").exists()


def test_the_pages_call_those_fixes_automatic_that_the_command_makes():
    told = docs.fixes(BUILT_IN)
    assert told["CG202"] == "automatic (safe, unsafe)", "edits that are proposed as transformations count"
    assert told["CG101"] == "by hand"


def test_a_fix_is_called_automatic_where_there_is_an_edit(pack, monkeypatch):
    from cgsafe import engine
    from cgsafe.findings import Edit, Fix, Report

    edit = Edit("model.py", 2, 8, 2, 13, "y")
    found = [finding(fix=Fix("do", "safe", (edit,))), finding(code="CG102", fix=Fix("do"))]
    monkeypatch.setattr(engine, "check", lambda *_: Report(findings=found))
    assert docs.fixes(RULES) == {"CG101": "automatic (safe)", "CG102": "by hand", "CG401": "by hand"}
    assert re.search(r"CG101\.md\).*\| automatic \(safe\) \|", docs.index(RULES, docs.fixes(RULES)))
