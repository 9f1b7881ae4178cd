"""The built-in rules, one module each; found by cgsafe through the entry point `cgsafe.rules` like anyone else's."""

from __future__ import annotations

from cgsafe.rule import Rule


def rules() -> list[type[Rule]]:
    """All built-in rules."""
    from cgsafe_rules.cg101_tensor_truth_value import TensorTruthValue
    from cgsafe_rules.cg102_host_read import HostReadOfTensor
    from cgsafe_rules.cg103_implicit_host_read import ImplicitHostRead
    from cgsafe_rules.cg301_nested_compile import NestedCompile
    from cgsafe_rules.cg401_capture_without_stream import CaptureWithoutStream

    return [TensorTruthValue, HostReadOfTensor, ImplicitHostRead, NestedCompile, CaptureWithoutStream]
