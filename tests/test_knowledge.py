"""The knowledge tables: readable by the loader, in order, and about things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cgsafe import knowledge
from cgsafe.knowledge import Condition, Spec, load, parse_entry, parse_spec, tables

FILES = ["numpy_functions", "tensor_methods", "torch_functions", "torch_modules", "torch_objects"]
ENTRY_TABLES = {"methods", "attributes", "functions", "modules", "losses"}


def _groups(name: str) -> list[list[str]]:
    """The keys of a table file, in blocks between blank lines, as written."""
    blocks = (knowledge.FOLDER / f"{name}.toml").read_text(encoding="utf-8").split("\n\n")
    groups = [re.findall(r'^"?([\w.]+)"? = (?!\[)', block, re.MULTILINE) for block in blocks]
    return [group for group in groups if group]


@pytest.mark.parametrize("name", FILES)
def test_every_entry_parses(name: str) -> None:
    for title, table in load(name).items():
        if title not in ENTRY_TABLES:
            continue
        for key, value in table.items():
            try:
                parse_entry(value)
            except ValueError as error:
                pytest.fail(f"{name}.toml, {key}: {error}")


@pytest.mark.parametrize("name", FILES)
def test_keys_are_sorted_within_their_group(name: str) -> None:
    for group in _groups(name):
        assert group == sorted(group)


@pytest.mark.parametrize("name", FILES)
def test_the_groups_hold_all_keys_once(name: str) -> None:
    written = [key for group in _groups(name) for key in group]
    parsed = [key for title, table in load(name).items() if title in ENTRY_TABLES for key in table]
    assert sorted(written) == sorted(parsed)
    assert len(set(written)) == len(written)


@pytest.mark.parametrize("name", FILES)
def test_lists_of_names_are_sorted_and_unique(name: str) -> None:
    for title, table in load(name).items():
        if title not in ENTRY_TABLES:
            assert table["names"] == sorted(set(table["names"])), title


def test_a_name_is_described_or_skipped_not_both() -> None:
    for name in ("tensor_methods", "torch_functions"):
        table = load(name)
        described = {key for title in ENTRY_TABLES & table.keys() for key in table[title]}
        assert not described & set(table["skipped"]["names"])


def test_only_tensor_names_are_described_methods() -> None:
    assert tables().only_tensor <= tables().methods.keys()


def test_names_that_other_types_have_prove_no_tensor() -> None:
    common = "view reshape sum max mean any copy_ to cpu cuda float half type apply split expand size item numel topk"
    assert not tables().only_tensor & set(common.split())
    for kind in (str, bytes, list, dict, set, tuple, int, float, memoryview):
        assert tables().only_tensor & set(dir(kind)) <= {"contiguous"}  # memoryview has it, as a value


def test_spec_examples() -> None:
    assert parse_spec("like") == Spec("like")
    assert parse_spec("reduce@2:float") == Spec("reduce", "float", (), 2)
    assert parse_spec("host:shape") == Spec("host", "shape")
    assert parse_spec("tuple(like,list(nd:int))") == Spec(
        "tuple", "", (Spec("like"), Spec("list", "", (Spec("nd", "int"),)))
    )


BAD_SPECS = [
    *("", "lik", "like:", "like:str", "host", "host:", "host:tensor", "none:int", "tuple", "tuple()", "tuple(like"),
    *("list(like,like)", "same@1", "reduce@x", "set(like)", "tuple(like,,like)", "tuple(like)x", "tuple(like))"),
]


@pytest.mark.parametrize("text", BAD_SPECS)
def test_bad_specs_are_told(text: str) -> None:
    with pytest.raises(ValueError, match="bad spec"):
        parse_spec(text)


def test_entry_with_conditions() -> None:
    when = {"a": "like", "a+b@3": "nd:int", "reduction=none": "same"}
    entry = parse_entry({"returns": "nd", "read": "size", "unless": "size@2", "when": when})
    assert entry.unless == ((Condition("size", 2),),)
    assert [len(conditions) for conditions, _ in entry.when] == [2, 1, 1]
    assert entry.when[0] == ((Condition("a"), Condition("b", 3)), Spec("nd", "int"))
    assert entry.when[2][0] == (Condition("reduction", value="none"),)


BAD_ENTRIES: list[dict[str, str]] = [
    {},
    {"read": "item"},
    *({"returns": "like", **more} for more in ({"reads": "item"}, {"read": "all"}, {"unless": "a b"})),
    {"returns": "like", "only_if": "-a=b"},
]


@pytest.mark.parametrize("value", BAD_ENTRIES)
def test_bad_entries_are_told(value: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="bad"):
        parse_entry(value)


def test_a_spoilt_cached_copy_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fresh = load.__wrapped__("torch_modules")
    (copy,) = tmp_path.rglob("torch_modules.*.marshal")
    assert load.__wrapped__("torch_modules") == fresh
    for rubbish in (b"", b"rubbish", copy.read_bytes()[:-20], b"i\x01\x00\x00\x00"):
        copy.write_bytes(rubbish)
        assert load.__wrapped__("torch_modules") == fresh


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load.__wrapped__("torch_modules")["modules"]


def test_a_relative_cache_folder_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert load.__wrapped__("torch_modules")["modules"]
    assert not list(tmp_path.iterdir())


def test_methods_and_attributes_cover_torch() -> None:
    torch = pytest.importorskip("torch")
    real = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    table = load("tensor_methods")
    assert real <= table["methods"].keys() | table["attributes"].keys() | set(table["skipped"]["names"])
    assert {name for name in tables().only_tensor if not hasattr(torch.Tensor, name)} == set()


def test_functions_cover_torch() -> None:
    torch = pytest.importorskip("torch")
    table = load("torch_functions")
    known = table["functions"].keys() | set(table["skipped"]["names"])
    for space in ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft"):
        module = torch
        for part in space.split(".")[1:]:
            module = getattr(module, part)
        for name, thing in vars(module).items():
            if not name.startswith("_") and callable(thing):
                assert f"{space}.{name}" in known
