"""What each transformation makes of code, however it is laid out; and what it leaves to people."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from cgsafe import engine
from cgsafe.fixes.apply import Fixed, fix
from cgsafe.rule import load_rules
from cgsafe.settings import Settings
from conftest import write_files

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


SAFE = {
    "tensor of a float": ("t = torch.tensor(2.0, device=x.device)", "t = torch.full((), 2.0, device=x.device)"),
    "tensor of an int": ("t = torch.tensor(2, device='cuda')", "t = torch.full((), 2, device='cuda')"),
    "tensor of a bool": ("t = torch.tensor(True, device='cuda')", "t = torch.full((), True, device='cuda')"),
    "tensor of minus one": ("t = torch.tensor(-1, device='cuda')", "t = torch.full((), -1, device='cuda')"),
    "keeps dtype": (
        "t = torch.tensor(2.0, dtype=x.dtype, device=x.device)",
        "t = torch.full((), 2.0, dtype=x.dtype, device=x.device)",
    ),
    "as_tensor": ("t = torch.as_tensor(2.0, device=x.device)", "t = torch.full((), 2.0, device=x.device)"),
    "an int by name": ("t = torch.tensor(n, device=x.device)", "t = torch.full((), n, device=x.device)"),
    "a size": ("t = torch.tensor(x.shape[0] - 1, device='cuda')", "t = torch.full((), x.shape[0] - 1, device='cuda')"),
    "a float by name, with dtype": (
        "t = torch.tensor(v, device='cuda', dtype=torch.float32)",
        "t = torch.full((), v, device='cuda', dtype=torch.float32)",
    ),
    "data by keyword": (
        "t = torch.tensor(device='cuda', data=2.0)",
        "t = torch.full(size=(), device='cuda', fill_value=2.0)",
    ),
    "equal elements": ("t = torch.tensor([0.5, 0.5], device='cuda')", "t = torch.full((2,), 0.5, device='cuda')"),
    "a repeated element": ("t = torch.tensor([1] * 4, device='cuda')", "t = torch.full((4,), 1, device='cuda')"),
    "limits of a dtype": (
        "t = torch.tensor(torch.finfo(x.dtype).min, device=x.device)",
        "t = torch.full((), torch.finfo(x.dtype).min, device=x.device)",
    ),
    "new_tensor with dtype": (
        "t = x.new_tensor(2.0, dtype=torch.float32)",
        "t = x.new_full((), 2.0, dtype=torch.float32)",
    ),
    "twice in a line": (
        "t = torch.tensor(1.0, device='cuda') + torch.tensor(2.0, device='cuda')",
        "t = torch.full((), 1.0, device='cuda') + torch.full((), 2.0, device='cuda')",
    ),
    "several lines": (
        """
        t = torch.tensor(
            2.0,  # two

            device=x.device,
            dtype = x.dtype,  # as x

        ) + 1  # and one
        """,
        """
        t = torch.full(
            (), 2.0,  # two

            device=x.device,
            dtype = x.dtype,  # as x

        ) + 1  # and one
        """,
    ),
    "a chain in parentheses": (
        """
        t = (
            torch  # the library
            .tensor(2.0, device=x.device)
            .exp()
        )
        """,
        """
        t = (
            torch  # the library
            .full((), 2.0, device=x.device)
            .exp()
        )
        """,
    ),
    "element": (
        "z = torch.zeros(4, device='cuda')\nz[3] = 1.0  # last",
        "z = torch.zeros(4, device='cuda')\nz[3].fill_(1.0)  # last",
    ),
    "element of two dimensions": (
        "z = torch.zeros(4, 4, device='cuda')\nz[n, -1] = n * 2",
        "z = torch.zeros(4, 4, device='cuda')\nz[n, -1].fill_(n * 2)",
    ),
    "element, over lines": (
        "z = torch.zeros(4, device='cuda')\nz[\n    3\n] = \\\n    (1.0\n     + n)  # sum",
        "z = torch.zeros(4, device='cuda')\nz[\n    3\n].fill_(\\\n    (1.0\n     + n))  # sum",
    ),
    "element, no spaces": (
        "z = torch.zeros(4, device='cuda')\nz[3]=1.0; z[2]=n",
        "z = torch.zeros(4, device='cuda')\nz[3].fill_(1.0); z[2].fill_(n)",
    ),
    "arange moved": ("t = torch.arange(n).to(x.device)", "t = torch.arange(n, device=x.device)"),
    "arange with dtype moved": (
        "t = torch.arange(0, n, dtype=torch.long).to(device=x.device, non_blocking=True)",
        "t = torch.arange(0, n, dtype=torch.long, device=x.device)",
    ),
    "shaped, then moved": (
        "t = torch.ones(n, n).tril().bool().to('cuda')",
        "t = torch.ones(n, n, device='cuda').tril().bool()",
    ),
    "cuda()": ("t = torch.zeros(n).cuda()", 't = torch.zeros(n, device="cuda")'),
    "copied into": ("x[:n].copy_(torch.ones(n))", "x[:n].copy_(torch.ones(n, device=x.device))"),
    "factory over lines": (
        """
        t = torch.full(
            (n, n),  # square
            2.0,
        ).to(x.device)
        """,
        """
        t = torch.full(
            (n, n),  # square
            2.0,
            device=x.device,
        )
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), SAFE.values(), ids=SAFE)
def test_a_safe_fix(fixing, before, after):
    becomes(fixing, before, after, unsafe=False)


UNSAFE = {
    "a float by name": ("t = torch.tensor(v, device='cuda')", "t = torch.full((), v, device='cuda')"),
    "a list as long as a name says": (
        "t = torch.tensor([0.0] * n, device='cuda')",
        "t = torch.full((n,), 0.0, device='cuda')",
    ),
    "new_tensor": ("t = x.new_tensor(2.0)", "t = x.new_full((), 2.0)"),
    "inv": ("t = torch.linalg.inv(x)", "t = torch.linalg.inv_ex(x)[0]"),
    "inv of inv": (
        "t = torch.linalg.inv(torch.linalg.inv(x) + x)",
        "t = torch.linalg.inv_ex(torch.linalg.inv_ex(x)[0] + x)[0]",
    ),
    "inv in a sum, a call and a comment": (
        "t = (-torch.linalg.inv(  # the inverse\n    x)).sum()",
        "t = (-torch.linalg.inv_ex(  # the inverse\n    x)[0]).sum()",
    ),
    "cholesky": (
        "t = torch.linalg.cholesky(x, upper=True)",
        "t = torch.linalg.cholesky_ex(x, upper=True)[0]",
    ),
    "solve": ("t = torch.linalg.solve(x, y, left=False)", "t = torch.linalg.solve_ex(x, y, left=False)[0]"),
    "lu_factor": ("lu, pivots = torch.linalg.lu_factor(x)", "lu, pivots = torch.linalg.lu_factor_ex(x)[:2]"),
    "ldl_factor": ("ld, pivots = torch.linalg.ldl_factor(x)", "ld, pivots = torch.linalg.ldl_factor_ex(x)[:2]"),
    "masked_fill": ("t = x.masked_fill(x > 0, x.max())", "t = torch.where(x > 0, x.max(), x)"),
    "masked_fill_": ("x.masked_fill_(x > 0, x.max())", "x.copy_(torch.where(x > 0, x.max(), x))"),
    "_assert": ("torch._assert((x > 0).all(), 'positive')", "torch._assert_async((x > 0).all(), 'positive')"),
    "_assert by keyword": (
        "torch._assert((x > 0).all(), message='positive')",
        "torch._assert_async((x > 0).all(), assert_msg='positive')",
    ),
    "distribution": (
        "t = torch.distributions.Categorical(logits=x)",
        "t = torch.distributions.Categorical(logits=x, validate_args=False)",
    ),
    "distribution, told to decide": (
        "t = torch.distributions.Normal(x, y, validate_args=None)",
        "t = torch.distributions.Normal(x, y, validate_args=False)",
    ),
    "distribution over lines": (
        """
        t = torch.distributions.Normal(
            x,  # mean
            y.exp()  # spread
        )
        """,
        """
        t = torch.distributions.Normal(
            x,  # mean
            y.exp(),  # spread
            validate_args=False
        )
        """,
    ),
    "distribution over lines, trailing comma": (
        """
        t = torch.distributions.Normal(
            x,
            y,  # spread
        )
        """,
        """
        t = torch.distributions.Normal(
            x,
            y,  # spread
            validate_args=False,
        )
        """,
    ),
    "linspace moved": ("t = torch.linspace(0, 1, n).to(x.device)", "t = torch.linspace(0, 1, n, device=x.device)"),
    "one row": ("t = x[[0]]", "t = x[0:1]"),
    "the last but one": ("t = x[[-2]]", "t = x[-2:-1]"),
    "the last of a dimension": ("t = x[..., [-1], :]", "t = x[..., -1:, :]"),
    "neighbours": ("t = x[:, [1, 2, 3]]", "t = x[:, 1:4]"),
    "stored under a list": ("x[:, [0]] = 0.0", "x[:, 0:1] = 0.0"),
    "rows": (
        "z = torch.zeros(4, device='cuda')\nz[torch.arange(2, device='cuda')] = 1.0",
        "z = torch.zeros(4, device='cuda')\nz.index_fill_(0, torch.arange(2, device='cuda'), 1.0)",
    ),
    "element of what a call returns": (
        "z = torch.zeros(4, device='cuda')\nz[0] = float(round(v)) + self.extra(n)",
        "z = torch.zeros(4, device='cuda')\nz[0].fill_(float(round(v)) + self.extra(n))",
    ),
    "pinned": (
        "p = torch.zeros(4, pin_memory=True)\nt = p.to(x.device)",
        "p = torch.zeros(4, pin_memory=True)\nt = p.to(x.device, non_blocking=True)",
    ),
}


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
    "no edit is known": "t = x.nonzero()",
}


@pytest.mark.parametrize("before", BY_HAND.values(), ids=BY_HAND)
def test_what_is_left_to_people(fixing, before):
    outcome = fixing({"model.py": body(before)})
    assert outcome.files == []
    assert outcome.report.findings
    assert all(f.fix is not None and (f.fix.safety, f.fix.edits) == ("manual", ()) for f in outcome.report.findings)


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
