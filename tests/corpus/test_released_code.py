"""What a check must say, and must not say, on released packages.

Needs the packages that `fetch.py` lays down, and their folder in CGSAFE_CORPUS:

    python tests/corpus/fetch.py corpus
    CGSAFE_CORPUS=corpus python -m pytest -m corpus tests/corpus
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.corpus

ROPE = "modeling_rope_utils.py"
HUNYUAN = "models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py"


def corpus() -> Path:
    folder = os.environ.get("CGSAFE_CORPUS")
    if not folder:
        pytest.skip("CGSAFE_CORPUS names no folder of packages")
    return Path(folder).resolve()


@cache
def run(release: str, path: str, *options: str) -> dict[str, Any]:
    """The JSON report of one check, run inside the release's folder."""
    folder = corpus() / release
    if not folder.exists():
        pytest.skip(f"{release} is not there; run fetch.py")
    command = [sys.executable, "-m", "cgsafe", "check", path, "--output-format", "json", *options]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode in (0, 1), result.stderr[-2000:]
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def places(report: dict[str, Any], code: str) -> set[tuple[str, int]]:
    return {(f["path"].partition("/")[2], f["line"]) for f in report["findings"] if f["code"] == code}


def ways(finding: dict[str, Any]) -> list[list[tuple[str, int]]]:
    traces = [finding["trace"], *(other["trace"] for other in finding["also"])]
    return [[(s["path"].partition("/")[2], s["line"]) for s in trace] for trace in traces]


def test_rope_update_behind_the_decorator() -> None:
    report = run("transformers-5.16.0", "transformers", "--all-paths")
    assert {(ROPE, 64), (ROPE, 100), (ROPE, 112)} <= places(report, "CG101")
    for line, call in ((64, 127), (100, 125)):
        finding = next(f for f in report["findings"] if f["path"].endswith(ROPE) and f["line"] == line)
        assert finding["root_count"] == len(ways(finding)) > 100
        expected = [(HUNYUAN, 436), (ROPE, call), (ROPE, line)]
        assert any(way[-3:] == expected for way in ways(finding))


def test_one_model_alone_shows_its_own_path_first() -> None:
    report = run("transformers-5.16.0", "transformers/models/hunyuan_v1_dense")
    for line, call in ((64, 127), (100, 125)):
        finding = next(f for f in report["findings"] if f["path"].endswith(ROPE) and f["line"] == line)
        assert finding["outside"]
        assert ways(finding)[0][-3:] == [(HUNYUAN, 436), (ROPE, call), (ROPE, line)]


def test_guarded_masks_stay_silent() -> None:
    report = run("transformers-5.16.0", "transformers", "--all-paths")
    assert not {("masking_utils.py", 269), ("masking_utils.py", 331)} & {
        place for code in report["summary"]["by_code"] for place in places(report, code)
    }


def test_missing_stream_in_vllm_0_28() -> None:
    found = places(run("vllm-0.28.0", "vllm"), "CG401")
    assert found == {
        ("v1/worker/encoder_cudagraph.py", 273),
        ("v1/worker/gpu/cudagraph_utils.py", 365),
        ("v1/spec_decode/gemma4.py", 133),
    }


def test_no_missing_stream_in_vllm_0_29() -> None:
    assert places(run("vllm-0.29.0", "vllm"), "CG401") == set()


def test_missing_stream_in_vllm_0_33() -> None:
    found = places(run("vllm-0.33.0", "vllm"), "CG401")
    assert {
        ("model_executor/warmup/rocm_segmented_attn_autotune_warmup.py", 467),
        ("models/deepseek_v41/nvidia/specialized_decode/runtime/metadata_graphs.py", 154),
    } <= found


def test_nested_compile_in_vllm_0_33() -> None:
    found = places(run("vllm-0.33.0", "vllm"), "CG301")
    assert {
        ("model_executor/layers/vocab_parallel_embedding.py", 176),
        ("models/glm5next/common/attention.py", 54),
        ("models/kimi_k3/nvidia/mla.py", 121),
    } <= found
    # Samplers and processors run outside of captures.
    assert not {place for place in found if "/sample/" in place[0] or "/processors/" in place[0]}


@pytest.mark.parametrize(
    ("release", "path"),
    [
        ("transformers-5.17.0", "transformers"),
        ("vllm-0.33.0", "vllm"),
        ("sglang-0.5.23", "sglang"),
        ("diffusers-0.42.1", "diffusers"),
        ("flash_linear_attention-0.6.0", "fla"),
        ("accelerate-1.15.0", "accelerate"),
    ],
)
def test_no_internal_error(release: str, path: str) -> None:
    assert run(release, path)["errors"] == []


def test_the_standard_library_s_own_tests_do_not_break_it() -> None:
    folder = Path(os.__file__).parent / "test"
    command = [sys.executable, "-m", "cgsafe", "check", str(folder), "--output-format", "json"]
    result = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(result.stdout)
    assert not [e for e in report["errors"] if "internal" in e["message"]]
