"""What the walk saw, in neutral terms: facts about captured code, without a verdict. Rules subscribe to these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cgsafe.findings import Confidence, Edit


@dataclass(frozen=True)
class Place:
    """A span of checked code and the function around it; lines and columns from 1, end column exclusive."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str


@dataclass(frozen=True, eq=False)
class Region:
    """In which way the code at hand is captured. Made by `region`, compared by identity."""

    captured: bool = True  # a CUDA graph records this code
    traced: bool = False  # Dynamo traces it (an enclosing torch.compile)
    behind_op: str = ""  # inside this custom op: captured, but opaque to an enclosing torch.compile
    explicit: bool = False  # opened by a capture in the checked code, not by convention
    making: bool = False  # on the host, making an object for captured code
    doubt: str = ""  # why this code may not be captured after all: its findings are guesses
    hot: bool = False  # no graph records it, but it runs at every step: a wait stalls the host
    accepted: str = ""  # the block in which the author accepts a wait


_regions: dict[tuple[bool, bool, str, bool, bool, str, bool, str], Region] = {}


def region(
    captured: bool,
    traced: bool = False,
    behind_op: str = "",
    explicit: bool = False,
    making: bool = False,
    doubt: str = "",
    hot: bool = False,
    accepted: str = "",
) -> Region:
    """The one Region object with these properties."""
    key = (captured, traced, behind_op, explicit, making, doubt, hot, accepted)
    found = _regions.get(key)
    if found is None:
        found = _regions[key] = Region(*key)
    return found


def varied(base: Region, **changes: Any) -> Region:
    """The region that differs from another one in some properties."""
    return region(**{**vars(base), **changes})


HOST = region(False)  # ordinary code, outside any capture
# What makes an object for captured code: walked as the host's, but under no default device but the CPU.
MAKING = region(False, making=True)


@dataclass(frozen=True)
class Event:
    """Common part of all events."""

    place: Place
    region: Region
    source: str  # the text of the expression that matters, on one line
    confidence: Confidence  # of the values behind the event
    why: str = ""  # where the value comes from, for the message ("`torch.max(...)`, line 50")
    needs: str = ""  # it happens only where this class attribute of the captured module is true


@dataclass(frozen=True)
class TruthTest(Event):
    """A device tensor was asked for its truth value."""

    form: str = "if"  # if, elif, while, assert, and, or, not, ternary, comprehension, in, any, all, max, min, sorted, guard, bool, compare
    raises: bool = False  # the statement only raises an error where the tensor is true
    group: tuple[int, int] = (
        0,
        0,
    )  # the place of the statement or expression that asks: several operands may be tensors
    partly: str = ""  # what else the value may be ("int"), where the tensor is one of several possibilities


@dataclass(frozen=True)
class HostRead(Event):
    """The value of a device tensor was copied to the host by an explicit call."""

    how: str = "item"  # item, tolist, cpu, numpy, to-cpu, int, float, complex, index, ...
    partly: str = ""


@dataclass(frozen=True)
class SizeRead(Event):
    """The size of a result depends on values on the device, so the host reads it."""

    how: str = "nonzero"  # the function, or "mask" for an index


@dataclass(frozen=True)
class HostCopy(Event):
    """Host data is copied to the device."""

    how: str = "data"  # data, pageable, pinned, index, setitem
    index: str = ""
    number: str = ""  # for data and setitem: the type of what is copied, where it surely is a Python number
    picks: str = ""  # for setitem: "element" or "rows" (an index tensor of one dimension), where that is sure


@dataclass(frozen=True)
class DeviceWait(Event):
    """The host waits for the device, or queries it, without a value."""

    how: str = "torch.cuda.synchronize"


@dataclass(frozen=True)
class AttributeSet(Event):
    """Captured code sets an attribute, a global or an item that outlives the call."""

    name: str = ""  # the target as source
    how: str = "attribute"  # attribute, setattr, register_buffer, data, global, item, cached, append, counter
    guard: str = ""  # the condition that lets it happen at times only, where it looks at the target
    fresh: bool = False  # to a tensor that is allocated there
    owner: Any = None  # which object, compared by identity; None for a global or a tensor
    read_elsewhere: bool = True  # other code reads it, or the same code at its next call
    signature: Any = None  # of a result that a cache keeps: which function; a warm-up that calls it makes the result


@dataclass(frozen=True)
class FrozenCall(Event):
    """Captured code calls something whose outcome at that moment is in every replay."""

    called: str = ""
    how: str = "random"  # random, cpu-random, clock, text, address, pinned, bench


@dataclass(frozen=True)
class FrozenBranch(Event):
    """Captured code branches on, or uses, a value on the host that other code changes."""

    changed: str = ""  # who changes it, in words
    used: str = ""  # what is a number that takes part in work on the device, not a condition


@dataclass(frozen=True)
class UnbrokenRead(Event):
    """A captured function reads state of the step that other functions of its module read outside of the graph."""

    state: str = ""  # the variable or getter that they share
    sibling: str = ""  # a function that reads it and is an eager break
    decorator: str = ""  # what makes it one


@dataclass(frozen=True)
class HostOperand(Event):
    """A single number in a tensor on the CPU takes part in work on the device: it becomes an argument of the kernel."""

    name: str = ""
    made: Place | None = None  # where the object that holds it makes it


@dataclass(frozen=True)
class HostRing(Event):
    """Captured code copies a host buffer to the device, and later results into the same buffer."""

    name: str = ""


@dataclass(frozen=True)
class StreamHazard(Event):
    """A capture and its streams do not fit together."""

    how: str = "unjoined"  # unjoined, outside-event, outside-stream, escape
    fork: str = ""  # where the stream in question was forked, in words


@dataclass(frozen=True)
class KernelLaunch(Event):
    """Captured code launches a kernel that times its configurations at the first call with a new key."""

    kernel: str = ""
    signature: Any = None  # a warm-up with the same covers this launch


@dataclass(frozen=True)
class CompiledCall(Event):
    """Captured or compiled code calls a function that torch.compile wraps on its own."""

    compiled: str = ""  # qualified name of the compiled function
    decorator: Place | None = None  # where torch.compile is applied to it
    as_decorator: bool = True
    options: tuple[tuple[str, str], ...] = ()  # the arguments of torch.compile, as source
    unless: tuple[str, ...] = ()  # conditions on which nothing is compiled at that place
    signature: Any = None  # what is called with which kinds of arguments: a warm-up with the same covers this call
    call: Place | None = None


@dataclass(frozen=True)
class SiteEvent(Event):
    """Base of what host code does around a capture: no root needs to reach it."""


@dataclass(frozen=True)
class CaptureSite(SiteEvent):
    """A capture is opened by `torch.cuda.graph(...)` or one of its equivalents."""

    api: str = "torch.cuda.graph"
    has_stream: bool = False
    unknown_arguments: bool = False  # `*args` or `**kwargs` of unknown content
    arguments: tuple[str, ...] = field(default=())  # positional arguments as source
    keywords: tuple[tuple[str, str], ...] = field(default=())
    warmup_stream: str = ""  # the name of the stream that the warm-up ran on, if seen
    nested: bool = False  # inside another capture
    idiom: tuple[str, str] = ("", "")  # (expression, import line) by which this project names the current stream


@dataclass(frozen=True)
class Comment(Event):
    """One of the tool's own comments in the checked code; stated by the engine, not by the walk."""


@dataclass(frozen=True)
class UnusedComment(Comment):
    """A comment that silences nothing, or not all that it names."""

    codes: tuple[str, ...] = ()  # those that are not needed; empty where the comment names none
    removal: Edit | None = None  # takes them away


@dataclass(frozen=True)
class InvalidComment(Comment):
    """A comment that cannot be understood, or means nothing where it stands."""

    problem: str = ""
