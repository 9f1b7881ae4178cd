"""The measuring program, as far as it goes without a GPU: probes, tables, differences, and its commands."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter

import pytest

from cgsafe import knowledge
from cgsafe.measure import compare, difference, table
from cgsafe.measure.__main__ import main
from cgsafe.measure.pool import BATCH, batches
from cgsafe.measure.probes import FOLDER, KINDS, Probe, ProbeError, read_all, read_file

PROBES = read_all()
HEAD = {"release": "2.11.0+cu130", "cuda": "13.0", "device": "NVIDIA H200", "date": "2026-01-02", "python": "3.12.3"}


def effect(name: str, expr: str = "v.sum()", **fields: object) -> table.Effect:
    return {"id": name, "expr": expr, "capture": "ok", "sync": 0, **fields}


# ------------------------------------------------------------------------------------------------------------- probes


def test_every_probe_file_is_read_and_no_name_occurs_twice():
    assert {probe.theme for probe in PROBES} == {path.stem for path in FOLDER.glob("*.toml")}
    assert [name for name, count in Counter(probe.id for probe in PROBES).items() if count > 1] == []


def test_every_probe_is_python():
    wrong = []
    for probe in PROBES:
        try:
            ast.parse(probe.expr)
            ast.parse(probe.setup)
        except SyntaxError as exc:
            wrong.append(f"{probe.id}: {exc}")
    assert wrong == []


def test_no_two_probes_measure_the_same():
    same = Counter((probe.expr, probe.setup, probe.cold, probe.alone) for probe in PROBES)
    assert [key for key, count in same.items() if count > 1] == []


def test_arguments_are_the_inputs_that_the_code_names():
    assert Probe("t.a", "v[m] = s").arguments() == [f"{name}: {KINDS[name]}" for name in ("v", "s", "m")]
    assert Probe("t.a", "torch.rand(8)").arguments() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[probes]\na = 'v'\na = 'x'\n", "bad.toml"),
        ("about = 'x'\n", "expected about, prelude and [probes]"),
        ("[probes]\na = 3\n", "'a' has no `expr`"),
        ("[probes]\na = { setup = 'b = 1' }\n", "'a' has no `expr`"),
        ("[probes]\na = { expr = 'v', cool = true }\n", "unknown field 'cool'"),
        ("[probes]\na = { expr = 'v', cold = 1 }\n", "cold must be bool"),
    ],
)
def test_a_bad_probe_file_is_refused_with_the_reason(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ProbeError) as caught:
        read_file(path)
    assert "bad.toml" in str(caught.value)
    assert said in str(caught.value)


def test_the_prelude_of_a_file_comes_before_the_setup(tmp_path):
    path = tmp_path / "theme.toml"
    path.write_text("prelude = 'import io'\n[probes]\na = { expr = 'b', setup = 'b = io' }\nc = 'io'\n")
    first, second = read_file(path)
    assert (first.id, first.setup) == ("theme.a", "import io\nb = io")
    assert second.setup == "import io"


def test_batches_keep_every_probe_and_never_mix_themes():
    groups = batches(PROBES)
    assert sorted(probe.id for group in groups for probe in group) == [probe.id for probe in PROBES]
    for group in groups:
        assert len({probe.theme for probe in group}) == 1
        assert len(group) <= BATCH
        assert len(group) == 1 or not any(probe.own_process for probe in group)


# -------------------------------------------------------------------------------------------------------------- tables


def test_a_table_reads_back_as_it_was_written():
    rows = [
        effect(
            "b.two", 'print("a\\\\b", v)\nr = "\'"', sync=2, capture="fail", error='RuntimeError: it\'s "that" \\ this'
        ),
        effect("a.one", args=["v: cuda float32 (8,)"], replay="agrees", cold=True, setup="import io\n\nio"),
        effect("a.quotes", "'''x'''\nv", error="tab\there, é"),
        effect("a.end", "first\n'last'"),
    ]
    head, read = table.loads(table.dumps(HEAD, rows))
    assert head == HEAD
    assert read == sorted(rows, key=lambda row: row["id"])
    assert table.dumps(head, read) == table.dumps(HEAD, rows)


def test_every_probe_survives_the_table():
    rows = table.effects([(probe, {"capture": "ok", "sync": 0}) for probe in PROBES])
    _, read = table.loads(table.dumps(HEAD, rows))
    assert [(row["id"], row["expr"], row.get("setup", "")) for row in read] == [(p.id, p.expr, p.setup) for p in PROBES]


def test_the_name_of_a_table_tells_release_and_device():
    assert table.file_name(HEAD) == "effects-2.11.0-h200.toml"
    assert table.file_name({"release": "2.13.0", "device": "NVIDIA GeForce RTX 4090"}) == "effects-2.13.0-rtx-4090.toml"


@pytest.mark.parametrize("text", ["a = ", "a = 1\n", "[[effect]]\nid = 'x'\n", "effect = 3\n"])
def test_something_else_is_no_table(tmp_path, text, capsys):
    path = tmp_path / "other.toml"
    path.write_text(text)
    assert main(["--diff", str(path), str(path)]) == 2
    assert "other.toml" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- differences


def test_a_difference_report_tells_what_changed(tmp_path, capsys):
    old = [
        effect("a.same"),
        effect("a.breaks"),
        effect("a.waits"),
        effect("a.stale", replay="agrees"),
        effect("a.gone"),
    ]
    old += [effect("a.code", "v.sum()"), effect("a.words", capture="fail", error="E: one")]
    new = [
        effect("a.same"),
        effect("a.breaks", capture="fail", sync=1, error="RuntimeError: no"),
        effect("a.waits", sync=1),
        effect("a.stale", replay="differs"),
        effect("a.new", "v.item()", capture="fail"),
        effect("a.code", "v.mean()", capture="fail"),
        effect("a.words", capture="fail", error="E: two"),
    ]
    paths = [tmp_path / "old.toml", tmp_path / "new.toml"]
    paths[0].write_text(table.dumps(HEAD, old))
    paths[1].write_text(table.dumps({**HEAD, "release": "2.12.0"}, new))
    assert main(["--diff", *map(str, paths)]) == 0
    assert (
        capsys.readouterr().out
        == """\
old: PyTorch 2.11.0+cu130, CUDA 13.0, NVIDIA H200, 2026-01-02: 7 probes
new: PyTorch 2.12.0, CUDA 13.0, NVIDIA H200, 2026-01-02: 7 probes

another outcome of the capture (1)
  a.breaks: ok -> fail    `v.sum()`
      RuntimeError: no

another outcome of the replay (1)
  a.stale: agrees -> differs    `v.sum()`

another number of waits (1)
  a.waits: 0 -> 1    `v.sum()`

another error (1)
  a.words: E: one -> E: two    `v.sum()`

other code, not compared (1)
  a.code    `v.mean()`

only in the old table (1)
  a.gone: ok    `v.sum()`

only in the new table (1)
  a.new: fail    `v.item()`
"""
    )


def test_equal_tables_have_no_difference():
    rows = [effect("a.same")]
    assert difference.report((HEAD, rows), (HEAD, rows)).endswith("no difference\n")


# ------------------------------------------------------------------------------------------------------------- program


def test_a_pattern_without_a_probe_is_a_usage_error(capsys):
    assert main(["--only", "no such probe"]) == 2
    assert main(["--only", "("]) == 2
    assert "matches no probe" in capsys.readouterr().err


def test_without_torch_the_program_says_so_and_writes_nothing(tmp_path):
    code = "import sys; sys.modules['torch'] = None\nimport cgsafe.measure.worker as worker\nworker.main()"
    done = subprocess.run([sys.executable, "-c", code], input="", capture_output=True, text=True)
    assert done.returncode != 0
    assert "torch" in done.stderr.splitlines()[-1]


def test_measuring_imports_torch_only_in_the_worker():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import cgsafe.measure, cgsafe.measure.__main__, cgsafe.measure.pool, cgsafe.measure.worker"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------ measured against the linter


def test_comparing_finds_what_the_linter_gets_wrong():
    rows = [
        effect("t.read", "v.tolist()", capture="fail"),
        effect("t.fine", "v + 1"),
        effect("t.setup-only", "r = w", setup="w = v.item()"),  # a finding in the setup is none in the code
        effect("t.statement", "k = 1\nif s > 0:\n    k = 2", capture="fail"),
        effect("t.missed", "v + 1", capture="fail", error="RuntimeError: made up"),
        effect("t.false", "v.tolist()"),
        effect("t.unknown", "v.tolist()", capture="invalid"),
    ]
    results = compare.verdicts(rows)
    assert [verdict.effect["id"] for verdict in results if verdict.missed] == ["t.missed"]
    assert [verdict.effect["id"] for verdict in results if verdict.false_alarm] == ["t.false"]
    assert compare.report(results).endswith(
        "reported 2 of 3 that fail (0 of the others are no linter's business), 1 of 3 that work\n"
    )


MEASURED = sorted((knowledge.FOLDER / "measured").glob("*.toml"))


@pytest.fixture(scope="module", params=MEASURED, ids=lambda path: path.stem)
def measured(request) -> list[compare.Verdict]:
    """What was measured on a release, with what the linter says of it."""
    return compare.verdicts(table.read(request.param)[1])


def test_the_linter_says_what_was_measured_but_for_what_is_known(measured):
    known = compare.known_disagreements()
    surprising = [v.effect["id"] for v in measured if not v.agrees and v.effect["id"] not in known]
    assert surprising == [], "the linter's knowledge is wrong, or disagreements.toml should tell why it differs"


def test_a_disagreement_that_is_none_any_more_is_not_listed(measured):
    agreeing = {v.effect["id"] for v in measured if v.agrees}
    assert sorted(agreeing & compare.known_disagreements().keys()) == []


def test_known_disagreements_are_about_probes_and_have_reasons():
    known = compare.known_disagreements()
    assert known.keys() <= {probe.id for probe in PROBES}
    assert all(entry.reason.strip() for entry in known.values())


def test_nearly_all_that_can_be_told_is_told(measured):
    known = compare.known_disagreements()
    fails = [v for v in measured if v.effect["capture"] == "fail"]
    judged = [v for v in fails if v.effect["id"] not in known or known[v.effect["id"]].judged]
    assert len(judged) > 0.8 * len(fails)
    assert sum(not v.missed for v in judged) >= 0.98 * len(judged)
    works = [v for v in measured if v.effect["capture"] == "ok"]
    assert sum(v.false_alarm for v in works) <= 0.02 * len(works)


def test_a_table_that_is_shipped_is_written_as_the_program_writes_it():
    for path in MEASURED:
        assert table.dumps(*table.read(path)) == path.read_text(encoding="utf-8")
        assert path.name == table.file_name(table.read(path)[0])


def test_every_probe_makes_a_module():
    for probe in PROBES:
        text, lines = compare.module(table.effects([(probe, {"capture": "ok"})])[0])
        ast.parse(text)
        code = [line.strip() for line in text.splitlines()[lines.start - 1 : lines.stop - 1]]
        assert [line.removeprefix("r = ") for line in code] == [
            line.strip().removeprefix("r = ") for line in probe.expr.splitlines()
        ]
