"""Containers and plain data: tuples, lists, dicts, dataclasses and named tuples of tensors."""

from __future__ import annotations

import textwrap

import pytest

from expectations import TORCH, cases, verify

HEAD = TORCH + "from dataclasses import dataclass, field\nfrom typing import NamedTuple, Optional\n\n"

PROGRAMS = {
    "items stored under known names": """
        EXTRA = ("scale", "shift")

        def narrowed(x, **kwargs):
            for name in ("rope", *EXTRA):
                if kwargs.get(name) is not None:
                    kwargs[name] = kwargs[name][:2]
            if kwargs.get("flag"):
                return x
            if kwargs.get("scale"):  # expect: CG101
                return -x
            return x if kwargs.get("shift") else -x

        class M(nn.Module):
            def forward(self, x: torch.Tensor, scale: torch.Tensor):
                return narrowed(x, scale=scale)
        """,
    "items stored under unknown names": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, names: list[str]):
                kept = {}
                for name in names:
                    kept[name] = x
                return 1 if kept["flag"] else 2  # expect: CG101
        """,
    "names for what an annotation says": """
        from typing import Tuple, Union

        Bounds = Tuple[Tuple[int, int], ...]
        Maybe = Union[torch.Tensor, None]

        @dataclass
        class Layout:
            bounds: Bounds
            lengths: Maybe

        def sliced(x, lengths, *, bounds: Optional[Bounds] = None):
            if bounds is None:
                return lengths.tolist()
            return [x[start:end] for start, end in bounds]

        class M(nn.Module):
            def forward(self, x: torch.Tensor, layout: Layout):
                if layout.lengths is not None:
                    layout.lengths.tolist()  # expect: CG102
                return sliced(x, layout.lengths, bounds=layout.bounds)
        """,
    "dataclass": """
        @dataclass
        class Batch:
            tokens: torch.Tensor
            size: int
            extra: Optional[torch.Tensor] = None
            names: list = field(default_factory=list)

        class M(nn.Module):
            def forward(self, batch: Batch):
                if batch.size > 3 and batch.names and batch.extra is None:
                    return batch.tokens
                if batch.tokens.sum() > 3:  # expect: CG101
                    return 1
                return 2 if batch.extra.sum() > 0 else 3  # expect: CG101
        """,
    "dataclass made on the way": """
        @dataclass
        class Pair:
            a: object
            b: object

        def pair(t):
            return Pair(a=t.shape[0], b=t.sum())

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                p = pair(x)
                if p.a > 3:
                    return int(p.b)  # expect: CG103
        """,
    "dataclass with __post_init__": """
        @dataclass
        class Batch:
            tokens: torch.Tensor

            def __post_init__(self):
                self.total = self.tokens.sum()

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                batch = Batch(x)
                return 1 if batch.total > 0 else 2  # expect: CG101
        """,
    "dataclass comparison": """
        @dataclass
        class Pair:
            a: torch.Tensor

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                return Pair(x) == Pair(x + 1)  # expect: CG101
        """,
    "NamedTuple": """
        class Out(NamedTuple):
            hidden: torch.Tensor
            size: int

        def run(t) -> Out:
            return Out(t * 2, t.shape[0])

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                out = run(x)
                hidden, size = out
                if size > 1 and out.size > 2 and out[1] > 3:
                    return x
                if out.hidden.sum() > 0:  # expect: CG101
                    return hidden.sum().item() + out[0].sum().item()  # expect: CG102
        """,
    "namedtuple": """
        from collections import namedtuple

        Out = namedtuple("Out", ["hidden", "size"])

        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                out = Out(x, x.shape[0])
                if out.size > 1:
                    return out.hidden.sum().item()  # expect: CG102
        """,
    "enum": """
        from enum import Enum

        class Kind(Enum):
            A = "a"
            B = "b"

        class M(nn.Module):
            def __init__(self, kind: Kind):
                super().__init__()
                self.kind = kind

            def forward(self, x: torch.Tensor):
                if self.kind == Kind.A or self.kind in (Kind.B,):
                    return x
        """,
    "tuple of tensors": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                t = (x.sum(), x.shape[0], [x.max()], {"a": x.min(), "b": x.dim()})
                if t[1] > 2 and t[3]["b"] > 3:
                    return x
                one = t[0].item()  # expect: CG102
                two = t[2][0].item()  # expect: CG102
                return one + two + t[3]["a"].item()  # expect: CG102
        """,
    "dict of tensors": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                d = dict(total=x.sum(), size=x.shape[0])
                d["max"] = x.max()
                if d["size"] > 3 and "max" in d and d.get("none") is None:
                    return x
                for key, value in d.items():
                    if key == "total":
                        continue
                a = d["max"].item()  # expect: CG102
                return a + d.get("total").item()  # expect: CG102
        """,
    "dict whose keys are not known": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, given: dict[str, torch.Tensor] | None = None):
                given = given if given is not None else {}
                if given.get("image") is None:
                    x = x + x.max().item()  # expect: CG102
                kept = given.get("video", 3)
                if kept == 3:  # expect: CG101
                    x = x + x.min().item()  # expect: CG102
                if given.pop("audio") is None:
                    x = x + x.sum().item()
                return x
        """,
    "a dict of dicts that its annotation calls a dict of tensors": """
        class Part(nn.Module):
            def forward(self, x: torch.Tensor, cache: dict[str, torch.Tensor] | None = None):
                cache = cache or {}
                return x

        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = Part()

            def forward(self, x: torch.Tensor, cache: dict[str, torch.Tensor] | None = None):
                cache = cache or {}
                return self.part(x, cache.get("part"))
        """,
    "list built in a loop": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor, n: int):
                sums = []
                for i in range(n):
                    sums.append(x[i].sum())
                if len(sums) > 3 and sums:
                    return x
                return sums[-1].item() + sums.pop().item()  # expect: CG102
        """,
    "tuple unpacking with a star": """
        class M(nn.Module):
            def forward(self, x: torch.Tensor):
                first, *rest, last = x.shape[0], x.sum(), x.max()
                if first > 3:
                    return x
                return last.item()  # expect: CG102
        """,
}

GAPS = {
    "dataclass comparison": "== of dataclasses compares their fields",
    "namedtuple": "collections.namedtuple makes a class",
}


@pytest.mark.parametrize("program", cases(PROGRAMS, GAPS))
def test_data(check, program):
    verify(check, {"model.py": HEAD + textwrap.dedent(program)})
