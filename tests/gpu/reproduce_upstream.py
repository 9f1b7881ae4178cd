"""Code of released packages that breaks a capture, as reported in tests/corpus/precision/upstream.md: does a GPU agree?

`python3 tests/gpu/reproduce_upstream.py` needs torch and transformers and downloads nothing: each model is small and has
random weights. diffusers and flash-linear-attention (with fla-core and einops) are taken from the folders in PYTHONPATH; a
case whose package is missing is not measured. Each case runs in a process of its own, because a failed capture can poison
its process: it builds the model, runs it on a side stream as a warm-up, captures it in `torch.cuda.graph`, and prints one
line with what the GPU said and the innermost line of the package that it came from. The exit code is 0 whatever the cases say.

`--case NAME` runs one case in this very process, `--dry` runs the code on the CPU without a capture: good for finding
typing errors, not for facts.
"""

from __future__ import annotations

import argparse
import linecache
import os
import pkgutil
import subprocess
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_S = 120
MARK = "@@CASE@@"
PACKAGES = ("transformers", "diffusers", "fla")
Case = tuple[Any, dict[str, Any]]  # a module or a function, and what it is called with


def tokens(device: str, length: int = 16) -> Any:
    import torch

    return torch.arange(2 * length, device=device).view(2, length) % 96 + 3


def sliding_window(device: str) -> Case:
    """A decoder with a sliding window; its forward makes a DynamicCache, as by default."""
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        sliding_window=32,
    )
    return MistralForCausalLM(config), {"input_ids": tokens(device)}


def multi_query(device: str) -> Case:
    """Falcon with one key and value for all heads, as by default."""
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64
    )
    return FalconForCausalLM(config), {"input_ids": tokens(device)}


def eager_mask_value(device: str) -> Case:
    """An attention of GPT-Neo, which makes its mask value on the host.

    Not the whole model: in 5.17.0 its forward fails before that, where the eager mask is made, which is put right in 5.24.0.
    """
    import torch
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=128,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
        window_size=8,
        bos_token_id=1,
        eos_token_id=2,
    )
    attention = GPTNeoForCausalLM(config).transformer.h[0].attn.attention
    return attention, {"hidden_states": torch.randn(2, 16, 64, device=device)}


def padding_in_buffers(device: str) -> Case:
    """EnCodec's encoder, whose convolutions keep their paddings in buffers on the GPU."""
    import torch
    from transformers import EncodecConfig, EncodecModel

    model = EncodecModel(EncodecConfig(num_filters=4, hidden_size=32))
    return model.encoder, {"hidden_states": torch.randn(1, 1, 3200, device=device)}


def log_buckets(device: str) -> Case:
    """DeBERTa v2 with relative positions in buckets, as its published checkpoints have them."""
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        vocab_size=128,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=8,
        max_relative_positions=64,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
    )
    return DebertaV2Model(config), {"input_ids": tokens(device)}


def guidance_on_the_host(device: str) -> Case:
    """Chroma's embedding of time and guidance."""
    pillow_or_stand_in()
    import torch
    from diffusers.models.transformers.transformer_chroma import ChromaCombinedTimestepTextProjEmbeddings

    embed = ChromaCombinedTimestepTextProjEmbeddings(num_channels=16, out_dim=344)
    return embed, {"timestep": torch.full((2,), 500.0, device=device)}


def length_of_masked_text(device: str) -> Case:
    """Qwen-Image's length of a text that comes with a mask."""
    pillow_or_stand_in()
    import torch
    from diffusers.models.transformers.transformer_qwenimage import compute_text_seq_len_from_mask

    text = torch.zeros(2, 24, 64, device=device)
    mask = torch.ones(2, 24, device=device, dtype=torch.long)
    return compute_text_seq_len_from_mask, {"encoder_hidden_states": text, "encoder_hidden_states_mask": mask}


def chunk_size(device: str) -> Case:
    """The compressor of CAT, which looks up an embedding of its chunk size."""
    import torch

    models_beside_kernels()
    from fla.models.cat.configuration_cat import CATConfig
    from fla.models.cat.modeling_cat import CATModel

    config = CATConfig(hidden_size=256, num_hidden_layers=2, num_heads=4)
    compressor = CATModel(config).compressor.to(device, torch.bfloat16)
    size = config.max_chunk_size
    ids = torch.zeros(1, 2, size, dtype=torch.long, device=device)
    return lambda: compressor.compress_batched(ids, size), {}


def pillow_or_stand_in() -> None:
    """diffusers looks up some names of Pillow while it is imported; where that is missing, something must have them."""
    try:
        import PIL.Image
        import PIL.ImageOps  # noqa: F401
    except ImportError:
        pillow, image, ops = (types.ModuleType(name) for name in ("PIL", "PIL.Image", "PIL.ImageOps"))
        filters = {"NEAREST": 0, "LANCZOS": 1, "BILINEAR": 2, "BICUBIC": 3}
        vars(image).update(Image=type("Image", (), {}), Resampling=types.SimpleNamespace(**filters))
        vars(pillow).update(Image=image, ImageOps=ops, __version__="10.0.0")
        sys.modules |= {"PIL": pillow, "PIL.Image": image, "PIL.ImageOps": ops}


def models_beside_kernels() -> None:
    """flash-linear-attention comes in two parts that share the package `fla`; they may lie in different folders."""
    import fla

    fla.__path__ = pkgutil.extend_path(list(fla.__path__), "fla")


CASES: dict[str, Callable[[str], Case]] = {
    "sliding-window-cache": sliding_window,
    "falcon-multi-query": multi_query,
    "gpt-neo-mask-value": eager_mask_value,
    "encodec-padding": padding_in_buffers,
    "deberta-v2-log-buckets": log_buckets,
    "chroma-guidance": guidance_on_the_host,
    "qwen-image-text-length": length_of_masked_text,
    "cat-chunk-size": chunk_size,
}


def place_of(error: BaseException) -> str:
    """The innermost line of one of the packages that an error passed through, as `path:line `code``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if set(Path(f.filename).parts) & set(PACKAGES)]
    if not frames:
        return "no line of the package"
    last = frames[-1]
    parts = Path(last.filename).parts
    path = "/".join(parts[min(parts.index(name) for name in PACKAGES if name in parts) :])
    code = (last.line or linecache.getline(last.filename, last.lineno or 0)).strip()
    return f"{path}:{last.lineno} `{code}`"


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def captured(name: str) -> str:
    """What a capture of the forward does."""
    import torch

    torch.manual_seed(0)
    model, inputs = CASES[name]("cuda")
    if isinstance(model, torch.nn.Module):
        model = model.to("cuda").eval()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            model(**inputs)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    seen: list[BaseException] = []
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph, stream=stream):
            try:
                model(**inputs)
            except Exception as error:
                seen.append(error)  # what ends the capture raises another error over it
                raise
    except Exception as error:
        seen.append(error)
    if not seen:
        graph.replay()
        torch.cuda.synchronize()
        return "captured and replayed"
    return f"FAILED  {place_of(seen[0])}  {first_line(seen[0])}"


def dry(name: str) -> str:
    import torch

    model, inputs = CASES[name]("cpu")
    with torch.no_grad():
        (model.eval() if isinstance(model, torch.nn.Module) else model)(**inputs)
    return "runs on the CPU"


def one(name: str, is_dry: bool) -> str:
    try:
        return dry(name) if is_dry else captured(name)
    except BaseException as error:
        return f"NOT MEASURED  {place_of(error)}  {first_line(error)}"


def in_process(name: str, is_dry: bool) -> str:
    """The case's line, from a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--case", name, *(["--dry"] if is_dry else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"NOT MEASURED  no answer in {TIMEOUT_S} s"
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            return line.removeprefix(MARK).strip()
    tail = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    return f"NOT MEASURED  exit code {done.returncode}: {tail[0]}"


def versions() -> str:
    try:
        import torch
        import transformers

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
        return f"torch {torch.__version__}, transformers {transformers.__version__}, {device}"
    except Exception as error:
        return first_line(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=sorted(CASES))
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if options.case:
        print(MARK, one(options.case, options.dry), flush=True)
        os._exit(0)  # a poisoned process may fail while it shuts down
    print(versions(), flush=True)
    for name in CASES:
        print(f"{name:24} {in_process(name, options.dry)}", flush=True)


if __name__ == "__main__":
    main()
