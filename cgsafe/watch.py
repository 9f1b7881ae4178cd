"""`cgsafe check --watch`: check again whenever a file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PAUSE = 0.5  # seconds between two looks at the files


def watch(
    run: Callable[[], Any], look: Callable[[], Any], pause: Callable[[], Any] = lambda: time.sleep(PAUSE)
) -> None:
    """Run, and again each time when `look` sees something else than before the run; until `pause` raises."""
    while True:
        seen = look()
        run()
        while look() == seen:
            pause()


def states(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """What tells a changed file from an unchanged one."""
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def looker(paths: Sequence[str], exclude: Sequence[str]) -> Callable[[], dict[str, tuple[int, int]]]:
    """Looks at the checked files, those around them, and the configuration."""
    from cgsafe.config import OWN_FILE, SHARED_FILE
    from cgsafe.source import known_files

    return lambda: states([*known_files(paths, exclude), OWN_FILE, SHARED_FILE])
