"""Dealing with the terminal, pipes and files that output goes to."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LONG_RUN = 1.0  # seconds; a bar for anything shorter would only flicker
UNKNOWN_WIDTH = 100  # columns to lay text out for when it does not go to a terminal


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether to colour what goes to a stream. The option decides, then the usual variables, then the stream itself."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def width_of(stream: TextIO) -> int:
    """How many columns to lay text out for."""
    return shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns if stream.isatty() else UNKNOWN_WIDTH


def harmless(text: str) -> str:
    """A text whose characters cannot move the cursor or change colours."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


@contextlib.contextmanager
def standard_output(stream: TextIO | None = None) -> Iterator[TextIO]:
    """Standard output for a command's result: copes with narrow encodings, and with a reader that has gone away."""
    stream = sys.stdout if stream is None else stream
    # Names and code are escaped where they are not printable, but the stream may know fewer characters than that.
    if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")
    try:
        yield stream
        stream.flush()
    except BrokenPipeError:
        # `cgsafe check . | head` is no fault. Nothing more can be written, nor by the interpreter's own last flush.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_file(path: str, text: str) -> None:
    """Write a text file as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str, data: bytes) -> None:
    """Write a file so that it holds either its old content or all of the new; pipes and devices are written to."""
    target = os.path.realpath(path)
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
    if mode is not None and not stat.S_ISREG(mode):
        with open(
            path, "wb"
        ) as file:  # by the name that was given: a pipe behind a link such as /dev/stdout has no other
            file.write(data)
        return
    descriptor, temporary = tempfile.mkstemp(prefix=".cgsafe-", dir=os.path.dirname(target))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def unwritable(path: str) -> str:
    """Why a file cannot be replaced; "" where it can."""
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except OSError as error:
        return str(error.strerror or error)
    # Replacing a file takes no permission on the file itself, but whoever took it away meant it.
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH) or not os.access(target, os.W_OK):
        return "it is read-only"
    return "" if os.access(os.path.dirname(target), os.W_OK) else "its folder is read-only"


def _umask() -> int:
    mask = os.umask(0o077)  # it can only be read by setting it
    os.umask(mask)
    return mask


class Bar:
    """A progress bar on standard error, which appears once a run turns out to be long. Call it like the engine does."""

    def __init__(self, wanted: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted = wanted
        self._clock = clock
        self._start = clock()
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._wanted or self._clock() - self._start < LONG_RUN:
            return
        if self._bar is None:
            self._bar = self._open()
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._tasks[stage], completed=done, total=total)

    def close(self) -> None:
        """Take the bar away again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @staticmethod
    def _open() -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.start()
        return bar
