"""Speed of a whole check against bare `ast.parse` of the same files, as ratios: python tests/benchmark.py FOLDER [--jobs N] [--runs N].

Prints, from one run on one machine: the seconds that `ast.parse` takes over all files in one process; cold and warm
checks as multiples of that; the peak memory of all processes together; and the CPU seconds of `cgsafe --version`.
No figure is judged here: times depend on the machine, ratios much less.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path


def parse_all(folder: str) -> tuple[float, int, int]:
    """(seconds, files, lines) of parsing every Python file below a folder, reading not counted."""
    warnings.simplefilter("ignore")
    texts = []
    for path in sorted(Path(folder).rglob("*.py")):
        try:
            texts.append(path.read_bytes().decode())
        except (OSError, UnicodeDecodeError):
            continue
    gc.disable()
    start = time.perf_counter()
    for text in texts:
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
    seconds = time.perf_counter() - start
    gc.enable()
    return seconds, len(texts), sum(text.count("\n") for text in texts)


def tree_memory(pid: int) -> int:
    """Proportional resident memory of a process and its children, in bytes; shared pages count once in all."""
    total = 0
    for process in [pid, *children(pid)]:
        try:
            with open(f"/proc/{process}/smaps_rollup") as file:
                total += next((int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:")), 0)
        except OSError:
            continue
    return total


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def check(folder: str, jobs: int, cache: str) -> tuple[float, int]:
    """(seconds, peak bytes) of one check as a command."""
    command = [sys.executable, "-m", "cgsafe", "check", folder, "--jobs", str(jobs), "--output-format", "json"]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(1.0 if peak else 0.1):
            peak = max(peak, tree_memory(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    if code not in (0, 1):
        sys.exit(f"the check ended with exit code {code}")
    return seconds, peak


def medians(folder: str, jobs: int, runs: int) -> tuple[float, int, int, float, int]:
    """Bare parses and cold checks in turn: median seconds of the first, files, lines, median seconds and peak of the others."""
    parsed, cold, peak, files, lines = [], [], 0, 0, 0
    for _ in range(runs):
        seconds, files, lines = parse_all(folder)
        with tempfile.TemporaryDirectory() as cache:
            taken, most = check(folder, jobs, cache)
        parsed.append(seconds)
        cold.append(taken)
        peak = max(peak, most)
    if runs > 1:
        print("ratios of the runs ", *(f"{c / p:.2f}" for c, p in zip(cold, parsed, strict=True)))
    return statistics.median(parsed), files, lines, statistics.median(cold), peak


CHANGED = {
    "leaf": "*/transformers_utils/configs/*.py",
    "model": "*/models/[l-q]*.py",
    "layer": "*/layers/*.py",
    "central": "*/config/*.py",
}


def changed(folder: str, jobs: int, cache: str) -> list[tuple[str, str, float]]:
    """(kind, file, seconds) of checks of one file that was changed since all was checked, and is put back.

    The change is one more statement in the first function of the first file of its kind that has one.
    """
    found = []
    for kind, pattern in CHANGED.items():
        for path in sorted(Path(folder).glob(f"**{pattern[1:]}"))[:: -1 if kind == "central" else 1]:
            text = path.read_bytes()
            functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
            if not functions or functions[0].body[0].lineno == functions[0].lineno:
                continue
            lines = text.split(b"\n")
            last = functions[0].body[-1]
            lines.insert(last.lineno - 1, b" " * last.col_offset + b"added = 1")
            try:
                path.write_bytes(b"\n".join(lines))
                seconds, _ = check(str(path), jobs, cache)
            finally:
                path.write_bytes(text)
            found.append((kind, str(path), seconds))
            break
    return found


def version_cpu() -> float:
    """CPU seconds of `cgsafe --version`, the least of five."""
    least = 9.9
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "cgsafe", "--version"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--change", action="store_true", help="also check single files that changed (they are put back)"
    )
    parser.add_argument("--runs", type=int, default=1, help="bare parses and cold checks in turn; the medians are told")
    options = parser.parse_args()
    seconds, files, lines, cold, peak = medians(options.folder, options.jobs, options.runs)
    print(f"ast.parse        {seconds:6.2f} s   {files} files, {lines} lines, one process")
    print(f"check, cold      {cold:6.2f} s   ratio {cold / seconds:5.2f}   peak {peak / 2**20:6.0f} MiB")
    with tempfile.TemporaryDirectory() as cache:
        check(options.folder, options.jobs, cache)
        for label in ("warm", "warm again"):
            taken, peak = check(options.folder, options.jobs, cache)
            print(f"check, {label:10s}{taken:6.2f} s   ratio {taken / seconds:5.2f}   peak {peak / 2**20:6.0f} MiB")
        if options.change:
            for kind, path, taken in changed(options.folder, options.jobs, cache):
                print(f"changed, {kind:8s} {taken:6.2f} s   ratio {taken / seconds:5.2f}   {os.path.relpath(path)}")
    print(f"--version        {version_cpu():6.3f} s of CPU")


if __name__ == "__main__":
    main()
