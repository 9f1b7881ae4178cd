"""Framework profiles: those that come with the tool, and what a project adds to them."""

from __future__ import annotations

import json

import pytest

from cgsafe import engine
from cgsafe.config import ConfigError, load, merge
from cgsafe.knowledge import load as table
from cgsafe.profiles import FREE, SCHEMA, merged, shipped, validated
from cgsafe.rule import load_rules

MODEL = """
    import torch
    from torch import nn


    class Base(nn.Module):
        pass


    def inside_graph():
        return STATE.inside


    def accepts():
        return STATE


    def prepares(x):
        return x.item()


    class Inputs:
        def __init__(self, given):
            self.lengths = given.lengths
            self.mirror = given.mirror


    class Encoder(nn.Module):
        def forward(self, x):
            return x.tolist()


    class Model(nn.Module):
        def forward(self, x: torch.Tensor, inputs: Inputs, more: torch.Tensor | None = None):
            {body}
            return x


    class Runner:
        def step(self, x: torch.Tensor):
            return x.item()
"""


def codes(write, body: str = "pass", profile: str = "", **settings) -> list[tuple[str, str]]:
    """(code, function) of what is found with a profile."""
    files = {"model.py": MODEL.format(body=body), "cgsafe.toml": profile}
    write(files)
    rules, _ = load_rules()
    report = engine.check(["model.py"], merge(load(), jobs=1, cache=False, **settings), rules)
    assert not report.errors
    return [(f.code, f.function) for f in report.findings if f.code != "CG401"]


@pytest.mark.parametrize("name", shipped())
def test_the_profiles_of_the_tool_are_valid_and_sorted(name):
    profile = table(f"profiles/{name}")
    validated(profile)
    for section, entries in profile.items():
        for key, value in entries.items() if section in SCHEMA else ():
            if isinstance(value, list) and key != "current_stream":
                assert len(set(value)) == len(value), f"{section}.{key}"


def test_every_key_is_documented():
    from pathlib import Path

    text = (Path(engine.__file__).parent / "docs" / "profiles.md").read_text()
    for section, keys in SCHEMA.items():
        for key in keys:
            if section != "host_names":
                assert f"`{section}.{key}" in text
    assert all(f"`{section}`" in text for section in FREE)


ENCODER = ("CG102", "Encoder.forward")


@pytest.mark.parametrize(
    ("body", "profile", "without", "with_"),
    [
        ("if not inside_graph(): x.item()", "[profile.guards.named]\ninside_graph = 'captured'", 1, 0),
        ("if x.any(): prepares(x)", "[profile.functions]\nhost_setup = ['prepares']", 2, 1),
        ("x = x + prepares(x)", "[profile.functions]\neager = ['prepares']", 1, 0),
        ("x = x + prepares(x)", "[profile.functions]\neager = ['model.prep*']", 1, 0),
        ("x = x + prepares(x)", "[profile.functions]\neager = ['other.prep*']", 1, 1),
        ("if inside_graph(): x.item()", "[profile.guards.in_classes]\n'Mod*' = { inside_graph = false }", 1, 0),
        ("if inside_graph(): x.item()", "[profile.guards.in_classes]\n'Other*' = { inside_graph = false }", 1, 1),
        ("if STATE.tracing: x.item()", "[profile.doubts]\nswitches = ['trac*']", 1, 0),
        ("if STATE.ready: x.item()", "[profile.doubts]\nswitches = ['trac*']", 1, 1),
        ("if STATE.tracing or n: x.item()", "[profile.doubts]\nswitches = ['trac*']", 1, 1),
        ("if not STATE.tracing: return x\n            x.item()", "[profile.doubts]\nswitches = ['trac*']", 1, 0),
        ("if not STATE.tracing: x.item()", "[profile.doubts]\nswitches = ['trac*']", 1, 1),
        ("with accepts(): x.item()", "[profile.contexts]\nsync_allowed = ['accepts']", 1, 0),
        ("if inputs.lengths > 3: x = x + 1", "[profile.objects.fields.Inputs]\nlengths = 'tensor:int'", 0, 1),
        ("x.item()  # quick: my-sync-ok", "[profile.contexts]\ncomments = ['my-sync-ok']", 1, 0),
        ("x.item()  # gpu-sync-ok: once", "", 0, 0),
        ("if x.dtype == torch.float8_e5m2: x.item()", "[profile.doubts]\ndtypes = ['torch.float8_e5m2']", 1, 0),
        ("if inside_graph(): x.item()", "[profile.guards.in_classes]\n'Mod*' = { inside_graph = 'seldom' }", 1, 0),
        ("if not inside_graph(): x.item()", "[profile.guards.in_classes]\n'Mod*' = { inside_graph = 'seldom' }", 1, 1),
        ("if not inside_graph(): x.item()", "[profile.guards.in_classes]\n'Mod*' = { inside_graph = 'usually' }", 1, 0),
        ("if inside_graph(): x.item()", "[profile.guards.in_classes]\n'Mod*' = { inside_graph = 'usually' }", 1, 1),
        (
            "if x.any() or inside_graph(): x.item()",
            "[profile.guards.in_classes]\n'M*' = { inside_graph = 'seldom' }",
            2,
            2,
        ),
        ("if more is None: x.item()", "[profile.doubts]\ngiven = ['more']", 1, 0),
        ("if more is not None: x.item()", "[profile.doubts]\ngiven = ['more']", 1, 1),
        ("if more is None: x.item()", "[profile.doubts]\ngiven = ['x']", 1, 1),
        ("if inputs.mirror is None: x.item()", "[profile.objects.fields.Inputs]\nmirror = 'list'", 1, 0),
        ("if inputs.mirror is not None: x.item()", "[profile.objects.fields.Inputs]\nmirror = 'none'", 1, 0),
        ("for one in inputs.mirror: x.item()", "[profile.objects.fields.Inputs]\nmirror = 'none'", 1, 0),
        ("for _, one in enumerate(inputs.mirror): x.item()", "[profile.objects.fields.Inputs]\nmirror = 'none'", 1, 0),
        # A tensor that only special captures have is a guess; what is done where there is none is not.
        ("inputs.mirror.tolist()", "[profile.objects.fields.Inputs]\nmirror = 'tensor:int'", 0, 1),
        ("inputs.mirror.tolist()", "[profile.objects.fields.Inputs]\nmirror = 'maybe-tensor'", 0, 0),
        ("if inputs.mirror is None: x.item()", "[profile.objects.fields.Inputs]\nmirror = 'maybe-tensor'", 1, 1),
        ("x.item()", "[profile.roots]\ncaptured_modules = ['other', 'engine.*']", 1, 0),
        ("x.item()", "[profile.roots]\ncaptured_modules = ['other', 'mod*']", 1, 1),
    ],
)
def test_what_a_project_adds_counts(write, body, profile, without, with_):
    found = [len([c for c in codes(write, body, p) if c != ENCODER]) for p in ("", profile)]
    assert found == [without, with_]


def test_classes_that_are_not_captured(write):
    assert ENCODER in codes(write)
    assert ENCODER not in codes(write, profile="[profile.roots]\nnot_captured_classes = ['Enc*']")


@pytest.mark.parametrize("package", ["model", "another"])
def test_what_counts_in_one_package_only(write, package):
    for profile in (
        f"[profile.within.{package}.roots]\nnot_captured_classes = ['Enc*']",
        f"[profile]\napplies-to = ['{package}']\nroots.not-captured-classes = ['Enc*']",
    ):
        assert (ENCODER in codes(write, profile=profile)) == (package == "another")


def test_functions_that_a_profile_calls_captured(write):
    assert ("CG102", "Runner.step") not in codes(write)
    assert ("CG102", "Runner.step") in codes(write, profile="[profile.roots]\ncaptured = ['Runner.step']")
    assert ("CG102", "Runner.step") in codes(write, profile="[profile.roots]\ncompiled = ['model.Runner.*']")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[profile.rots]\na = 1", 1, "unknown key `rots`; did you mean `roots`?"),
        ("[profile.roots]\n\nnot_captured_clases = ['A']", 3, "did you mean `not_captured_classes`?"),
        ("[profile.roots]\ncaptured = 'A'", 2, '`profile.roots.captured`: expected a list of names; write ["A"]'),
        ("[profile.guards.named]\nf = 'sometimes'", 2, "`profile.guards.named.f`: expected one of true, false"),
        ("[profile]\nnames.x = 'gpu'", 2, "`profile.names.x`: expected one of"),
        ("[profile.within.a.rots]\nb = []", 1, "did you mean `roots`?"),
        ("profile = 3", 1, "`profile`: expected a table"),
    ],
)
@pytest.mark.parametrize("name", ["cgsafe.toml", "pyproject.toml"])
def test_a_faulty_profile_is_an_error_with_its_place(write, name, text, line, message):
    if name == "pyproject.toml":
        text = text.replace("[profile", "[tool.cgsafe.profile")
        if text.startswith("profile"):
            text, line = f"[tool.cgsafe]\n{text}", line + 1
    write({name: text})
    with pytest.raises(ConfigError) as caught:
        load()
    assert str(caught.value).startswith(f"{name}:{line}: ")
    assert message in str(caught.value)


def test_the_cache_knows_what_a_project_added(write, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rules, _ = load_rules()
    found = []
    for profile in ("", "[profile.roots]\nnot_captured_classes = ['Enc*']", ""):
        write({"model.py": MODEL.format(body="pass"), "cgsafe.toml": profile})
        report = engine.check(["model.py"], merge(load(), jobs=1), rules)
        found.append([f.function for f in report.findings])
    assert found == [["Encoder.forward"], [], ["Encoder.forward"]]


def test_later_profiles_add_to_earlier_ones():
    added = json.dumps({"names": {"x": "int"}, "roots": {"not_run": ["gen_*.py"]}})
    both = merged(added, "")
    assert both["names"]["x"] == "int"
    assert both["names"]["q"] == "tensor:float"
    assert "gen_*.py" in both["roots"]["not_run"]
    assert "modular_*.py" in both["roots"]["not_run"]
    assert merged("", "")["names"]["x"] == "tensor:float"


PICKED = """
    import torch
    from torch import nn


    class Op(nn.Module):
        METHODS = {{"cuda": "forward_cuda", "cpu": "forward_cpu"}}

        def forward(self, *args):
            return getattr(self, self.METHODS[platform()])(*args)

        def forward_cuda(self, *args):
            raise NotImplementedError


    class Norm(Op):
        def {name}(self, x):
            return x * x.max().item()


    class Scaled(Norm):
        pass


    class Own(Op):
        def forward(self, x):
            return x

        def forward_cuda(self, x):
            return x * x.sum().item()


    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = {made}()

        def forward(self, x: torch.Tensor):
            x = self.norm(x)
            return {result}


    def flag(given):
        return bool(given)
"""
BY_NAME = "[profile.dispatch.by_name]\nOp = ['forward_cuda', 'forward_native']"


def picked(write, made, name, profile, result="x"):
    """The functions in which something is found."""
    write({"model.py": PICKED.format(made=made, name=name, result=result), "cgsafe.toml": profile})
    rules, _ = load_rules()
    report = engine.check(["model.py"], merge(load(), jobs=1, cache=False), rules)
    return [f.function for f in report.findings]


@pytest.mark.parametrize(
    ("made", "name", "profile", "expected"),
    [
        ("Norm", "forward_cuda", "", []),
        ("Norm", "forward_cuda", BY_NAME, ["Norm.forward_cuda"]),
        ("Scaled", "forward_cuda", BY_NAME, ["Norm.forward_cuda"]),
        ("Norm", "forward_native", BY_NAME, ["Norm.forward_native"]),
        ("Norm", "forward_other", BY_NAME, []),
    ],
)
def test_what_a_base_picks_by_name(write, made, name, profile, expected):
    assert picked(write, made, name, profile) == expected


def test_a_forward_of_ones_own_is_not_that_of_the_base(write):
    found = picked(write, "Own", "forward_cuda", BY_NAME, result="x * x.min().item()")
    assert "Own.forward_cuda" not in found
    assert "Model.forward" in found


def test_what_comes_back_is_what_the_method_returns(write):
    found = picked(write, "Norm", "forward_cuda", BY_NAME, result="x * flag(x)")
    assert found == ["Norm.forward_cuda", "flag"]


OPERATOR = """
    import torch
    from torch import nn
    from lib import book_operator


    def reads(x):
        return x.item()


    book_operator("reads", reads)


    class Model(nn.Module):
        def forward(self, x: torch.Tensor):
            return torch.ops.mine.reads(x)
"""


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("", []),
        ("[profile.custom_ops]\nregistrars = ['book_operator']", ["reads"]),
        ("[profile.custom_ops]\nregistrars = ['book_operator']\nsplitting = ['mine::reads']", []),
    ],
)
def test_operators_that_a_function_of_the_project_registers(write, profile, expected):
    write({"model.py": OPERATOR, "cgsafe.toml": profile})
    rules, _ = load_rules()
    report = engine.check(["model.py"], merge(load(), jobs=1, cache=False), rules)
    assert [f.function for f in report.findings] == expected


HOT = """
    import torch


    class Runner:
        def __init__(self, device):
            self.lengths = torch.zeros(8, device=device)
            self.states = {}

        def execute(self, x: torch.Tensor):
            if torch.cuda.is_current_stream_capturing():
                return x.sum().item()
            with gpu_sync_allowed():
                counts = x.tolist()
            return counts, x.max().item()

        def elsewhere(self, x: torch.Tensor):
            return x.item()


    def gpu_sync_allowed():
        return None
"""


def test_hot_paths_warn_only_when_asked_and_keep_accepted_waits_apart(write):
    write({"runner.py": HOT, "cgsafe.toml": "[profile.roots]\nhot_path = ['*Runner.execute']"})
    rules, _ = load_rules()

    def check(**options):
        report = engine.check(["runner.py"], merge(load(), jobs=1, cache=False, **options), rules)
        kept = [(f.code, f.line, f.severity.value, f.region, f.root.kind) for f in report.findings]
        return kept, [(f.line, f.accepted) for f in report.accepted], report.findings

    assert check()[:2] == ([], [])
    expected = [("CG102", 14, "warning", "hot-path", "hot-path")]
    kept, accepted, findings = check(hot_path=True)
    assert (kept, accepted) == (expected, [])
    assert "stalls the host" in findings[0].message
    assert check(hot_path=True, show_accepted=True)[:2] == (expected, [(13, "gpu_sync_allowed()")])


WARMED = "[profile.roots]\nwarmed = ['model']"


@pytest.mark.parametrize(
    ("body", "warmed"),
    [
        ("if self.kept.table is None: self.kept.table = x.sum().item()", 0),
        ("if self.kept is None or self.kept < 2: self.kept = x.sum().item()", 0),
        ("if not hasattr(self, 'kept'): self.kept = x.sum().item()", 0),
        ("if KEPT.get(1) is None: KEPT[1] = x.sum().item()", 0),
        ("if hasattr(self, 'kept'): return x\n            self.kept = x.sum().item()", 0),
        ("if 1 not in KEPT: KEPT[1] = x.sum().item()", 0),
        (
            "found = KEPT.get(1)\n            if found is not None: return found\n            KEPT[1] = x.sum().item()",
            0,
        ),
        ("if 1 in KEPT: return KEPT[1]\n            KEPT[1] = x.sum().item()", 0),
        ("if hasattr(self, 'kept'): return x\n            setattr(self, 'kept', x.sum().item())", 0),
        ("if hasattr(self, 'kept'): return x\n            object.__setattr__(self, 'kept', x.sum().item())", 0),
        # Grown to the size that the call needs.
        ("if self.room < x.shape[0]: self.room = x.sum().item()", 0),
        (
            "have = KEPT.get(1)\n            room = 0 if have is None else have\n            if room < 4: KEPT[1] = x.sum().item()",
            0,
        ),
        # Nothing is kept, or not what was looked for: the capture makes it again.
        ("if self.kept is None: x.sum().item()", 1),
        ("if self.kept is None: self.other = x.sum().item()", 1),
        ("found = KEPT.get(1)\n            if found is not None: return found\n            x.sum().item()", 1),
        ("if self.kept is not None: self.kept = x.sum().item()", 1),
        ("if hasattr(self, 'kept'): return x\n            setattr(self, 'other', x.sum().item())", 1),
        ("if self.room < x.shape[0]: self.other = x.sum().item()", 1),
        ("room = x.shape[0]\n            table = {}\n            if room < 4: table[room] = x.sum().item()", 1),
    ],
)
def test_what_a_first_call_keeps_is_made_before_the_captures_of_frameworks_that_run_it_first(write, body, warmed):
    counts = [len([c for c in codes(write, body, p) if c[1] == "Model.forward"]) for p in ("", WARMED)]
    # What is surely stored there, and set nowhere else, is taken for made by a warm-up without such a word, too.
    assert counts == [0 if "not hasattr" in body else 1, warmed]


@pytest.mark.parametrize(
    ("decorator", "warmed"), [("@torch.compile", 0), ("@functools.lru_cache(maxsize=4)", 0), ("", 1)]
)
def test_what_is_compiled_or_cached_is_so_before_the_captures_of_such_frameworks(write, decorator, warmed):
    model = f"""
        import functools
        import torch
        from torch import nn

        {decorator}
        def total(x: torch.Tensor):
            return x.sum().item()

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                return total(x)
    """
    rules, _ = load_rules()
    for profile, count in (("", 1), (WARMED, warmed)):
        write({"model.py": model, "cgsafe.toml": profile})
        report = engine.check(["model.py"], merge(load(), jobs=1, cache=False), rules)
        assert bool([f for f in report.findings if decorator != "@torch.compile" or f.code == "CG301"]) == bool(count)


def test_a_capture_in_a_module_that_runs_first_finds_made_what_a_first_call_keeps(write):
    runner = """
        import torch

        ROOM = {}

        def buffers(x: torch.Tensor):
            if ROOM.get(x.shape[0]) is None:
                ROOM[x.shape[0]] = x.sum().item()
            return x

        def record(x: torch.Tensor, graph, stream):
            with torch.cuda.graph(graph, stream=stream):
                return buffers(x), x.max().item()
    """
    rules, _ = load_rules()
    found = []
    for profile in ("", WARMED.replace("model", "runner")):
        write({"runner.py": runner, "cgsafe.toml": profile})
        report = engine.check(["runner.py"], merge(load(), jobs=1, cache=False), rules)
        found.append([f.line for f in report.findings if f.code == "CG102"])
    assert found == [[7, 12], [12]]


LOADED = """
    import torch
    from torch import nn


    class Scale:
        pass


    class Layer(nn.Module):
        def __init__(self, chosen):
            super().__init__()
            self.scale = None
            self.shift = None
            self.other = None
            if chosen:
                self.other = Scale()

        def prepare_weights(self):
            self._bind()
            self.shift = Scale()

        def unload_weights(self):
            pass

        def _bind(self):
            self.scale = Scale()

        def drop(self):
            self.scale = None

        def forward(self, x: torch.Tensor):
            if self.scale is None:
                x = x / x.max().item()
            if self.shift is None:
                x = x - x.min().item()
            if self.other is None:
                x = x - x.mean().item()
            return x
"""


@pytest.mark.parametrize(
    ("loading", "lines"),
    [
        ("[]", [33, 35, 37]),
        ("['prepare_*']", [37]),  # what only the constructor sets may stay None
        ("['_bind']", [35, 37]),
        ("['prepare_*', 'drop']", [33, 37]),  # loading may clear it
        ("['unload_weights']", [33, 35, 37]),
    ],
)
def test_what_loading_fills_is_there_when_a_graph_is_captured(write, loading, lines):
    write({"model.py": LOADED, "cgsafe.toml": f"[profile.functions]\nloading = {loading}"})
    rules, _ = load_rules()
    report = engine.check(["model.py"], merge(load(), jobs=1, cache=False), rules)
    assert [f.line for f in report.findings] == lines


APART = "[profile.roots]\nwarmed_apart = ['model']"


def test_what_a_warm_up_of_another_make_covers_is_a_warning_that_says_so(write):
    model = """
        import torch
        from torch import nn

        @torch.compile
        def total(x: torch.Tensor):
            return x.sum()

        class Model(nn.Module):
            def forward(self, x: torch.Tensor):
                return total(x) * x.max().item()
    """
    rules, _ = load_rules()
    seen = []
    for profile in ("", APART):
        write({"model.py": model, "cgsafe.toml": profile})
        report = engine.check(["model.py"], merge(load(), jobs=1, cache=False), rules)
        seen.append({f.code: (f.severity.value, "in another way" in f.message) for f in report.findings})
    assert seen == [
        {"CG301": ("error", False), "CG102": ("error", False)},
        {"CG301": ("warning", True), "CG102": ("error", False)},
    ]
