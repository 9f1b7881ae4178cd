"""What a value is taken for: annotations, conventions of model code, host values, and devices."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, reported, verify

HEAD = TORCH + "from typing import Annotated, Any, Dict, List, Optional, Sequence, Tuple, Union\n"

TENSORS = [
    "torch.Tensor",
    "'torch.Tensor'",
    "Optional[torch.Tensor]",
    "'Optional[torch.Tensor]'",
    "torch.Tensor | None",
    "'torch.Tensor | None'",
    "None | torch.Tensor",
    "Union[torch.Tensor, None]",
    "torch.LongTensor",
    "torch.FloatTensor",
    "torch.BoolTensor",
    "Optional[torch.LongTensor]",
    "torch.cuda.FloatTensor",
    "nn.Parameter",
    "torch.nn.Parameter",
    "Annotated[torch.Tensor, 'shape']",
    "Tensor",
    "'Tensor'",
]
HOST = [
    "int",
    "float",
    "bool",
    "str",
    "'int'",
    "Optional[int]",
    "int | None",
    "'int | None'",
    "Union[int, float]",
    "torch.dtype",
    "torch.device",
    "torch.Size",
    "np.ndarray",
    "list[int]",
    "List[int]",
    "tuple[int, ...]",
    "Sequence[float]",
    "dict[str, int]",
]
CONTAINERS = [
    ("list[torch.Tensor]", "v[0]"),
    ("List[torch.Tensor]", "v[n]"),
    ("Sequence[torch.Tensor]", "v[-1]"),
    ("tuple[torch.Tensor, ...]", "v[0]"),
    ("Tuple[int, torch.Tensor]", "v[1]"),
    ("dict[str, torch.Tensor]", "v['a']"),
    ("Dict[str, torch.Tensor]", "v.get('a')"),
    ("Optional[list[torch.Tensor]]", "v[0]"),
    ("list[tuple[torch.Tensor, int]]", "v[0][0]"),
    ("dict[str, list[torch.Tensor]]", "v['a'][0]"),
]


def model(annotation: str, use: str) -> dict[str, str]:
    head = HEAD + "import numpy as np\nfrom torch import Tensor\n"
    body = f"class M(nn.Module):\n    def forward(self, v: {annotation}, n: int):\n        return {use}\n"
    return {"model.py": f"{head}\n\n{body}"}


@pytest.mark.parametrize("annotation", TENSORS)
def test_annotations_of_tensors(check, annotation):
    verify(check, model(annotation, "1 if v > 3 else 2  # expect: CG101"))


@pytest.mark.parametrize("annotation", HOST)
def test_annotations_of_host_values(check, annotation):
    verify(check, model(annotation, "1 if v > 3 else 2"))


@pytest.mark.parametrize(("annotation", "use"), CONTAINERS)
def test_annotations_of_containers(check, annotation, use):
    verify(check, model(annotation, f"1 if {use} > 3 else 2  # expect: CG101"))


@pytest.mark.parametrize("annotation", ["Any", "object", "'Missing'", "Undefined"])
def test_annotations_that_say_nothing(check, annotation):
    verify(check, model(annotation, "1 if v > 3 else 2"), min_confidence="low")


def test_a_tensor_is_one_possibility_of_several(check):
    files = model("Union[torch.Tensor, int]", "1 if v > 3 else 2")
    verify(check, files)
    (finding,) = check(files, min_confidence="low").findings
    assert finding.confidence.label == "low"
    assert "may be" in finding.message


@pytest.mark.parametrize(
    "name",
    "hidden_states input_ids position_ids positions attention_mask inputs_embeds pixel_values cache_position".split(),
)
def test_conventions_of_model_code(check, name):
    body = f"class M(nn.Module):\n    def forward(self, {name}):\n        return 1 if {name}.sum() > 3 else 2"
    files = {"model.py": f"{TORCH}\n\n{body}  # expect: CG101\n"}
    report = verify(check, files)
    assert report.findings[0].confidence.label == "medium"


@pytest.mark.parametrize("name", "n config flag name hidden_size num_heads layer_idx seq_len use_cache mode".split())
def test_names_that_say_nothing_or_host(check, name):
    body = f"class M(nn.Module):\n    def forward(self, {name}):\n        return 1 if {name} else 2"
    verify(check, {"model.py": f"{TORCH}\n\n{body}\n"})


def test_an_annotation_beats_a_convention(check):
    body = "class M(nn.Module):\n    def forward(self, positions: int):\n        return 1 if positions > 3 else 2"
    verify(check, {"model.py": f"{TORCH}\n\n{body}\n"}, min_confidence="low")


@pytest.mark.parametrize("name", ["lengths_cpu", "cpu_lengths", "lengths_host", "seq_lens_cpu", "seq_lens_cpu_tensor"])
def test_names_that_say_where_a_tensor_lives(check, name):
    """By whatever way it gets there: a parameter, an attribute, a field."""
    program = f"""
        from dataclasses import dataclass

        @dataclass
        class Meta:
            {name}: torch.Tensor

        class M(nn.Module):
            def forward(self, {name}: torch.Tensor, meta: Meta, other):
                a = {name}.max().item()
                b = meta.{name}.max().item()
                c = other.{name}.max().item()
                return a + b + c
        """
    verify(check, {"model.py": TORCH + textwrap.dedent(program)})


PROGRAMS = {
    "known devices": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                a = torch.zeros(3, device="cuda")
                b = torch.zeros(3, device=x.device)
                c = torch.empty_like(x)
                d = x.new_zeros(3)
                e = torch.zeros(3).to(x.device)  # expect: CG202
                f = torch.zeros(3).cuda()  # expect: CG202
                g = torch.arange(3, device=torch.device("cuda", 0))
                h = torch.tensor([1, 2], device=x.device)  # expect: CG201
                for t in (a, b, c, d, e, f, g, h):
                    t.sum()
                one = a.sum().item() + b.sum().item()  # expect: CG102
                two = c.sum().item() + d.sum().item()  # expect: CG102
                three = e.sum().item() + f.sum().item()  # expect: CG102
                return one + two + three + g.sum().item() + h.sum().item()  # expect: CG102
        """,
    "CPU stays on the CPU": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                a = torch.zeros(3)
                b = torch.arange(x.shape[0], device="cpu")
                c = (a + 1).sum() * 2
                d = torch.cat([a, a]).max()
                e = torch.from_numpy(np.zeros(3))
                f = torch.zeros_like(b)
                return c.item() + d.item() + b[0].item() + e.sum().item() + f.tolist()[0]
        """,
    "meta has no data": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return torch.empty(3, device="meta").shape
        """,
    "unknown device": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, place):
                t = torch.zeros(3, device=place)
                return t.shape
        """,
    "torch functions that give host values": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if torch.is_tensor(x) and torch.is_floating_point(x) and torch.numel(x) > 3:
                    return x
                if torch.is_grad_enabled() or torch.get_default_dtype() == torch.float32:
                    return x
                if torch.finfo(x.dtype).max > 3 or torch.iinfo(torch.int32).bits > 16:
                    return x
                if torch.cuda.device_count() > 1 and torch.cuda.get_device_capability() >= (8, 0):
                    return x
                if torch.cuda.is_available() and torch.version.cuda and torch.__version__ >= "2.0":
                    return x
                if torch.broadcast_shapes(x.shape, (1,)) == x.shape or torch.result_type(x, 1) == x.dtype:
                    return x
        """,
    "shapes through arithmetic": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                b, s, *rest = x.shape
                size = b * s // 2 + x.shape[-1] ** 2 - x.size()[0] % 3
                last = x.shape[:-1]
                if size > 3 and last and last[0] > 1 and -size < 0 and not rest:
                    return x.view(*last, -1)
                return x.reshape(b, s // 2, -1)
        """,
    "several results of torch functions": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                values, indices = x.topk(3, dim=-1)
                best = x.max(dim=-1)
                q, k = x.chunk(2, dim=-1)
                if len(x.split(2)) > 3 and indices.shape[0] > 1:
                    return q
                one = values[0].item() + best.values.sum().item()  # expect: CG102
                return one + best[1].sum().item() + k.sum().item()  # expect: CG102
        """,
    "numpy stays on the host": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                a = np.arange(x.shape[0]).reshape(-1)
                if a.sum() > 3 and a[0] == 0 and np.any(a > 2) and max(a) > 1:
                    return x
                return x * float(a.mean()) * int(a[1])
        """,
    "a name only tensors have": """
        class M(nn.Module):
            def forward(self, thing):
                y = thing.unsqueeze(0).masked_fill(thing == 0, 1.0)
                return 1 if y.sum() > 3 else 2  # expect: CG101
        """,
    "an unknown callee tells nothing": """
        from somewhere import compute

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                y = compute(x)
                return 1 if y > 3 else 2
        """,
    "a local variable with an annotation": """
        from somewhere import compute

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                y: torch.Tensor = compute(x)
                z: int = compute(x)
                if z > 3:
                    return 1
                return 1 if y > 3 else 2  # expect: CG101
        """,
    "an annotated result": """
        from somewhere import compute

        def run(x) -> torch.Tensor:
            return compute(x)

        def count(x) -> int:
            return compute(x)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if count(x) > 3:
                    return 1
                return 1 if run(x) > 3 else 2  # expect: CG101
        """,
    "einsum and friends": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                y = torch.einsum("ij,jk->ik", x, x) @ x
                y = F.softmax(F.linear(y, x), dim=-1)
                y = F.scaled_dot_product_attention(y, y, y)
                return y.sum().item()  # expect: CG102
        """,
    "comparison in both orders": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                a = n < x
                b = x > n
                return (1 if a.all() else 2) + (1 if b.any() else 2)  # expect: CG101
        """,
    "unary and binary": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                t = ~(x > 0) & (-x < n) | (x == n)
                return 1 if t.all() else 2  # expect: CG101
        """,
    "hasattr": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if hasattr(x, "shape") and not hasattr(x, "nonsense"):
                    return x
        """,
    "typing.cast": """
        from typing import cast

        class M(nn.Module):
            def forward(self, thing):
                t = cast(torch.Tensor, thing)
                return 1 if t.sum() > 3 else 2  # expect: CG101
        """,
    "module constants": """
        LIMIT = 3
        DEBUG = False
        NAMES = ("a", "b")

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if DEBUG:
                    print(x)
                if LIMIT > 2 and "a" in NAMES:
                    return x
        """,
    "module tensors": """
        TABLE = torch.arange(8, device="cuda")
        HOST_TABLE = torch.arange(8)

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                if HOST_TABLE[0] > 3:
                    return x
                return 1 if TABLE[0] > 3 else 2  # expect: CG101
        """,
}


GAPS = {
    "a name only tensors have": "what a method that only tensors have returns is of low confidence",
}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_values(check, program):
    verify(check, {"model.py": HEAD + "import numpy as np\n" + textwrap.dedent(program)})


def test_an_unknown_value_raises_nothing_of_high_confidence(check):
    program = """
        def capture(thing, graph, stream):
            with torch.cuda.graph(graph, stream=stream):
                if thing:
                    return thing.item()
        """
    report = check({"model.py": TORCH + textwrap.dedent(program)}, min_confidence="high")
    assert reported(report) == set()
