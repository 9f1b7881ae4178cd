"""The built-in rules, one module each; found by cgsafe through the entry point `cgsafe.rules` like anyone else's."""

from __future__ import annotations

from cgsafe.rule import Rule


def rules() -> list[type[Rule]]:
    """All built-in rules."""
    from .cg101_tensor_truth_value import TensorTruthValue
    from .cg102_host_read import HostReadOfTensor
    from .cg103_implicit_host_read import ImplicitHostRead
    from .cg301_nested_compile import NestedCompile
    from .cg401_capture_without_stream import CaptureWithoutStream

    return [TensorTruthValue, HostReadOfTensor, ImplicitHostRead, NestedCompile, CaptureWithoutStream]
