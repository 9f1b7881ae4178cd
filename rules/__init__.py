"""The built-in rules, one module each; found by cgsafe through the entry point `cgsafe.rules` like anyone else's."""

from __future__ import annotations

from cgsafe.rule import Rule


def rules() -> list[type[Rule]]:
    """All built-in rules."""
    from .cg001_suppressions import InvalidSuppression, UnusedSuppression
    from .cg101_tensor_truth_value import TensorTruthValue
    from .cg102_host_read import HostReadOfTensor
    from .cg103_implicit_host_read import ImplicitHostRead
    from .cg104_hidden_sync import HiddenSync
    from .cg105_data_dependent_shape import DataDependentShape
    from .cg106_explicit_sync import ExplicitSync
    from .cg201_host_data import HostData, HostIndex, PageableCopy, ScalarStore
    from .cg205_pinned_allocation import PinnedAllocation
    from .cg301_nested_compile import NestedCompile
    from .cg302_autotune_in_capture import AutotuneInCapture
    from .cg303_lazy_workspace import LazyWorkspace
    from .cg401_capture_without_stream import CaptureWithoutStream
    from .cg402_unjoined_stream import UnjoinedStream
    from .cg403_warmup_divergence import WarmupDivergence
    from .cg404_threads_in_capture import ThreadsInCapture
    from .cg405_capture_in_capture import CaptureInCapture
    from .cg406_generator_not_registered import GeneratorNotRegistered
    from .cg407_stream_elsewhere import StreamElsewhereRule
    from .cg408_cold_capture import ColdCapture
    from .cg409_work_escapes import WorkEscapes
    from .cg410_missing_eager_break import MissingEagerBreak
    from .cg501_buffer_rebind import BufferRebind
    from .cg502_frozen_python_state import FrozenPythonState
    from .cg503_host_randomness import HostRandomness
    from .cg504_graph_lifetime import GraphLifetime
    from .cg505_stale_input import StaleInput
    from .cg506_output_alias import OutputAlias
    from .cg507_host_operand import HostOperandInGraph
    from .cg508_frozen_graph_key import FrozenGraphKey
    from .cg509_stale_padding import StalePadding
    from .cg510_short_lived_memory import ShortLivedMemory
    from .cg511_shape_per_step import ShapePerStep

    return [
        UnusedSuppression,
        InvalidSuppression,
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
        PinnedAllocation,
        NestedCompile,
        AutotuneInCapture,
        LazyWorkspace,
        CaptureWithoutStream,
        UnjoinedStream,
        WorkEscapes,
        MissingEagerBreak,
        BufferRebind,
        FrozenPythonState,
        HostRandomness,
        GraphLifetime,
        HostOperandInGraph,
        WarmupDivergence,
        ThreadsInCapture,
        CaptureInCapture,
        GeneratorNotRegistered,
        StreamElsewhereRule,
        ColdCapture,
        StaleInput,
        OutputAlias,
        FrozenGraphKey,
        StalePadding,
        ShortLivedMemory,
        ShapePerStep,
    ]
