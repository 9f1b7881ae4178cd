"""What each transformation makes of code, however it is laid out; and what it leaves to people."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from cgsafe import engine
from cgsafe.fixes.apply import Fixed, fix
from cgsafe.fixes.calls import add_keyword
from cgsafe.fixes.patch import applied
from cgsafe.fixes.target import SourceFile, Target
from cgsafe.rule import load_rules
from cgsafe.settings import Settings
from conftest import write_files
from fix_samples import SAFE, UNSAFE

HEAD = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
FORWARD = "    def forward(self, x: torch.Tensor, y: torch.Tensor, n: int, v: float):\n"


@pytest.fixture
def fixing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`fixing({"model.py": text})`: the outcome of fixing all there is, without writing it."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, str | bytes], unsafe: bool = True) -> Fixed:
        write_files(tmp_path, {k: v.encode() if isinstance(v, str) else v for k, v in files.items()})
        rules, problems = load_rules()
        assert not problems
        return fix(lambda settings: engine.check(["."], settings, rules), Settings(jobs=1, cache=False), unsafe, False)

    return run


def body(text: str, head: str = HEAD) -> str:
    return head + FORWARD + textwrap.indent(textwrap.dedent(text).strip("\n"), " " * 8) + "\n        return x\n"


def fixed_text(fixing, before: str, unsafe: bool = True) -> str:
    """The text after fixing, once it is certain that this is the end of it."""
    outcome = fixing({"model.py": before}, unsafe)
    if not outcome.files:
        return before
    after = outcome.files[0].source.text
    ast.parse(after)
    assert not outcome.report.notes
    again = fixing({"model.py": after}, unsafe)
    assert again.count == 0
    assert again.files == []
    return after


def becomes(fixing, before: str, after: str, unsafe: bool = True) -> None:
    """The body of a forward becomes another one, byte for byte, and nothing is left to report."""
    assert fixed_text(fixing, body(before), unsafe) == body(after)
    assert not fixing({"model.py": body(after)}).report.findings


@pytest.mark.parametrize(("before", "after"), SAFE.values(), ids=SAFE)
def test_a_safe_fix(fixing, before, after):
    becomes(fixing, before, after, unsafe=False)


@pytest.mark.parametrize(("before", "after"), UNSAFE.values(), ids=UNSAFE)
def test_an_unsafe_fix(fixing, before, after):
    extra = "\n\n    def extra(self, n: int) -> float:\n        return 2.0 * n\n" if "self.extra" in before else ""
    assert fixed_text(fixing, body(before) + extra, unsafe=False) == body(before) + extra
    assert fixed_text(fixing, body(before) + extra) == body(after) + extra
    assert not fixing({"model.py": body(after) + extra}).report.findings


BY_HAND = {
    "different elements": "t = torch.tensor([1.0, 2.0], device='cuda')",
    "equal, but of two types": "t = torch.tensor([1, 1.0], device='cuda')",
    "arguments that are not seen": "t = torch.tensor(2.0, **{'device': 'cuda'})",
    "a place for the result": "t = torch.linalg.inv(x, out=y)",
    "a field of the result": "t = torch.linalg.lu_factor(x).LU",
    "two lists": "t = x[[0], [1]]",
    "a list beside an integer": "t = x[0, [1]]",
    "gaps": "t = x[[0, 2]]",
    "backwards": "t = x[[1, 0]]",
    "around the end": "t = x[[-1, 0]]",
    "a comment in the list": "t = x[[\n    0  # first\n]]",
    "made elsewhere": "t = torch.zeros(n)\nu = t.to(x.device)",
    "moved and converted": "t = torch.arange(n).to(x.device, torch.float16)",
    "moved to where a tensor is": "t = torch.zeros(n).to(x)",
    "two stores at once": "z = torch.zeros(4, device='cuda')\nz[0] = z[1] = 1.0",
    "a comment in what goes": "t = (\n    torch.zeros(n)  # made\n    .to(x.device)\n)",
    "in an f-string": "t = f'{torch.tensor(2.0, device=x.device).dtype}'",
    "a copy that cannot be told not to wait": (
        "p = torch.zeros(4, pin_memory=True)\nt = torch.as_tensor(p, device=x.device)"
    ),
    "no edit is known": "t = x.nonzero()",
}


@pytest.mark.parametrize("before", BY_HAND.values(), ids=BY_HAND)
def test_what_is_left_to_people(fixing, before):
    outcome = fixing({"model.py": body(before)})
    assert outcome.files == []
    assert outcome.report.findings
    assert all(f.fix is not None and (f.fix.safety, f.fix.edits) == ("manual", ()) for f in outcome.report.findings)


HELPER = """

def helper(value{annotation}):
    {statement}


class Model(nn.Module):
    def forward(self, x: torch.Tensor):
{calls}
        return x
"""


def with_helper(annotation: str, statement: str, *calls: str) -> str:
    lines = "\n".join(f"        {call}" for call in calls)
    imports = "import torch\nfrom torch import nn\n"
    return imports + HELPER.format(annotation=annotation, statement=statement, calls=lines)


def test_a_parameter_that_may_also_be_a_list(fixing):
    calls = ("helper(torch.zeros(4, device='cuda'))", "helper([1.0])")
    store, fill = "value[0] = 1.0", "value[0].fill_(1.0)"
    plain, annotated = (with_helper(a, store, *calls) for a in ("", ": torch.Tensor"))
    assert fixed_text(fixing, plain, unsafe=False) == plain
    assert fixed_text(fixing, annotated, unsafe=False) == annotated.replace(store, fill)


@pytest.mark.parametrize("order", [1, -1])
def test_no_edit_where_callers_pass_different_things(fixing, order):
    make = "return torch.tensor(value, device='cuda')"
    calls = ("helper(2)", "helper([1, 2])")[::order]
    assert fixing({"model.py": with_helper("", make, *calls)}).files == []
    assert fixing({"model.py": with_helper("", make, *calls)}).report.findings
    after = with_helper("", "return torch.full((), value, device='cuda')", "helper(2)", "helper(3)")
    assert fixed_text(fixing, with_helper("", make, "helper(2)", "helper(3)")) == after


def test_a_number_is_only_sure_where_an_annotation_says_so(fixing):
    make, full = (f"return torch.{call}value, device='cuda')" for call in ("tensor(", "full((), "))
    calls = ("helper(2)", "helper(3)")
    assert fixed_text(fixing, with_helper("", make, *calls), unsafe=False) == with_helper("", make, *calls)
    assert fixed_text(fixing, with_helper(": int", make, *calls), unsafe=False) == with_helper(": int", full, *calls)


def test_augmented_assignment_is_no_store(fixing):
    text = body("z = torch.zeros(4, device='cuda')\nz[0] += 1.0")
    assert fixing({"model.py": text}).files == []


# -- names and imports -------------------------------------------------------------------------------------------------


def with_imports(imports: str, forward: str) -> str:
    head = f"{imports}\n\n\nclass Model(nn.Module):\n"
    return head + f"    def forward(self, x):\n        t = {forward}\n        return x + t\n"


@pytest.mark.parametrize(
    ("imports", "before", "imports_after", "after"),
    [
        (
            "import torch as th\nfrom torch import nn",
            "th.tensor(2.0, device='cuda')",
            None,
            "th.full((), 2.0, device='cuda')",
        ),
        (
            "import torch\nfrom torch import nn, tensor",
            "tensor(2.0, device='cuda')",
            None,
            "torch.full((), 2.0, device='cuda')",
        ),
        (
            "from torch import full as fill, nn, tensor as make",
            "make(2.0, device='cuda')",
            None,
            "fill((), 2.0, device='cuda')",
        ),
        (
            "from torch import nn, tensor",
            "tensor(2.0, device='cuda')",
            "from torch import nn, tensor\nimport torch",
            "torch.full((), 2.0, device='cuda')",
        ),
        (
            "import torch.nn as nn\nfrom torch.linalg import inv",
            "inv(x.float().cuda())",
            "import torch.nn as nn\nfrom torch.linalg import inv\nimport torch",
            "torch.linalg.inv_ex(x.float().cuda())[0]",
        ),
        (
            "import torch.linalg as LA\nfrom torch import nn",
            "LA.inv(x.float().cuda())",
            None,
            "LA.inv_ex(x.float().cuda())[0]",
        ),
    ],
)
def test_names_are_written_as_the_file_imports_them(fixing, imports, before, imports_after, after):
    expected = with_imports(imports_after or imports, after)
    assert fixed_text(fixing, with_imports(imports, before)) == expected


def test_a_name_that_means_something_else_is_not_used(fixing):
    text = with_imports("from torch import nn, tensor", "tensor(2.0, device='cuda')")
    text += "\n\ndef other(torch):\n    return torch\n"
    assert fixing({"model.py": text}).files == []


def site(body_text: str, imports: str = "import torch\n") -> str:
    return (
        imports
        + "\n\ndef record(step, x, graph):\n"
        + textwrap.indent(textwrap.dedent(body_text).strip("\n"), "    ")
        + "\n"
    )


WARMED = """
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    step(x)
with {}:
    step(x)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.cuda.graph(graph)", "torch.cuda.graph(graph, stream=side)"),
        ("torch.cuda.graph(graph, stream=None)", "torch.cuda.graph(graph, stream=side)"),
        ("torch.cuda.graph(graph, pool=None,)", "torch.cuda.graph(graph, pool=None, stream=side,)"),
        (
            "torch.cuda.graph(\n    graph,\n    pool=None,  # a new one\n)",
            "torch.cuda.graph(\n    graph,\n    pool=None,  # a new one\n    stream=side,\n)",
        ),
    ],
)
def test_a_capture_goes_on_the_stream_of_the_warm_up(fixing, before, after):
    assert fixed_text(fixing, site(WARMED.format(before))) == site(WARMED.format(after))


def test_a_stream_that_is_made_on_the_spot_is_no_name_for_it(fixing):
    text = site("with torch.cuda.stream(torch.cuda.Stream()):\n    step(x)\nwith torch.cuda.graph(graph):\n    step(x)")
    assert fixing({"model.py": text}).files == []


IDIOM = "from vllm.utils.torch_utils import current_stream"  # as the tables of knowledge have it


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\n", f"import torch\n{IDIOM}\n"),
        (
            '"""Text."""\n\nfrom __future__ import annotations\n\nimport torch  # first\n\nX = 1\n',
            f'"""Text."""\n\nfrom __future__ import annotations\n\nimport torch  # first\n{IDIOM}\n\nX = 1\n',
        ),
        (
            "import torch\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from vllm.utils.torch_utils import current_stream\n",
            f"import torch\nfrom typing import TYPE_CHECKING\n{IDIOM}\n\nif TYPE_CHECKING:\n"
            "    from vllm.utils.torch_utils import current_stream\n",
        ),
        (
            "import torch\nfrom vllm.utils.torch_utils import other\nimport os\n",
            "import torch\nfrom vllm.utils.torch_utils import other, current_stream\nimport os\n",
        ),
        (
            "import torch\nfrom vllm.utils.torch_utils import (\n    one,  # 1\n    other,  # 2\n)\n",
            "import torch\nfrom vllm.utils.torch_utils import (\n    one,  # 1\n    other,  # 2\n    current_stream,\n)\n",
        ),
        (
            "import torch\nfrom vllm.utils.torch_utils import (\n    one,\n    other\n)\n",
            "import torch\nfrom vllm.utils.torch_utils import (\n    one,\n    other, current_stream\n)\n",
        ),
        ("import torch; import os; X = '''\n'''\n", f"import torch; import os; X = '''\n'''\n{IDIOM}\n"),
        (f"import torch\n{IDIOM}\n", f"import torch\n{IDIOM}\n"),
    ],
    ids=["plain", "future", "type checking", "extended", "one to a line", "no trailing comma", "one line", "there"],
)
def test_the_import_of_a_projects_own_idiom(fixing, before, after):
    files = {"vllm/__init__.py": "", "vllm/utils/__init__.py": "", "vllm/utils/torch_utils.py": ""}
    code = "with torch.cuda.graph(graph{}):\n    step(x)"
    outcome = fixing({**files, "vllm/runner.py": site(code.format(""), before)})
    (file,) = outcome.files
    assert file.source.text == site(code.format(", stream=current_stream()"), after)
    assert outcome.report.findings == []


def test_no_import_where_the_name_is_taken(fixing):
    files = {"vllm/__init__.py": "", "vllm/utils/__init__.py": "", "vllm/utils/torch_utils.py": ""}
    text = site("current_stream = 1\nwith torch.cuda.graph(graph):\n    step(x)")
    assert fixing({**files, "vllm/runner.py": text}).files == []


# -- decorators --------------------------------------------------------------------------------------------------------

COMPILED = """\
import torch


{}def norm(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def record(x: torch.Tensor, g, s):
    with torch.cuda.graph(g, stream=s):
        norm(x.cuda())
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("@torch.compile\n", ""),
        ("@torch.compile(\n    dynamic=True,  # any length\n)\n", ""),
        ("@torch.compile  # faster\n", "# faster\n"),
        ("@torch.no_grad()\n@torch.compile()\n", "@torch.no_grad()\n"),
    ],
)
def test_a_decorator_goes(fixing, before, after):
    assert fixed_text(fixing, COMPILED.format(before)) == COMPILED.format(after)


def test_a_compiled_form_gives_way_to_the_function(fixing):
    text = COMPILED.format("").replace("\n\ndef record", "\n\nfast = torch.compile({}, dynamic=True)\n\n\ndef record")
    text = text.replace("norm(x.cuda())", "fast(x.cuda())")
    after = text.replace("torch.compile({}, dynamic=True)", "{}")
    assert fixed_text(fixing, text.format("norm")) == after.format("norm")


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("f()", "f(k=1)"),
        ("f( )", "f( k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f(a , )", "f(a, k=1 , )"),
        ("f(a,\n  b)", "f(a,\n  b, k=1)"),
        ("f(\n  a, b\n)", "f(\n  a, b,\n  k=1\n)"),
        ("f(\n  a,\n\n  # last\n  b,  # b\n  # none\n)", "f(\n  a,\n\n  # last\n  b,  # b\n  # none\n  k=1,\n)"),
        ("f(k=None)", "f(k=1)"),
        ("f(**a)", "f(**a, k=1)"),
        ("f((i for i in a))", None),
        ("f(i for i in a)", None),
        ("f(*a)", None),
        ("f(k=2)", None),
        ("f[a]", None),
    ],
)
def test_an_argument_more(call, after):
    file = SourceFile(f"x = {call}\n")
    target = Target.at(file, 4, 4 + len(call))
    assert target is not None
    rewrite = add_keyword(target, "k", "1")
    assert (rewrite and applied(file.text, rewrite.changes)) == (after and f"x = {after}\n")
