"""What a finding tells: confidence, the path from the root, how many roots, other paths, places outside."""

from __future__ import annotations

import textwrap

from expectations import TORCH, reported, verify

CHAIN = {
    "a.py": TORCH
    + textwrap.dedent(
        """
        from b import Layer


        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x: torch.Tensor):
                y = x + 1
                return self.layer(y)
        """
    ),
    "b.py": TORCH
    + textwrap.dedent(
        """
        import c


        class Layer(nn.Module):
            def forward(self, t):
                return c.scale(t)
        """
    ),
    "c.py": TORCH
    + textwrap.dedent(
        """

        def scale(t):
            longest = t.max()
            return t / longest.item()  # expect: CG102
        """
    ),
}


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def test_the_trace_has_each_step_with_its_line(check):
    report = verify(check, CHAIN)
    (finding,) = report.findings
    assert [(s.path, s.line, s.function) for s in finding.trace] == [
        ("a.py", line_of(CHAIN["a.py"], "self.layer(y)"), "Model.forward"),
        ("b.py", line_of(CHAIN["b.py"], "c.scale"), "Layer.forward"),
        ("c.py", line_of(CHAIN["c.py"], ".item()"), "scale"),
    ]
    assert finding.function == "scale"
    assert (finding.root.path, finding.root.function) == ("a.py", "Model.forward")
    assert finding.root.line == line_of(CHAIN["a.py"], "def forward")


def test_a_hazard_in_the_root_itself_has_one_step(check):
    report = verify(
        check,
        {
            "m.py": TORCH
            + "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()  # expect: CG102\n"
        },
    )
    (finding,) = report.findings
    assert [(s.path, s.line, s.function) for s in finding.trace] == [("m.py", 6, "M.forward")]


def test_a_decorators_wrapper_is_a_step(check):
    program = TORCH + textwrap.dedent(
        """

        def checked(f):
            def wrapper(self, x):
                verify(x)
                return f(self, x)

            return wrapper


        def verify(t):
            assert t.sum() > 0  # expect: CG101


        class M(nn.Module):
            @checked
            def forward(self, x: torch.Tensor):
                return x
        """
    )
    report = verify(check, {"m.py": program})
    (finding,) = report.findings
    assert [s.function.rpartition(".")[2] for s in finding.trace] == ["wrapper", "verify"]
    assert finding.trace[0].line == line_of(program, "verify(x)")


def test_the_path_into_a_submodule_begins_at_the_call(check):
    """As in transformers: the model's line that calls its rotary embedding, then the decorator's wrapper."""
    program = TORCH + textwrap.dedent(
        """

        def renews(f):
            def renew(self, t):
                if t.max() > 3:  # expect: CG101
                    self.limit = 4

            def wrapper(self, x):
                renew(self, x)
                return f(self, x)

            return wrapper


        class Rotary(nn.Module):
            @renews
            def forward(self, x):
                return x


        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.rotary = Rotary()

            def forward(self, x: torch.Tensor):
                return self.rotary(x)
        """
    )
    report = verify(check, {"m.py": program})
    (finding,) = report.findings
    lines = [line_of(program, part) for part in ("self.rotary(x)", "renew(self, x)", "t.max() > 3")]
    assert [s.line for s in finding.trace] == lines


def test_the_trace_of_a_capture_begins_in_its_block(check):
    program = TORCH + textwrap.dedent(
        """

        def step(t):
            return t.item()  # expect: CG102


        def capture(x: torch.Tensor, stream):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                y = x * 2
                step(y.sum())
        """
    )
    report = verify(check, {"m.py": program})
    (finding,) = report.findings
    assert finding.root.line == line_of(program, "with torch.cuda.graph")
    assert [s.line for s in finding.trace] == [line_of(program, "step(y"), line_of(program, ".item()")]


def two_models(second: str) -> dict[str, str]:
    model = TORCH + "from helper import hot\n\n\nclass {0}(nn.Module):\n    def forward(self, x: torch.Tensor):\n"
    return {
        "helper.py": TORCH + "\n\ndef hot(t):\n    return t.sum().item()  # expect: CG102\n",
        "one.py": model.format("One") + "        return hot(x)\n",
        "two.py": model.format("Two") + second,
    }


def test_one_finding_for_a_place_that_many_roots_reach(check):
    report = verify(check, two_models("        return hot(x + 1)\n"))
    (finding,) = report.findings
    assert finding.root_count == 2
    assert finding.also == ()


def test_all_paths_tells_one_for_each_root(check):
    report = verify(check, two_models("        return hot(x + 1)\n"), all_paths=True)
    (finding,) = report.findings
    assert len(finding.also) == finding.root_count - 1 == 1
    roots = {finding.root.path, *(root.path for root, _ in finding.also)}
    assert roots == {"one.py", "two.py"}
    (root, trace) = finding.also[0]
    assert trace[0].path == root.path
    assert trace[-1] == finding.trace[-1]


def test_the_shortest_path_is_told(check):
    long = "        return self.a(x)\n\n    def a(self, t):\n        return self.b(t)\n\n    def b(self, t):\n"
    report = verify(check, two_models(long + "        return hot(t)\n"))
    (finding,) = report.findings
    assert finding.root.path == "one.py"
    assert len(finding.trace) == 2


def test_the_shortest_of_one_roots_paths_is_told(check):
    report = verify(
        check, two_models("        return self.a(x) + hot(x)\n\n    def a(self, t):\n        return hot(t)\n")
    )
    (finding,) = report.findings
    assert [len(steps) for steps in (finding.trace,)] == [2]


def test_a_surer_root_goes_first(check):
    files = two_models("        return hot(x)\n")
    files["three.py"] = TORCH + textwrap.dedent(
        """
        from helper import hot


        def step(t):
            return hot(t)


        def capture(stream):
            x = torch.zeros(3, device="cuda")
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                step(x)
        """
    )
    report = verify(check, files)
    (finding,) = report.findings
    assert finding.root_count == 3
    assert finding.confidence.label == "high"
    assert finding.root.path == "three.py"


# -- confidence --------------------------------------------------------------------------------------------------------


def test_an_explicit_capture_of_known_values_is_high(check):
    program = """
        import torch

        def capture(stream):
            x = torch.zeros(3, device="cuda")
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
                x.sum().item()  # expect: CG102
        """
    report = verify(check, {"m.py": program}, min_confidence="high")
    assert report.findings[0].confidence.label == "high"


def test_a_forward_is_medium(check):
    files = {"m.py": TORCH + "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n"}
    assert [f.confidence.label for f in check(files).findings] == ["medium"]
    report = check(files, min_confidence="high")
    assert report.findings == []
    assert report.hidden == 1


def test_a_guess_is_low_and_hidden_by_default(check):
    files = {
        "m.py": TORCH
        + "class M(nn.Module):\n    def forward(self, thing):\n"
        + "        return 1 if thing.unsqueeze(0).sum() > 3 else 2\n"
    }
    assert check(files).findings == []
    assert [f.confidence.label for f in check(files, min_confidence="low").findings] == ["low"]


def test_a_possibility_is_told_as_one(check):
    program = """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                t = n if x.dim() > 1 else x.sum()
                return 1 if t > 3 else 2
        """
    report = check({"m.py": TORCH + textwrap.dedent(program)}, min_confidence="low")
    assert [f.code for f in report.findings] == ["CG101"]
    assert "may be" in report.findings[0].message


# -- places outside the given paths ------------------------------------------------------------------------------------


def test_a_models_folder_alone_tells_what_it_runs_into_elsewhere(check):
    files = two_models("        return hot(x)\n")
    files = {f"pkg/{name}": text.replace("from helper", "from .helper") for name, text in files.items()}
    files["pkg/__init__.py"] = ""
    report = check(files, paths=["pkg/one.py"])
    (finding,) = report.findings
    assert finding.outside
    assert finding.path == "pkg/helper.py"
    assert finding.root.path == "pkg/one.py"
    assert finding.root_count == 1, "roots elsewhere do not count for it"


def test_a_helper_alone_tells_who_runs_into_it(check):
    files = two_models("        return hot(x)\n")
    files = {f"pkg/{name}": text.replace("from helper", "from .helper") for name, text in files.items()}
    files["pkg/__init__.py"] = ""
    report = check(files, paths=["pkg/helper.py"])
    (finding,) = report.findings
    assert not finding.outside
    assert finding.root_count == 2
    assert {step.path for step in finding.trace} == {"pkg/one.py", "pkg/helper.py"}


def test_what_neither_lies_nor_starts_in_the_paths_is_not_told(check):
    files = two_models("        return hot(x)\n")
    files = {f"pkg/{name}": text.replace("from helper", "from .helper") for name, text in files.items()}
    files |= {"pkg/__init__.py": "", "pkg/clean.py": "import torch\n"}
    assert reported(check(files, paths=["pkg/clean.py"])) == set()


def test_the_project_is_found_from_its_project_file(check):
    files = {f"src/{name}": text for name, text in two_models("        return hot(x)\n").items()}
    files["pyproject.toml"] = ""
    report = check(files, paths=["src/one.py"])
    assert reported(report) == {("src/helper.py", 7, "CG102")}


# -- order and identity ------------------------------------------------------------------------------------------------


def test_findings_are_sorted(check):
    body = "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n"
    body += "        return int(x.max()) + x.min().item() + (1 if x.sum() > 0 else 2)\n"
    report = check({"b.py": TORCH + body, "a.py": TORCH + body})
    keys = [(f.path, f.line, f.column, f.code) for f in report.findings]
    assert keys == sorted(keys)
    assert len(keys) == 6


def test_columns_count_characters(check):
    body = "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n"
    body += "        return 'äöü€😀', x.item()  # expect: CG102\n"
    (finding,) = verify(check, {"m.py": TORCH + body}).findings
    assert (finding.column, finding.end_column) == (25, 33)


def test_a_fingerprint_survives_moved_lines(check):
    body = "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item(), x.item()\n"
    before = [f.fingerprint for f in check({"m.py": TORCH + body}).findings]
    after = [f.fingerprint for f in check({"m.py": TORCH + "\n\n# more\n\n" + body}).findings]
    assert before == after
    assert len(set(before)) == 2


def test_a_fingerprint_tells_functions_and_modules_apart(check):
    body = "class {0}(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n"
    files = {"a.py": TORCH + body.format("A") + body.format("B"), "b.py": TORCH + body.format("A")}
    prints = [f.fingerprint for f in check(files).findings]
    assert len(prints) == len(set(prints)) == 3


def test_two_reads_on_a_line_are_two_findings(check):
    body = (
        "class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.min().item() + x.max().item()\n"
    )
    report = check({"m.py": TORCH + body})
    assert [(f.line, f.column) for f in report.findings] == [(6, 16), (6, 33)]


def test_statistics_and_counts(check):
    report = check(two_models("        return hot(x)\n"))
    assert report.files_checked == report.files_known == 3
    assert report.roots == 2
    assert report.statistics["functions"] >= 3
