"""Helper processes: copies of this one that take a share of the work and send back what they found."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def available(jobs: int) -> int:
    """How many processes to use: as asked, or one for each processor; one where the system cannot copy processes."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return 1
    if jobs > 0:
        return jobs
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return os.cpu_count() or 1


class Queue:
    """Numbers 0, 1, 2, ... that processes take one by one, each number once: whoever is free takes the next.

    Of a `two_ended` queue only the count matters: one process goes up from the first item, the other down from the last.
    """

    def __init__(self, count: int, two_ended: bool = False):
        self.two_ended = two_ended
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        data = b"".join(number.to_bytes(2, "big") for number in range(min(count, 30000)))
        os.write(writer, data)  # less than a pipe holds
        os.close(writer)

    def take(self) -> int | None:
        """The next number; None once all are taken."""
        data = os.read(self.reader, 2)
        return int.from_bytes(data, "big") if len(data) == 2 else None


class Helper:
    """One helper process. `work` gets its end of a pipe; what it sends is read with `receive`."""

    def __init__(self, work: Callable[[Connection], None]):
        from multiprocessing import Pipe

        self.connection, theirs = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a progress bar's thread does not matter to the copy
            self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                self.connection.close()
                work(theirs)
                theirs.close()
                code = 0
            except BaseException:
                code = 1  # the parent sees the closed pipe and does the work itself
            finally:
                os._exit(code)
        theirs.close()

    def send(self, value: Any) -> None:
        try:
            self.connection.send(value)
        except OSError:
            return  # it has died; `receive` tells

    def receive(self) -> Any:
        """What the helper sent; raises EOFError where it has died."""
        try:
            return self.connection.recv()
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        self.connection.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return
