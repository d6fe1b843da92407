"""Configs to start from, as functions."""

from __future__ import annotations

from dataclasses import replace

from loci.config import (
    Config,
    DataConfig,
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    SearchConfig,
    Stage,
    TrainConfig,
    TransitionConfig,
)


def moving_mnist() -> Config:
    """Digits on black, 64×64."""
    return Config(
        model=ModelConfig(height=64, width=64, slots=3, gestalt=96),
        data=DataConfig("moving_mnist", length=20, batch=64),
        train=TrainConfig(stages=(Stage(300_000),)),
    )


def digits() -> Config:
    """Moving MNIST as the network that ships learned it: a latent grid of 16×16, then half of the batch in closed loop.

    What the paper leaves open is chosen for minutes on one GPU instead of days.
    """
    return Config(
        model=ModelConfig(
            height=256,
            width=256,
            resolution="coarse",
            slots=2,
            bootstrap=4,
            transition=TransitionConfig(heads=1),
        ),
        data=DataConfig("moving_mnist", length=31, batch=64),
        train=TrainConfig(
            stages=(Stage(60_000, rate=3e-4, warm_up=500), Stage(40_000, rate=3e-4, final=0.03, blind=0.5)),
            foreground=0,
            precision="bfloat16",
            log_every=500,
            picture_every=10_000,
            evaluate_every=10_000,
            evaluate_clips=64,
            save_every=5_000,
        ),
    )


def cater_unsupervised() -> Config:
    """CATER without a label, small and quick: 48×64 pixels, the background let in at the paper's own pace."""
    return Config(
        model=ModelConfig(
            height=192,
            width=256,
            resolution="coarse",
            slots=10,
            gestalt=64,
            bootstrap=4,
            encoder=EncoderConfig(layers=2),
            transition=TransitionConfig(heads=1, layers=1),
            decoder=DecoderConfig(layers=3),
        ),
        data=DataConfig("cater", length=80, batch=8),
        train=TrainConfig(
            stages=(Stage(100_000, rate=4e-4, final=0.1),),
            foreground=40_000,
            growth=60,
            brightening=0.25,
            dawn=True,
            precision="bfloat16",
            log_every=500,
            picture_every=10_000,
            evaluate_every=10_000,
            save_every=5_000,
        ),
    )


def cater() -> Config:
    """CATER as in the paper: a quarter of its size first, then 240×320, ever more supervision at ever lower rates.

    Four epochs of the real data set are 240 000 updates.
    """
    stages = (
        Stage(240_000, "coarse", 1e-4, 0.01),
        Stage(240_000, "coarse", 3.33e-5, 0.1),
        Stage(240_000, "fine", 3.33e-5, 0.1),
        Stage(120_000, "fine", 1e-5, 0.333),
    )
    return Config(
        model=ModelConfig(resolution="coarse", snitch=True),
        data=DataConfig("cater", length=301, batch=16),
        train=TrainConfig(stages=stages),
    )


def cater_fine() -> Config:
    """CATER at 240×320 from the start."""
    coarse = cater()
    return replace(
        coarse,
        model=replace(coarse.model, resolution="fine"),
        train=replace(coarse.train, stages=tuple(replace(s, resolution="fine") for s in coarse.train.stages)),
    )


def clevrer() -> Config:
    """CLEVRER at half its size; seven objects at most are in view."""
    return Config(
        model=ModelConfig(height=160, width=240, slots=8),
        data=DataConfig("clevrer", length=128, batch=16),
        train=TrainConfig(stages=(Stage(240_000, "coarse", 1e-4), Stage(240_000, "fine", 3.33e-5))),
    )


def aquarium() -> Config:
    """Many fish; search goes on for slots whose fish has gone, as in the paper."""
    return Config(
        model=ModelConfig(slots=20, search=SearchConfig(invisible=True)),
        data=DataConfig("aquarium", length=100, batch=8),
        train=TrainConfig(stages=(Stage(240_000, "coarse", 1e-4), Stage(240_000, "fine", 3.33e-5))),
    )


def video() -> Config:
    """A still camera's footage; `loci train video` fits size, slots and clips to it. An hour on a CPU.

    What moves in footage is small, and a network for it may be: one four times as large learned people in a street
    faster at first, and then lost them all. Sizes come in so slowly that a slot cannot grow over several objects. All
    of it is the foreground phase, in which masks are sharpest; tracking needs no background in the prediction.
    """
    return Config(
        model=ModelConfig(
            resolution="coarse",
            slots=12,
            gestalt=32,
            bootstrap=5,
            encoder=EncoderConfig(channels=24, fine_channels=24, layers=1),
            transition=TransitionConfig(heads=1, layers=1),
            decoder=DecoderConfig(channels=24, layers=2),
        ),
        data=DataConfig("video", length=80, batch=3),
        train=TrainConfig(
            stages=(Stage(15_000, "coarse", 8e-4, final=0.1),), foreground=1_000_000, growth=0.03, clip=0.5
        ),
    )


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
        ),
        data=DataConfig("moving_mnist", length=8, batch=4),
        train=TrainConfig(
            stages=(Stage(600, rate=2e-3),),
            foreground=0,
            growth=3,
            log_every=20,
            evaluate_every=200,
            picture_every=200,
            save_every=100,
            evaluate_clips=4,
        ),
    )


PRESETS = {
    f.__name__: f
    for f in (moving_mnist, digits, cater, cater_unsupervised, cater_fine, clevrer, aquarium, video, smoke)
}
"""By name, for the command line."""
