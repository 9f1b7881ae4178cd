"""Hot paths: what is reached and known there beyond what a plain walk knows."""

from __future__ import annotations

import json
from pathlib import Path

from cgsafe import engine
from cgsafe.cli import main
from cgsafe.config import load, merge
from cgsafe.findings import Confidence
from cgsafe.rule import load_rules

PROFILE = """
    [profile.roots]
    hot_path = ["*Runner.execute"]

    [profile.libraries]
    waits = ["planner.*Wrapper.plan"]

    [profile.objects.fields.Request]
    slots = "cpu"
"""


def found(write, text: str, **options) -> list[tuple[str, int, str]]:
    """(code, line, confidence) of what a hot path runs into."""
    write({"runner.py": text, "cgsafe.toml": PROFILE})
    rules, _ = load_rules()
    report = engine.check(["runner.py"], merge(load(), jobs=1, cache=False, hot_path=True, **options), rules)
    assert not report.errors
    return [(f.code, f.line, f.confidence.label) for f in report.findings]


def line_of(text: str) -> int:
    lines = Path("runner.py").read_text().split("\n")
    return next(number for number, content in enumerate(lines, 1) if text in content)


PLACEHOLDER = """
    import torch

    try:
        from planner import PrefillWrapper
    except ImportError:
        PrefillWrapper = object


    class Runner:
        def __init__(self):
            self.chunks: list[PrefillWrapper] = []

        def execute(self, x: torch.Tensor):
            PrefillWrapper(x).plan(x)
            for chunk in range(3):
                self.chunks[chunk].plan(x)
"""


def test_a_class_that_stands_in_for_a_missing_package_hides_nothing(write):
    codes = found(write, PLACEHOLDER)
    assert [line for _, line, _ in codes] == [line_of("PrefillWrapper(x).plan"), line_of("self.chunks[chunk].plan")]


FLAG = """
    import torch

    try:
        from planner import quick
    except ImportError:
        quick = None


    class Runner:
        def execute(self, x: torch.Tensor):
            if quick is None:
                return x.item()
            return quick(x)
"""


def test_the_way_without_a_package_is_followed_where_code_has_one(write):
    assert found(write, FLAG) == [("CG102", line_of("x.item()"), "medium")]


DEVICES = """
    import torch


    class Runner:
        def execute(self, flag: bool, group):
            device = group.device
            if flag:
                device = "cpu"
            counts = torch.zeros(4).to(device, non_blocking=True)
            return counts.max().item()

        def other(self):
            return torch.zeros(4).to("cpu").max().item()
"""


def test_a_tensor_that_goes_to_one_of_several_devices_may_be_on_the_gpu(write):
    assert found(write, DEVICES) == []
    at = line_of("counts.max().item()")
    assert ("CG102", at, "low") in found(write, DEVICES, min_confidence=Confidence.LOW)


PROTOCOL = """
    from typing import Protocol

    import torch


    class Encodes(Protocol):
        def sizes(self, x: torch.Tensor, start: int) -> list[int]:
            '''How large each item is.'''
            ...


    class Runner:
        def __init__(self, model: Encodes):
            self.model = model

        def execute(self, x: torch.Tensor):
            return self.model.sizes(x, 0)

"""
IMPLEMENTATIONS = "".join(
    f"""
    class Encoder{n}(Encodes):
        def sizes(self, x: torch.Tensor, start: int) -> list[int]:
            return {"x.tolist()" if n == 4 else "[1]"}

"""
    for n in range(6)
)


def test_a_protocol_is_followed_to_its_implementations(write):
    assert found(write, PROTOCOL + IMPLEMENTATIONS) == [("CG102", line_of("x.tolist()"), "medium")]


def test_a_protocol_without_implementations_is_unknown(write):
    assert found(write, PROTOCOL) == []


SUBCLASS = """
    from dataclasses import dataclass, field

    import torch


    @dataclass
    class Request:
        slots: torch.Tensor


    class Metadata:
        pass


    @dataclass
    class OurMetadata(Metadata):
        requests: list[Request] = field(default_factory=list)


    class Runner:
        def execute(self, x: torch.Tensor, metadata: Metadata):
            assert isinstance(metadata, OurMetadata)
            for request in metadata.requests:
                x[0] += request.slots.to(x.device)
"""


def test_isinstance_of_a_subclass_tells_what_the_subclass_has(write):
    assert [(code, line) for code, line, _ in found(write, SUBCLASS)] == [("CG202", line_of("request.slots.to"))]


def test_why_does_not_call_a_hot_path_captured(write, capsys):
    write({"runner.py": FLAG, "cgsafe.toml": PROFILE})
    at = line_of("x.item()")
    assert main(["why", f"runner.py:{at}", "--hot-path"]) == 0
    assert f"runner.py:{at} in Runner.execute: not captured, but run at every step\n" in capsys.readouterr().out
    assert main(["why", f"runner.py:{at}", "--hot-path", "--output-format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["captured"] == "hot-path"


def test_a_comment_below_a_def_line_leads_to_the_first_statement(write, capsys):
    write({"runner.py": "def f(\n    x,\n):\n    # a comment\n\n    return x\n"})
    assert main(["why", "runner.py:4"]) == 0
    assert capsys.readouterr().out.startswith("runner.py:6 in f")
    assert main(["why", "runner.py:3"]) == 0
    assert capsys.readouterr().out.startswith("runner.py:1 in f")


def test_roots_of_a_file_that_does_not_exist(write, capsys):
    write({"runner.py": ""})
    assert main(["roots", "nope.py"]) == 2
    assert "cgsafe: nope.py: no such file or folder" in capsys.readouterr().err


PINNED = """
    import torch

    from host import can_pin, keeps


    class Runner:
        def __init__(self, device):
            self.counts = torch.zeros(8, dtype=torch.int32, pin_memory=can_pin())

        def execute(self, x: torch.Tensor, rows: list[int]):
            x.copy_(self.counts, non_blocking=True)
            index = torch.tensor(rows, pin_memory=keeps).to(x.device, non_blocking=True)
            plain = torch.tensor(rows, pin_memory=False).to(x.device, non_blocking=True)
            return x[index], x[plain]
"""


def test_memory_that_is_pinned_where_that_is_possible_is_pinned(write):
    assert found(write, PINNED) == [("CG202", line_of("plain ="), "medium")]


OPTIONAL = """
    import torch


    class Runner:
        def execute(self, x: torch.Tensor, drafts_cpu: torch.Tensor | None = None):
            if drafts_cpu is not None:
                mask_cpu = drafts_cpu >= 0
                return mask_cpu.sum().item()
            return x.sum().item()
"""


def test_an_optional_parameter_that_is_named_for_the_host_is_on_the_host(write):
    assert found(write, OPTIONAL) == [("CG102", line_of("x.sum().item()"), "medium")]


QUERY = """
    import torch


    class Runner:
        def execute(self, x: torch.Tensor):
            done = torch.cuda.Event()
            done.record()
            if not done.query():
                done.synchronize()
"""


def test_asking_how_far_the_gpu_is_is_no_wait(write):
    assert [(code, line) for code, line, _ in found(write, QUERY)] == [("CG106", line_of("done.synchronize()"))]


def test_a_buffer_on_the_host_by_its_name_is_pinned_where_nobody_blocks(write):
    text = """
        import torch


        class Runner:
            def execute(self, counts: torch.Tensor, counts_cpu: torch.Tensor):
                counts_cpu[:4].copy_(counts[:4], non_blocking=True)
                counts_cpu[:4].copy_(counts[:4])
                kept = torch.empty_like(counts, device="cpu", pin_memory=True)
                kept.copy_(counts, non_blocking=True)
                paged = torch.empty_like(counts, device="cpu")
                paged.copy_(counts, non_blocking=True)
                counts_cpu.to(counts.device, non_blocking=True)
                counts_cpu.to(counts.device)
    """
    assert found(write, text) == [("CG102", 7, "medium"), ("CG102", 11, "medium"), ("CG202", 13, "medium")]


def test_what_runs_only_for_tensors_on_the_cpu_is_a_guess(write):
    text = """
        import torch


        def reference(tokens: torch.Tensor, rows: torch.Tensor):
            return int(rows[0])


        class Runner:
            def execute(self, tokens, rows: torch.Tensor):
                if tokens.device.type == "cpu":
                    return reference(tokens, rows)
                return int(rows[1])
    """
    assert found(write, text) == [("CG103", 12, "medium")]
    everything = found(write, text, min_confidence=Confidence.LOW)
    assert ("CG103", 5, "low") in everything


def test_a_planner_that_is_given_what_it_reads_on_the_host_most_likely_does_not_wait(write):
    text = """
        import planner
        import torch


        class Runner:
            def __init__(self):
                self.planned = planner.DecodeWrapper()

            def execute(self, lengths: torch.Tensor, lengths_cpu: torch.Tensor):
                self.planned.plan(lengths)
                self.planned.plan(lengths_cpu)
    """
    assert found(write, text) == [("CG106", 10, "medium")]
