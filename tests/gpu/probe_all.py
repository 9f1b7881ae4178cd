"""Run every probe and leave one JSON file each: python3 tests/gpu/probe_all.py --out DIR [--minutes 9] [probe names]."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

import _harness

PROBES = ("probe_streams", "probe_regions", "probe_reads", "probe_numbers", "probe_truth_value", "probe_nested_compile")


def run_all() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probes", nargs="*", default=list(PROBES))
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results")
    parser.add_argument("--only", default="", help="regular expression on case names")
    parser.add_argument("--jobs", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=9.0, help="start no case after this long")
    parser.add_argument("--dry", action="store_true", help="on the CPU, capturing nothing")
    args = parser.parse_args()
    if args.dry and not _harness.DRY:
        os.environ["CGSAFE_PROBE_DRY"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    for name in args.probes:
        module = importlib.import_module(name)
        _harness.run_probe(vars(module), args.out, args.only, args.jobs, deadline=deadline)


if __name__ == "__main__":
    run_all()
