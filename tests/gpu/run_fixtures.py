"""Run the examples in `fixtures/` on a GPU, as its README describes: python3 tests/gpu/run_fixtures.py [CODE ...].

Each example runs in a process of its own. Prints one line for each, and exits 1 where one does not do what it should.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TIMEOUT_S = 300


def run(example: Path) -> str:
    """ "ok", or what failed; in this process."""
    import torch

    sys.path.insert(0, str(example if example.is_dir() else example.parent))
    module = importlib.import_module("main" if example.is_dir() else example.stem)
    x = torch.ones(8, 8, device="cuda")
    x @ x  # the handle of cuBLAS, which is no example's topic
    torch.cuda.synchronize()
    try:
        if hasattr(module, "capture"):
            graph, output, check = module.capture()
        else:
            function, args = module.make()
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            with torch.no_grad():
                with torch.cuda.stream(stream):
                    for _ in range(3):
                        function(*args)
                torch.cuda.synchronize()
                with torch.cuda.graph(graph, stream=stream):
                    output = function(*args)

            def check() -> torch.Tensor:
                return function(*args)

    except Exception as error:
        return f"fails: {type(error).__name__}: {str(error).strip().splitlines()[0][:120]}"
    graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        same = torch.allclose(output.float(), check().float(), rtol=1e-2, atol=1e-3)
    return "ok" if same else "differs"


def judged(example: Path) -> tuple[bool, str]:
    """Run an example in a process of its own: (does it do what it should, the line to print)."""
    entry = example if example.is_file() else example / "main.py"
    harmless = example.name.startswith("good") or 'ON_GPU = "ok"' in entry.read_text()
    command = [sys.executable, __file__, "--one", str(example)]
    try:
        with tempfile.TemporaryDirectory() as cache:  # with a hot disk cache, a cold compile gets through
            caches = {"TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **caches}
            )
        said = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-300:]
    except subprocess.TimeoutExpired:
        said = "does not end"
    right = said == "ok" if harmless else said.startswith("fails")
    return right, f"{'   ' if right else '!! '}{example.relative_to(FIXTURES)}: {said}"


def main() -> int:
    if sys.argv[1:2] == ["--one"]:
        print(run(Path(sys.argv[2])), flush=True)
        os._exit(0)  # a broken capture may hang or crash on the way out
    codes = sys.argv[1:] or ["CG"]
    found = [p for p in sorted(FIXTURES.glob("CG*/*")) if p.name.startswith(("bad", "good"))]
    found = [p for p in found if p.parent.name.startswith(tuple(codes))]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(judged, found))
    print("\n".join(line for _, line in results))
    return 0 if all(right for right, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
