"""Models of `transformers` that are small enough to measure, and the inputs that they are tried with (measure_models.py).

Smaller configs and the choice of inputs need neither torch nor transformers.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers num_decoder_layers"
)
KINDS = "layer_types mlp_layer_types layers_block_type mixer_types sliding_window_pattern_list"
EXPERTS = "num_experts num_local_experts n_routed_experts moe_num_experts"
MAX_LAYERS, MAX_EXPERTS, MAX_PARAMETERS = 2, 16, 6e9

Spec = tuple[str, tuple[int, ...]]  # "ids", "ones", "normal" or "grid" (its one row), and a shape
Make = Callable[[], Any]  # a config
TOKENS: Spec = ("ids", (2, 16))
ONES: Spec = ("ones", (2, 16))


# -- what is built, and what it is given: no torch needed ---------------------------------------------------------------


def shrink(config: Any) -> None:
    """Make a config smaller in place: two layers (of different kinds, if there are any), few experts; so its sub-configs."""
    for name in LAYERS.split():
        _lower(config, name, MAX_LAYERS)
    for name in KINDS.split():
        value = getattr(config, name, None)
        if isinstance(value, list) and len(value) > MAX_LAYERS:
            with contextlib.suppress(Exception):
                setattr(config, name, [value[0], next((v for v in value if v != value[0]), value[0])])
    for name in EXPERTS.split():
        _lower(config, name, MAX_EXPERTS)
    for value in list(vars(config).values()):
        if hasattr(value, "model_type"):
            shrink(value)


def _lower(config: Any, name: str, limit: int) -> None:
    value = getattr(config, name, None)
    if isinstance(value, int) and value > limit:
        with contextlib.suppress(Exception):  # some are read-only, some check what they are given
            setattr(config, name, limit)


def text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def first_of(*answers: tuple[Any, str], default: int) -> int:
    """The first of these (object, attribute) that is there and not 0; of a pair of sizes the first."""
    for thing, name in answers:
        if value := getattr(thing, name, None):
            return int(value[0] if isinstance(value, (list, tuple)) else value)
    return default


def pixels(config: Any) -> tuple[int, ...]:
    """The shape of two images."""
    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 224
    height, width = (size[0], size[-1]) if isinstance(size, (list, tuple)) else (size, size)
    channels = first_of((vision, "num_channels"), (vision, "in_channels"), default=3)
    return (2, channels, height, width)


def usual(names: set[str], main: str, config: Any) -> dict[str, Spec]:
    """What a forward with these parameters is asked with first: text where it takes any, else its main input."""
    given: dict[str, Spec] = {}
    if main == "input_ids" or (main == "pixel_values" and "input_ids" in names):
        given["input_ids"] = TOKENS
        if "attention_mask" in names:
            given["attention_mask"] = ONES
        if "decoder_input_ids" in names:
            given["decoder_input_ids"] = ("ids", (2, 8))
    if "pixel_values" in names and (main == "pixel_values" or not given):
        given["pixel_values"] = ("normal", pixels(config))
    if main == "input_values":
        given["input_values"] = ("normal", (2, 16000))
    if main == "input_features":
        bands = first_of((config, "num_mel_bins"), (config, "feature_size"), default=80)
        given["input_features"] = ("normal", (2, bands, 2 * getattr(config, "max_source_positions", 100)))
        if "decoder_input_ids" in names:
            given["decoder_input_ids"] = ("ids", (2, 8))
    return given


def choices(names: set[str], main: str, config: Any) -> Iterator[dict[str, Spec]]:
    """Inputs to try in turn, until the model takes some."""
    yield usual(names, main, config)
    vision = getattr(config, "vision_config", None) or config
    image = pixels(config)
    video: Spec = ("normal", (image[0], first_of((vision, "num_frames"), default=8), *image[1:]))
    if "pixel_values" in names:
        if "input_ids" in names:
            mask = {"attention_mask": ONES} if "attention_mask" in names else {}
            yield {"input_ids": TOKENS, **mask, "pixel_values": ("normal", image)}
        yield {"pixel_values": ("normal", image)}
        yield {"pixel_values": video}
    if "pixel_values_videos" in names:
        yield {"pixel_values_videos": video}
    if "grid_thw" in names:
        patch, frames = (
            first_of((vision, name), default=n) for name, n in (("patch_size", 14), ("temporal_patch_size", 1))
        )
        for name in ("hidden_states", "pixel_values"):
            if name in names:
                yield {name: ("normal", (64, image[1] * frames * patch**2)), "grid_thw": ("grid", (1, 8, 8))}
    bands = first_of((config, "num_mel_bins"), (config, "feature_size"), (config, "input_dim"), default=80)
    for name in ("input_values", "input_features", "x"):
        if name not in names:
            continue
        yield {name: ("normal", (2, 1, 16000))}
        yield {name: ("normal", (1, 16000))}
        for shape in ((2, 200, bands), (2, bands, 200), (2, 3000, bands)):
            if "attention_mask" in names:
                yield {name: ("normal", shape), "attention_mask": ("ones", shape[:2])}
            yield {name: ("normal", shape)}
    if "past_values" in names:
        steps, channels = (
            first_of((config, n), default=d) for n, d in (("context_length", 64), ("num_input_channels", 1))
        )
        yield {"past_values": ("normal", (2, steps, channels))}


# -- with torch and transformers ------------------------------------------------------------------------------------------


def rotary(name: str, kind: str) -> Any:
    """The config of a decoder with another rotary embedding."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[name]()
    values: dict[str, Any] = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0}
    if kind != "dynamic":
        values["original_max_position_embeddings"] = 2048
    if kind == "longrope":
        half = (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads) // 2
        values.update(short_factor=[1.0] * half, long_factor=[2.0] * half)
    if kind == "llama3":
        values.update(low_freq_factor=1.0, high_freq_factor=4.0)
    config.rope_parameters = values
    return config


def makers() -> dict[str, Make]:
    """The models by name, and what makes their configs."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    def default(name: str) -> Any:
        return CONFIG_MAPPING[name]()

    found: dict[str, Make] = {name: functools.partial(default, name) for name in sorted(CONFIG_MAPPING_NAMES)}
    for name in ("llama", "qwen2", "mistral", "gemma2", "hunyuan_v1_dense"):
        for kind in ("dynamic", "longrope", "yarn", "llama3"):
            found[f"{name}+{kind}"] = functools.partial(rotary, name, kind)
    return found


def classes(config: Any) -> Iterator[Any]:
    from transformers.models.auto import modeling_auto as auto

    mappings = (auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_MAPPING, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
    for mapping in mappings:
        with contextlib.suppress(KeyError):
            found = mapping[type(config)]
            yield found[0] if isinstance(found, tuple) else found


def made(specs: dict[str, Spec], vocabulary: int, dtype: Any) -> dict[str, Any]:
    """The tensors, on the GPU."""
    import torch

    makers: dict[str, Callable[[tuple[int, ...]], Any]] = {
        "ids": lambda shape: torch.randint(10, min(vocabulary, 1000) - 10, shape, device="cuda"),
        "ones": lambda shape: torch.ones(shape, dtype=torch.long, device="cuda"),
        "normal": lambda shape: torch.randn(shape, device="cuda", dtype=dtype),
        "grid": lambda row: torch.tensor([row], device="cuda"),
    }
    return {name: makers[kind](shape) for name, (kind, shape) in specs.items()}


def built(config: Any) -> tuple[Any, dict[str, Any], str]:
    """A model that answers, and the inputs that it answers to; or None, and why there is none."""
    import torch

    why = "no class"
    for cls in classes(config):
        try:
            with torch.device("meta"):
                size = sum(parameter.numel() for parameter in cls(copy.deepcopy(config)).parameters())
            if size > MAX_PARAMETERS:
                why = f"{size / 1e9:.1f}B parameters"
                continue
            torch.set_default_dtype(torch.bfloat16)
            with torch.device("cuda"):
                model = cls(config)
            torch.set_default_dtype(torch.float32)
            model = model.to("cuda", torch.bfloat16).eval()
            return model, answered(model, config), ""
        except Exception as exc:
            torch.set_default_dtype(torch.float32)
            why = f"{cls.__name__}: {said(exc)}"
    return None, {}, why


def answered(model: Any, config: Any) -> dict[str, Any]:
    """The first inputs that a model takes; if there are none, what it said to the first of all."""
    import torch

    vocabulary = first_of((text_config(config), "vocab_size"), (config, "vocab_size"), default=1000)
    dtype = next(model.parameters()).dtype
    problem: Exception | None = None
    names = set(inspect.signature(model.forward).parameters)
    for specs in choices(names, getattr(model, "main_input_name", "input_ids"), config):
        try:
            given = made(specs, vocabulary, dtype)
            for _ in range(2):
                model(**given)
            torch.cuda.synchronize()
            return given
        except Exception as exc:
            problem = problem or exc
            if "CUDA error" in str(exc):
                break
    raise problem or ValueError("no inputs")


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:160]}"
