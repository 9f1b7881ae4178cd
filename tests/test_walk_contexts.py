"""How many kinds of call of one function the walk tells apart: those that decide something, and no more."""

from __future__ import annotations

LAYER = """
    import torch
    from torch import nn
    class Layer(nn.Module):
        def __init__(self, size: int, scale: float = 1.0, bias: bool = True, dtype: torch.dtype | None = None,
                     sizes: list[int] | None = None, name: str = ""):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size, size))
            self.bias = nn.Parameter(torch.ones(size)) if bias else None
            self.size = size
        def forward(self, x):
            return x @ self.weight
"""


def models(*calls: str) -> str:
    """A file with one model for each way to make a layer."""
    text = "import torch\nfrom torch import nn\nfrom layer import Layer\n"
    for number, call in enumerate(calls):
        text += f"""
class Model{number}(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = {call}
    def forward(self, hidden_states: torch.Tensor):
        return self.layer(hidden_states)
"""
    return text


def functions(check, *calls: str) -> int:
    """How many functions are walked for models that make their layers in these ways."""
    report = check({"layer.py": LAYER, "models.py": models(*calls)})
    assert not report.findings
    return report.statistics["functions"]


def test_sizes_are_of_one_kind_wherever_they_come_from(check):
    same = functions(check, *["Layer(8)"] * 6)
    various = functions(
        check,
        "Layer(8)",
        "Layer(config.hidden_size)",
        "Layer(config.hidden_size // config.heads)",
        "Layer(2 * int(config.hidden_size))",
        "Layer(getattr(config, 'hidden_size', 8))",
        "Layer(config.a if config.b else 16)",
    )
    assert various == same


def test_rates_types_and_lists_of_sizes_too(check):
    same = functions(check, *["Layer(8, 0.5, dtype=config.dtype, sizes=[8, 8])"] * 3)
    various = functions(
        check,
        "Layer(8, config.rate, dtype=config.dtype, sizes=[config.a, 8])",
        "Layer(8, config.rate * 2, dtype=config.dtype, sizes=[config.a * 2, config.b])",
        "Layer(8, 0.25, dtype=config.dtype, sizes=[4, config.b])",
    )
    assert various == same


def test_what_decides_is_told_apart(check):
    files = {
        "layer.py": LAYER,
        "models.py": models("Layer(config.size, bias=False)", "Layer(config.size)").replace(
            "return self.layer(hidden_states)",
            "if self.layer.bias is not None:\n            print(self.layer.bias.sum().item())\n        return self.layer(hidden_states)",
        ),
    }
    report = check(files, min_confidence="low", select="CG102")
    assert [(f.line, f.root.function) for f in report.findings] == [(20, "Model1.forward")]


def test_an_annotation_does_not_hide_a_tensor(check):
    """A tensor where a number is promised stays one: the code, not the annotation, is what runs."""
    report = check(
        {
            "model.py": """
                import torch
                from torch import nn
                class Length:
                    def __init__(self, length: int):
                        self.length = length
                class Model(nn.Module):
                    def forward(self, hidden_states: torch.Tensor):
                        if Length(hidden_states.sum()).length > 3:
                            return hidden_states
                        return hidden_states * 2
            """
        },
        min_confidence="low",
    )
    assert [(f.code, f.line) for f in report.findings] == [("CG101", 8)]


def test_subclasses_of_parameters_are_of_one_kind(check):
    """What a parameter remembers of the layer that it belongs to decides nothing in what computes with it."""
    layer = """
        import torch
        from torch import nn
        class Weight(nn.Parameter):
            def __new__(cls, data, **kwargs):
                return super().__new__(cls, data, requires_grad=False)
            def __init__(self, data, loader):
                self.loader = loader
        class Layer(nn.Module):
            def __init__(self, bias: bool = True, gather: bool = False):
                super().__init__()
                self.bias = bias
                self.gather = gather
                self.weight = Weight(torch.ones(8, 8), self.load)
            def load(self, weight):
                pass
        def compute(x, weight):
            if x.shape[0] > 2:
                return x @ weight
            return weight @ x
    """
    made = ["Layer(True, False)", "Layer(False, False)", "Layer(True, True)", "Layer(False, True)"]
    counts = []
    for calls in (made[:1] * 4, made):
        text = models(*calls).replace("import Layer", "import Layer, compute")
        text = text.replace("self.layer(hidden_states)", "compute(hidden_states, self.layer.weight)")
        counts.append(check({"layer.py": layer, "models.py": text}).statistics["functions"])
    constructors = 3  # the four layers themselves are told apart
    assert counts[1] - counts[0] <= constructors


def test_parameters_of_a_subclass_are_still_tensors(check):
    report = check(
        {
            "model.py": """
                import torch
                from torch import nn
                class Weight(nn.Parameter):
                    def __init__(self, data, loader=None):
                        self.loader = loader
                class Model(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.weight = Weight(torch.ones(8, 8))
                    def forward(self, hidden_states: torch.Tensor):
                        if (hidden_states @ self.weight).sum() > 0:
                            return hidden_states
                        return hidden_states * 2
            """
        }
    )
    assert [(f.code, f.line) for f in report.findings] == [("CG101", 11)]
