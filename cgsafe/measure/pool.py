"""Spread probes over worker processes, and collect the results whatever happens to a worker."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cgsafe.measure.probes import Probe

BATCH = 10  # probes of one file that a worker takes at once: they share a process while nothing fails
Result = dict[str, Any]
Progress = Callable[[list[tuple[Probe, Result]], str], None]  # is told now and then what is known, and how far it is


class WorkerError(RuntimeError):
    """A worker could not start: no torch, or no CUDA device."""


def batches(probes: list[Probe]) -> list[list[Probe]]:
    """Those that need a process of their own first, one by one (they take longest); the others by file."""
    own = [[probe] for probe in probes if probe.own_process]
    shared: dict[str, list[Probe]] = {}
    for probe in probes:
        if not probe.own_process:
            shared.setdefault(probe.theme, []).append(probe)
    rest = [group[start : start + BATCH] for group in shared.values() for start in range(0, len(group), BATCH)]
    return [*own, *rest]


class Pool:
    """`jobs` workers; `run` gives one result per probe, in order, and fills `info` with versions and device."""

    def __init__(self, jobs: int, budget_s: float, dry: bool, progress: Progress) -> None:
        self.jobs = jobs
        self.end = time.monotonic() + budget_s
        self.dry = dry
        self.progress = progress
        self.info: dict[str, str] = {}
        self.results: dict[str, Result] = {}
        self.failure = ""

    def run(self, probes: list[Probe]) -> list[tuple[Probe, Result]]:
        waiting: queue.SimpleQueue[list[Probe]] = queue.SimpleQueue()
        groups = batches(probes)
        for group in groups:
            waiting.put(group)
        count = max(1, min(self.jobs, len(groups)))
        threads = [threading.Thread(target=self._feed, args=(waiting,), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        told = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            if time.monotonic() - told > 20:
                told = time.monotonic()
                self.progress(self.measured(probes), f"{len(self.results)} of {len(probes)} probes")
        if not self.results and self.failure:
            raise WorkerError(self.failure)
        return self.measured(probes)

    def measured(self, probes: list[Probe]) -> list[tuple[Probe, Result]]:
        """What is known so far; the others count as skipped."""
        missing: Result = {"capture": "skipped", "error": self.failure or "out of time"}
        return [(probe, self.results.get(probe.id, missing)) for probe in probes]

    def _feed(self, waiting: queue.SimpleQueue[list[Probe]]) -> None:
        worker: subprocess.Popen[str] | None = None
        while time.monotonic() < self.end:
            try:
                group = waiting.get_nowait()
            except queue.Empty:
                break
            for probe in group:
                if time.monotonic() > self.end:
                    break
                worker = worker or self._start()
                if worker is None:
                    return
                answer = self._ask(worker, probe)
                if answer is None:
                    worker.kill()
                    worker.wait()
                    worker = None
                    answer = {"capture": "died", "error": "the worker process ended"}
                device = answer.pop("device", "")
                if device:
                    self.info["device"] = device
                elif answer["capture"] == "invalid" and "device" not in self.info:  # not even the device has a name
                    self.failure = f"no CUDA device can be used: {answer['error']}"
                    self.end = 0
                    break
                self.results[probe.id] = answer
        if worker is not None and worker.stdin is not None:
            worker.stdin.close()
            worker.wait()

    def _start(self) -> subprocess.Popen[str] | None:
        root = str(Path(__file__).resolve().parent.parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "CGSAFE_MEASURE_DRY": "1" if self.dry else "0",
        }
        worker = subprocess.Popen(
            [sys.executable, "-m", "cgsafe.measure.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert worker.stdout is not None
        assert worker.stderr is not None
        first = worker.stdout.readline()
        if not first:
            self.failure = (worker.stderr.read().strip().splitlines() or ["the worker gave no reason"])[-1]
            worker.wait()
            return None
        self.info |= json.loads(first)
        threading.Thread(target=worker.stderr.read, daemon=True).start()  # so that a talkative one never blocks
        return worker

    def _ask(self, worker: subprocess.Popen[str], probe: Probe) -> Result | None:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(probe._asdict()) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
            answer: Result = json.loads(line) if line else {}
        except (OSError, ValueError):
            return None
        return {key: value for key, value in answer.items() if key != "id"} if answer else None
