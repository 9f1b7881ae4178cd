"""Fetches the released packages that the corpus tests read: python tests/corpus/fetch.py FOLDER.

Only the Python files are kept, as data: nothing of them is installed or imported. Each release ends in FOLDER/NAME-VERSION.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGES = (
    "transformers==5.16.0",
    "transformers==5.17.0",
    "vllm==0.28.0",
    "vllm==0.29.0",
    "vllm==0.33.0",
    "sglang==0.5.23",
    "diffusers==0.42.1",
    "flash-linear-attention==0.6.0",
    "accelerate==1.15.0",
)


def fetch(package: str, folder: Path) -> None:
    """Download one wheel and unpack its Python files, unless that was done before."""
    name, version = package.split("==")
    target = folder / f"{name.replace('-', '_')}-{version}"
    if target.exists():
        return
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", downloads, package]
        subprocess.run(command, check=True)
        (wheel,) = Path(downloads).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target, [n for n in archive.namelist() if n.endswith(".py")])


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        print(package, flush=True)
        fetch(package, folder)


if __name__ == "__main__":
    main()
