"""The built-in rules, one module each; found by cgsafe through the entry point `cgsafe.rules` like anyone else's."""

from __future__ import annotations

from cgsafe.rule import Rule


def rules() -> list[type[Rule]]:
    """All built-in rules."""
    from .cg101_tensor_truth_value import TensorTruthValue
    from .cg102_host_read import HostReadOfTensor
    from .cg103_implicit_host_read import ImplicitHostRead
    from .cg104_hidden_sync import HiddenSync
    from .cg105_data_dependent_shape import DataDependentShape
    from .cg106_explicit_sync import ExplicitSync
    from .cg201_host_data import HostData, HostIndex, PageableCopy, ScalarStore
    from .cg301_nested_compile import NestedCompile
    from .cg401_capture_without_stream import CaptureWithoutStream

    return [
        TensorTruthValue,
        HostReadOfTensor,
        ImplicitHostRead,
        HiddenSync,
        DataDependentShape,
        ExplicitSync,
        HostData,
        PageableCopy,
        HostIndex,
        ScalarStore,
        NestedCompile,
        CaptureWithoutStream,
    ]
