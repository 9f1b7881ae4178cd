"""A constructor that opens a capture is walked for that, and still makes its object."""

from __future__ import annotations


def test_attributes_of_an_object_whose_constructor_captures(check) -> None:
    report = check(
        {
            "model.py": """
                import torch
                from torch import nn

                class Inner(nn.Module):
                    def forward(self, x: torch.Tensor):
                        if x.sum() > 0:
                            return x
                        return -x

                class Model(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.inner = Inner()
                        self.graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(self.graph, stream=torch.cuda.Stream()):
                            self.static = torch.zeros(4, device="cuda")

                    def forward(self, x: torch.Tensor):
                        return self.inner(x)
            """
        }
    )
    (finding,) = [f for f in report.findings if f.code == "CG101"]
    assert [step.function for step in finding.trace] == ["Model.forward", "Inner.forward"]
