"""Measuring the models of transformers, as far as it goes without torch and a GPU: what is built and tried, how a call is
watched, processes, and the comparison with findings."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

GPU = Path(__file__).parent / "gpu"
sys.path.insert(0, str(GPU))

import compare_models as cm  # noqa: E402
import measure_models as mm  # noqa: E402
from _model_inputs import TOKENS, choices, first_of, shrink, usual  # noqa: E402

# -------------------------------------------------------------------------------------------------- configs and inputs


def test_a_config_is_made_smaller_and_so_are_the_ones_in_it():
    text = SimpleNamespace(model_type="text", num_hidden_layers=32, num_experts=64, layer_types=["a", "a", "b", "a"])
    config = SimpleNamespace(model_type="both", text_config=text, n_layer=1, num_local_experts=8, other=99)
    shrink(config)
    assert (text.num_hidden_layers, text.num_experts, text.layer_types) == (2, 16, ["a", "b"])
    assert (config.n_layer, config.num_local_experts, config.other) == (1, 8, 99)


def test_layers_of_one_kind_stay_of_that_kind_and_what_cannot_be_set_stays():
    class Config(SimpleNamespace):
        @property
        def num_layers(self) -> int:
            return 12

    config = Config(layer_types=["a", "a", "a"], num_hidden_layers=True)
    shrink(config)
    assert (config.layer_types, config.num_layers, config.num_hidden_layers) == (["a", "a"], 12, True)


def test_first_of_takes_what_is_there_and_one_of_two_sizes():
    thing = SimpleNamespace(a=None, b=0, c=[7, 8])
    assert first_of((thing, "a"), (thing, "b"), (thing, "c"), default=3) == 7
    assert first_of((thing, "a"), (thing, "d"), default=3) == 3


@pytest.mark.parametrize(
    ("names", "main", "given"),
    [
        ("input_ids attention_mask", "input_ids", "input_ids attention_mask"),
        ("input_ids decoder_input_ids", "input_ids", "input_ids decoder_input_ids"),
        ("input_ids pixel_values", "input_ids", "input_ids"),
        ("input_ids pixel_values", "pixel_values", "input_ids pixel_values"),
        ("pixel_values", "pixel_values", "pixel_values"),
        ("input_values", "input_values", "input_values"),
        ("input_features decoder_input_ids", "input_features", "input_features decoder_input_ids"),
        ("hidden_states", "hidden_states", ""),
    ],
)
def test_what_a_model_is_asked_with_first(names, main, given):
    assert set(usual(set(names.split()), main, SimpleNamespace())) == set(given.split())


def test_images_have_the_sizes_of_the_config():
    config = SimpleNamespace(vision_config=SimpleNamespace(image_size=(32, 48), in_channels=1))
    assert usual({"pixel_values"}, "pixel_values", config) == {"pixel_values": ("normal", (2, 1, 32, 48))}


def test_what_is_tried_next():
    vision = SimpleNamespace(image_size=8, num_frames=4)
    tried = list(choices({"input_ids", "pixel_values"}, "input_ids", SimpleNamespace(vision_config=vision)))
    image, video = ("normal", (2, 3, 8, 8)), ("normal", (2, 4, 3, 8, 8))
    both = {"input_ids": TOKENS, "pixel_values": image}
    assert tried == [{"input_ids": TOKENS}, both, {"pixel_values": image}, {"pixel_values": video}]

    config = SimpleNamespace(patch_size=2, temporal_patch_size=2)
    tried = list(choices({"hidden_states", "grid_thw"}, "hidden_states", config))
    assert tried == [{}, {"hidden_states": ("normal", (64, 24)), "grid_thw": ("grid", (1, 8, 8))}]

    tried = list(choices({"input_features", "attention_mask"}, "input_ids", SimpleNamespace(num_mel_bins=5)))
    assert {"input_features": ("normal", (2, 200, 5)), "attention_mask": ("ones", (2, 200))} in tried


def test_what_was_measured_is_left_out():
    old = {"results": [{"model": "a", "class": "A"}, {"model": "b", "class": ""}]}
    assert mm.chosen(["a", "b", "c"], None, None) == ["a", "b", "c"]
    assert mm.chosen(["a", "b", "c"], None, old) == ["b", "c"]
    assert mm.chosen(["a", "b", "c"], ["a", "c"], old) == ["c"]


# ------------------------------------------------------------------------------------------------------------ watching

MODEL = """\
import torch, warnings

def wait():
    warnings.warn("called a synchronizing CUDA operation")

class Model:
    def __call__(self, x, attention_mask=None):
        if torch.cuda.is_current_stream_capturing():
            wait()
        else:
            x = 1
        if torch.cuda.recording:
            raise RuntimeError("not while capturing")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A model in a folder, and a stand-in for torch whose captures fail; (model, folder)."""
    cuda: Any = SimpleNamespace(recording=False, synchronize=lambda: None, CUDAGraph=object, Stream=object)
    cuda.is_current_stream_capturing = lambda: False
    cuda.set_sync_debug_mode = lambda mode: None

    @contextlib.contextmanager
    def graph(graph: Any, stream: Any) -> Any:
        cuda.recording = True
        try:
            yield
        finally:
            cuda.recording = False

    cuda.graph = graph
    torch: Any = types.ModuleType("torch")
    torch.cuda, torch.manual_seed, torch.no_grad = cuda, lambda seed: None, contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "torch", torch)
    path = tmp_path / "models.py"
    path.write_text(MODEL)
    names: dict[str, Any] = {}
    exec(compile(MODEL, str(path), "exec"), names)
    return names["Model"](), f"{tmp_path}/"


def test_a_call_is_watched_as_if_it_were_captured(package):
    model, root = package
    before, shown = sys.gettrace(), warnings.showwarning
    sites, lines, error = mm.observed(lambda: model(1), root)
    sys.settrace(before)
    assert sites == {("models.py", 4, "wait"): [("models.py", 9, "__call__"), ("models.py", 4, "wait")]}
    assert lines == {"models.py": {3, 4, 7, 8, 9, 12}}
    assert error == ""
    assert warnings.showwarning is shown
    assert not sys.modules["torch"].cuda.is_current_stream_capturing()


def test_what_a_call_raises_is_kept(package):
    _, root = package
    assert mm.observed(lambda: 1 / 0, root)[2] == "ZeroDivisionError: division by zero"
    assert mm.captured(lambda: None, root) == ([], "")


def test_a_model_is_measured(package, monkeypatch):
    model, root = package
    monkeypatch.setattr(mm, "built", lambda config: (model, {"x": 1}, ""))
    before = sys.gettrace()
    result = mm.measure("some", SimpleNamespace, root)
    sys.settrace(before)
    stack = [("models.py", 9, "__call__"), ("models.py", 4, "wait")]
    assert result == {
        "model": "some",
        "class": "Model",
        "capture": {"forward": "fail"},
        "sites": [
            ["models.py", 4, "wait", ["forward"], "sync", stack],
            [
                "models.py",
                13,
                "__call__",
                ["forward"],
                "RuntimeError: not while capturing",
                [("models.py", 13, "__call__")],
            ],
        ],
        "lines": {"models.py": [3, 4, 7, 8, 9, 12]},
        "errors": {"capture forward": "RuntimeError: not while capturing"},
    }
    monkeypatch.setattr(mm, "built", lambda config: (None, {}, "no class"))
    assert mm.measure("some", SimpleNamespace, root) == {"model": "some", "class": "", "skipped": "no class"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_each_model_has_a_process_and_no_result_is_one_of_an_earlier_run(monkeypatch):
    work = {
        "good": lambda: {"model": "good", "class": "A"},
        "raises": lambda: 1 / 0,
        "dies": lambda: os._exit(3),
    }
    found = {result["model"]: result for result in mm.run_all(work, 60, 2)}
    assert found["good"] == {"model": "good", "class": "A"}
    assert found["raises"]["skipped"] == "ZeroDivisionError: division by zero"
    assert found["dies"]["skipped"] == "died or took too long"
    (late,) = mm.run_all({"good": work["good"]}, -1, 1)
    assert late == {"model": "good", "class": "", "skipped": "not begun: no time left"}


# ----------------------------------------------------------------------------------------------------------- comparing


def entry(model: str, sites: list[list[Any]], lines: dict[str, list[int]], **capture: str) -> dict[str, Any]:
    return {"model": model, "class": "C", "capture": capture, "sites": sites, "lines": lines, "errors": {}}


def document(*results: dict[str, Any], package: str = "transformers==1") -> dict[str, Any]:
    return {"package": package, "torch": "2", "results": list(results)}


def finding(
    line: int, end: int = 0, code: str = "CG103", path: str = "/x/transformers-1/transformers/a.py"
) -> dict[str, Any]:
    return {"code": code, "path": path, "line": line, "end_line": end or line, "confidence": "medium", "message": "m"}


MEASURED = document(
    entry(
        "one",
        [["a.py", 3, "f", ["forward"], "sync", []], ["a.py", 9, "f", ["static_decode"], "sync", []]],
        {"a.py": [1, 2, 3, 9]},
        forward="fail",
    ),
    entry(
        "two", [["a.py", 7, "g", ["static_decode"], "sync", []]], {"a.py": [6, 7]}, forward="ok", static_decode="fail"
    ),
    entry("none", [], {}),
    {"model": "refused", "class": "", "skipped": "no class"},
)


@pytest.mark.parametrize(
    ("capture", "count"),
    [
        ({}, 3),
        ({"forward": "fail"}, 1),
        ({"forward": "ok", "forward_padded": "fail"}, 2),
        ({"forward": "ok", "static_decode": "fail"}, 3),
    ],
)
def test_scenarios_count_up_to_the_first_that_fails(capture, count):
    assert cm.counting(capture) == set(cm.SCENARIOS[:count])


def test_recall_and_precision():
    measured = cm.measurement([MEASURED])
    assert measured.models == ["one", "two"]
    assert [(site.line, site.counts, site.models) for site in measured.sites] == [
        (3, True, ["one"]),
        (7, True, ["two"]),
        (9, False, ["one"]),
    ]
    # A site, a line that ran, lines that hold a site that does not count, a line that did not run, and another family.
    report = {"findings": [finding(2, 4), finding(6), finding(8, 9), finding(20), finding(1, code="CG301")]}
    compared = cm.compare(measured, cm.findings_of(report, "transformers"))
    assert [site.line for site in compared.covered] == [3]
    assert [site.line for site in compared.missed] == [7]
    assert [found.line for found in compared.true] == [2, 8]
    assert [found.line for found in compared.false] == [6]
    lines = list(cm.report(measured, compared, 0))
    assert lines[-2:] == ["recall 1/2 = 50.0%", "precision 2/3 = 66.7%"]
    assert "missed: 1, of which 0 are shown" in lines
    assert "  a.py:7 g (two; static_decode; sync)" in list(cm.report(measured, compared, 5))


def test_a_site_that_counts_in_one_model_has_the_models_where_it_counts():
    sites = [["a.py", 3, "f", ["forward", "static_decode"], "sync", []]]
    only_later = entry("late", [["a.py", 3, "f", ["static_decode"], "sync", []]], {"a.py": [3]}, forward="fail")
    (site,) = cm.sites_of([only_later, entry("a", sites, {"a.py": [3]}, forward="fail"), only_later])
    assert (site.counts, site.models, site.scenarios) == (True, ["a"], ["forward"])
    (site,) = cm.sites_of([only_later])
    assert (site.counts, site.models, site.scenarios) == (False, ["late"], ["static_decode"])


def test_of_several_measurements_the_first_that_has_a_model_counts():
    more = document(entry("none", [], {"b.py": [1]}), entry("one", [], {"b.py": [2]}))
    measured = cm.measurement([MEASURED, more])
    assert measured.models == ["one", "two", "none"]
    assert measured.ran["b.py"] == {1}
    with pytest.raises(ValueError, match="different releases"):
        cm.measurement([MEASURED, document(package="transformers==2")])


@pytest.mark.parametrize(("lines", "text"), [((), ""), ((4,), "4"), ((1, 2, 3, 7), "1-3,7"), ((9, 1, 2), "1-2,9")])
def test_ranges_of_lines(lines, text):
    assert cm.ranges(lines) == text
    assert cm.lines_of(text) == set(lines)


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("/a/transformers/src/transformers/models/b.py", "models/b.py"),
        ("transformers/b.py", "b.py"),
        ("C:\\x\\transformers\\b.py", "b.py"),
        ("models/b.py", "models/b.py"),
        ("/a/transformers-1/b.py", "/a/transformers-1/b.py"),
    ],
)
def test_paths_are_relative_to_the_package(path, inner):
    assert cm.inside(path, "transformers") == inner


def test_the_short_form_says_the_same(tmp_path):
    """As commands, which is how they are used."""
    findings, short = tmp_path / "findings.json", tmp_path / "short.json"
    (tmp_path / "measured.json").write_text(json.dumps(MEASURED))
    findings.write_text(json.dumps({"findings": [finding(3), finding(6)]}))

    def run(*arguments: object) -> str:
        command = [sys.executable, str(GPU / "compare_models.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    first = run(tmp_path / "measured.json", findings, "--sites", short)
    assert first == run(short, findings)
    assert first.endswith("recall 1/2 = 50.0%\nprecision 1/2 = 50.0%\n")


def test_the_program_says_what_it_takes_without_torch():
    command = [sys.executable, str(GPU / "measure_models.py"), "--help"]
    assert "--skip-measured" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", sorted((GPU / "results").glob("models-*.json")), ids=lambda path: path.stem)
def test_the_measurements_kept_here_are_read(path):
    measured = cm.measurement([json.loads(path.read_text())])
    assert measured.sites
    assert all(site.line in measured.ran[site.file] for site in measured.sites)
    assert cm.compact(measured) == path.read_text()
