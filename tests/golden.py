"""Recorded tensors, and a replay of the recorded steps.

The recording at the fine resolution is too large for the repository, which has it thinned: all weights and gradients,
the video, and of every picture each 13th number (`thinned` made it). The whole one is tested where ../shared has it.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from loci.config import DecoderConfig, EncoderConfig, ModelConfig, TransitionConfig
from loci.model import Draws, Loci
from loci.published import import_published

HERE = Path(__file__).parent / "golden"
SHARED = Path(__file__).parents[2] / "shared" / "golden"


def load(name):
    path = next((f for f in (HERE / name, SHARED / name) if f.exists()), None)
    if path is None:
        pytest.skip(f"{name} is too large for the repository and ../shared/golden is not here")
    with safe_open(path, "pt") as file:
        config = json.loads((file.metadata() or {}).get("config", "{}"))
        return {key: file.get_tensor(key) for key in file.keys()}, config  # noqa: SIM118


THIN = 13
LARGE = 2_000


def thinned(tensors):
    """What of a recording fits into the repository."""
    kept = {}
    for key, tensor in tensors.items():
        if key.startswith("step") and key.endswith(("/frame_in", "/target")):
            continue  # they are frames of the video
        picture = key.startswith("step") and "/grad/" not in key and tensor.numel() > LARGE
        kept[key] = (tensor.flatten()[::THIN] if picture else tensor).clone()
    return kept


def shown(tensors, index):
    """The frame of a recorded step, and its target."""
    if f"step{index:02d}/frame_in" in tensors:
        return tensors[f"step{index:02d}/frame_in"], tensors[f"step{index:02d}/target"]
    return tensors["video"][:, max(0, index - 3)], tensors["video"][:, max(0, index - 2)]


def model_from(config, tensors, dtype=torch.float32):
    model = Loci(
        ModelConfig(
            height=config["input_size"][0],
            width=config["input_size"][1],
            resolution="coarse" if config["level"] == 1 else "fine",
            slots=config["num_objects"],
            gestalt=config["gestalt_size"],
            bootstrap=3,
            snitch=True,
            encoder=EncoderConfig(config["encoder"]["channels"], 24, config["encoder"]["num_layers"]),
            transition=TransitionConfig(
                config["predictor"]["heads"], config["predictor"]["layers"], sparsity=config["predictor"]["reg_lambda"]
            ),
            decoder=DecoderConfig(config["decoder"]["channels"], config["decoder"]["num_layers"]),
        )
    ).to(dtype)
    weights = {k.removeprefix("weights/"): v for k, v in tensors.items() if k.startswith("weights/")}
    import_published(model, weights)
    return model


def recorded_draws(tensors, step, model, batch, dtype=torch.float32):
    slots, gestalt = model.config.slots, model.config.gestalt
    uniform = tensors[f"{step}/search_candidates_xy"].to(dtype).view(batch, slots, 10, 2)
    return Draws(2 * uniform - 1, torch.zeros(batch, slots, gestalt, dtype=dtype), None)
