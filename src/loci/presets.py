"""Configs to start from, as functions."""

from __future__ import annotations

from dataclasses import replace

from loci.config import Config, DecoderConfig, EncoderConfig, ModelConfig, SearchConfig, TransitionConfig


def moving_mnist() -> Config:
    """Digits on black, 64×64."""
    return Config(model=ModelConfig(height=64, width=64, slots=3, gestalt=96))


def cater() -> Config:
    """CATER at a quarter of its size, where training starts."""
    return Config(model=ModelConfig(resolution="coarse", snitch=True))


def cater_fine() -> Config:
    """CATER at 240×320."""
    coarse = cater()
    return replace(coarse, model=replace(coarse.model, resolution="fine"))


def clevrer() -> Config:
    """CLEVRER at half its size; seven objects at most are in view."""
    return Config(model=ModelConfig(height=160, width=240, slots=8))


def aquarium() -> Config:
    """Many fish; search goes on for slots whose fish has gone, as in the paper."""
    return Config(model=ModelConfig(slots=20, search=SearchConfig(invisible=True)))


def video() -> Config:
    """A still camera's footage; `loci train video` fits size and slots to it."""
    return Config(model=ModelConfig(slots=12))


def smoke() -> Config:
    """A tiny network for tests, which learns on a CPU within a minute."""
    return Config(
        model=ModelConfig(
            height=128,
            width=128,
            resolution="coarse",
            slots=2,
            gestalt=16,
            bootstrap=3,
            encoder=EncoderConfig(channels=24, fine_channels=24, layers=1),
            transition=TransitionConfig(heads=1, layers=1),
            decoder=DecoderConfig(channels=24, layers=2),
        )
    )


PRESETS = {f.__name__: f for f in (moving_mnist, cater, cater_fine, clevrer, aquarium, video, smoke)}
"""By name, for the command line."""
