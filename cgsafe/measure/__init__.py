"""Measure, on a machine with a GPU, what PyTorch calls do under CUDA graph capture: `python -m cgsafe.measure`.

The probes are data (`probes/*.toml`, read by `probes`); every one runs plainly, under sync-debug mode and inside a capture,
in a process that is thrown away after a failure (`worker`, driven by `pool`). The result is one table for a release of
PyTorch and a device (`table`), which can be compared with an older one (`difference`).

torch is imported in the worker processes only; nothing but the standard library is needed besides.
"""
