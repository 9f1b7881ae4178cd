"""What host code does around captures and replays, in neutral terms. Stated by `cgsafe.sites`, and a few by the walk."""

from __future__ import annotations

from dataclasses import dataclass

from cgsafe.events import Event, SiteEvent

REGISTERS = "register_generator_state"


@dataclass(frozen=True)
class WarmupDiffers(SiteEvent):
    """A capture calls something otherwise than the warm-up before it did, or than the code beside the graph does."""

    callee: str = ""
    parameter: str = ""
    captured: str = ""  # what the capture passes, "" where it omits the argument
    warmed: str = ""  # what the other call passes, "" where it omits the argument
    line: int = 0  # of the other call


@dataclass(frozen=True)
class WarmupFills(SiteEvent):
    """Warm-up and capture share an object that computes a part of itself at its first use."""

    name: str = ""  # the shared object
    cls: str = ""
    attribute: str = ""
    line: int = 0  # where the attribute is filled
    warmed: int = 0  # where the warm-up is


@dataclass(frozen=True)
class NoWarmup(SiteEvent):
    """Nothing calls what a capture records before the capture does."""

    callee: str = ""


@dataclass(frozen=True)
class CapturesInLoop(SiteEvent):
    """Many captures in a loop, with the garbage collector left alone."""


@dataclass(frozen=True)
class ThreadsBeside(SiteEvent):
    """A capture in the default error mode, while another thread may call CUDA."""

    what: str = ""  # the thread, as source
    how: str = "thread"  # "thread" or "pin"
    line: int = 0
    where: str = ""  # the file of the thread, where it is another one


@dataclass(frozen=True)
class InsideCapture(Event):
    """Captured code captures or replays."""

    how: str = "capture"  # capture, replay, make


@dataclass(frozen=True)
class GeneratorUse(Event):
    """Captured code draws random numbers from a generator of its own."""

    signature: str = REGISTERS  # in `Start.warm` where the code that captures registers its generators


@dataclass(frozen=True)
class StreamElsewhere(SiteEvent):
    """A capture's stream is made on the current device, its tensors on one with a number of its own."""

    device: str = ""
    line: int = 0  # where the device is named


@dataclass(frozen=True)
class InputReplaced(SiteEvent):
    """Something that a graph reads is bound to another tensor after the capture."""

    name: str = ""
    how: str = "rebound"  # rebound, field, item, built, data, load, moved
    captured: int = 0  # line of the capture
    replay: int = 0  # line of the replay, 0 where unknown
    builder: str = ""  # what builds the fresh tensors
    fresh: str = ""  # the fresh tensor, as source


@dataclass(frozen=True)
class OutputKept(SiteEvent):
    """A static output of a graph is kept or handed out, and the next run overwrites it."""

    name: str = ""  # what is kept
    of: str = "graph"  # graph, compiled, graphed, gradients
    how: str = "returned"  # returned, collected, used, accumulated
    producer: str = ""  # what runs the graph
    line: int = 0  # of the run that overwrites it


@dataclass(frozen=True)
class KeyLacks(SiteEvent):
    """A captured call depends on a host value that the key of its graph does not hold."""

    parameter: str = ""
    key: str = ""  # as source; "" where there is one graph only
    argument: str = ""  # the argument of the captured call


@dataclass(frozen=True)
class OutputOmitted(SiteEvent):
    """The eager path passes an argument that the callee fills; the capture omits it."""

    callee: str = ""
    parameter: str = ""
    value: str = ""
    line: int = 0  # of the eager call


@dataclass(frozen=True)
class PaddingKept(SiteEvent):
    """The live rows of a static buffer are refreshed before a replay, its other rows keep old values."""

    buffer: str = ""
    bound: str = ""
    how: str = "rows"  # rows, arithmetic
    sibling: str = ""  # a buffer whose rows are reset in the same function
    replay: int = 0


@dataclass(frozen=True)
class InputDies(SiteEvent):
    """A graph outlives a tensor that it reads."""

    name: str = ""
    made: int = 0
    kept: str = ""  # how the graph outlives the function: returned, or where it is stored
    trace: str = ""  # what is kept in its place: an address, a weak reference


@dataclass(frozen=True)
class PoolOutlives(SiteEvent):
    """A memory pool's handle lives longer than the graphs that use it."""

    name: str = ""
    scope: str = "class"  # class, module
    reset: int = 0


@dataclass(frozen=True)
class HostOverwritten(SiteEvent):
    """A pinned buffer is written while an asynchronous copy from it may still run."""

    buffer: str = ""
    written: int = 0
    writer: str = ""


@dataclass(frozen=True)
class GrowingArgument(SiteEvent):
    """A function that records graphs per shape is called in a loop with an argument that grows."""

    callee: str = ""
    name: str = ""
    grows: str = ""
    line: int = 0
