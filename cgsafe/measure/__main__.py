"""`python -m cgsafe.measure`: measure, or compare two tables."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import sys
import time
from pathlib import Path

from cgsafe.measure import difference, table
from cgsafe.measure.pool import Pool, WorkerError
from cgsafe.measure.probes import Probe, ProbeError, read_all

USAGE_ERROR = 2


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cgsafe.measure",
        description="Measure what PyTorch calls do under CUDA graph capture, on this machine's GPU. "
        "Exit codes: 0 done, 2 bad arguments or nothing could be measured, 130 interrupted.",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("."), metavar="FOLDER", help="where the table goes (default: here)"
    )
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="regular expression: only probes whose name matches"
    )
    parser.add_argument(
        "--diff", nargs=2, type=Path, metavar=("OLD", "NEW"), help="measure nothing, compare two tables"
    )
    parser.add_argument("--against", type=Path, metavar="OLD", help="after measuring, compare with this table")
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="worker processes (default: by processors, up to 14)"
    )
    parser.add_argument(
        "--budget", type=float, default=430, metavar="SECONDS", help="start no probe after this (default 430)"
    )
    parser.add_argument("--list", action="store_true", help="list the probes and measure nothing")
    parser.add_argument(
        "--dry", action="store_true", help="run the probes on the CPU and capture nothing: finds typing errors"
    )
    options = parser.parse_args(arguments)
    try:
        if options.diff:
            sys.stdout.write(difference.report(table.read(options.diff[0]), table.read(options.diff[1])))
            return 0
        old = table.read(options.against) if options.against else None
        everything = read_all()
        probes = [probe for probe in everything if re.search(options.only, probe.id)]
    except (table.TableError, ProbeError) as exc:
        return _refuse(str(exc))
    except re.error as exc:
        return _refuse(f"--only {options.only!r}: {exc}")
    if not probes:
        return _refuse(f"--only {options.only!r} matches no probe")
    if options.list:
        for probe in probes:
            print(f"{probe.id}    {probe.expr.splitlines()[0]}")
        return 0

    began = time.monotonic()

    def save(measured: list[tuple[Probe, dict[str, object]]]) -> tuple[Path, dict[str, str], list[table.Effect]]:
        head = {**pool.info, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
        rows = table.effects(measured)
        options.out.mkdir(parents=True, exist_ok=True)
        target = options.out / table.file_name(head)
        others = {probe.id for probe in everything} - {row["id"] for row in rows}
        kept = [row for row in earlier(target) if row["id"] in others] if options.only else []
        target.write_text(table.dumps(head, [*rows, *kept]), encoding="utf-8")
        return target, head, rows

    def progress(measured: list[tuple[Probe, dict[str, object]]], text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        if pool.info.get("device"):
            save(measured)  # so that an interrupted run loses little

    jobs = options.jobs or max(1, min(14, (os.cpu_count() or 2) - 2))
    pool = Pool(jobs, options.budget, options.dry, progress)
    try:
        target, head, rows = save(pool.run(probes))
    except WorkerError as exc:
        return _refuse(f"nothing could be measured: {exc}")
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["capture"]] = counts.get(row["capture"], 0) + 1
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{target}: {len(rows)} probes in {time.monotonic() - began:.0f} s: {summary}")
    for row in rows:
        if row["capture"] not in ("ok", "fail") or row.get("plain"):
            print(f"  {row['id']}: {row['capture']}: {row.get('plain') or row.get('error', '')}")
    if old:
        sys.stdout.write(difference.report(old, (head, rows)))
    return 0


def earlier(target: Path) -> list[table.Effect]:
    """The rows of a table that a part is measured again for: the rest of it stays."""
    return table.read(target)[1] if target.exists() else []


def _refuse(text: str) -> int:
    print(f"cgsafe.measure: {text}", file=sys.stderr)
    return USAGE_ERROR


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
