"""Configs: strict in both directions, and errors that lead on."""

import json
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loci import presets
from loci.config import (
    FEATURES,
    Config,
    DataConfig,
    DecoderConfig,
    EncoderConfig,
    LossConfig,
    ModelConfig,
    SearchConfig,
    Stage,
    TrainConfig,
    TransitionConfig,
    from_dict,
    to_dict,
)
from loci.errors import UserError

positive = st.integers(1, 500)
weight = st.floats(0, 1e6)
rate = st.floats(1e-9, 10)

encoders = st.builds(
    lambda times, fine, layers: EncoderConfig(12 * fine * times, 12 * fine, layers),
    st.integers(1, 5), st.integers(1, 4), st.integers(0, 5),
)  # fmt: skip
models = st.builds(
    ModelConfig,
    height=st.integers(2, 40).map(lambda n: 16 * n),
    width=st.integers(2, 40).map(lambda n: 16 * n),
    resolution=st.sampled_from(["coarse", "fine"]),
    slots=positive,
    gestalt=positive,
    bootstrap=st.integers(0, 20),
    snitch=st.just(True),
    zeroed=st.lists(st.sampled_from(FEATURES), unique=True).map(tuple),
    encoder=encoders,
    transition=st.builds(
        TransitionConfig, heads=positive, layers=positive, credit=st.just("bptt"), sparsity=st.floats(0, 1)
    ),
    decoder=st.builds(DecoderConfig, channels=st.integers(1, 9).map(lambda n: 12 * n), layers=positive),
    search=st.builds(SearchConfig, guided=st.booleans(), candidates=positive, invisible=st.booleans()),
)
stages = st.builds(
    Stage,
    updates=positive,
    resolution=st.sampled_from([None, "coarse", "fine"]),
    rate=rate,
    supervision=weight,
    warm_up=st.integers(0, 99),
    final=st.floats(0, 1),
)
trains = st.builds(
    TrainConfig,
    seed=st.integers(-5, 5),
    stages=st.lists(stages, min_size=1, max_size=4).map(tuple),
    updates=st.none() | positive,
    minutes=st.none() | st.floats(0.1, 1e4),
    foreground=st.integers(0, 10),
    growth=weight,
    window=positive,
    clip=weight,
)
data = st.builds(
    DataConfig,
    source=st.text(),
    path=st.none() | st.text(),
    length=st.integers(2, 500),
    batch=positive,
    clips=st.none() | positive,
    options=st.lists(st.text().map(lambda t: f"{t}=1")).map(tuple),
)
configs = st.builds(
    Config, model=models, data=data, loss=st.builds(LossConfig, weight, weight, weight, weight), train=trains
)


@given(configs)
@settings(deadline=None, max_examples=60)
def test_to_dict_and_from_dict_are_inverse_through_json(config):
    values = json.loads(json.dumps(to_dict(config)))
    assert from_dict(Config, values) == config
    assert to_dict(from_dict(Config, values)) == values


@pytest.mark.parametrize("name", presets.PRESETS)
def test_presets_round_trip(name):
    config = presets.PRESETS[name]()
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


def places(config, path=()):
    """The path of every section of a config."""
    yield path
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from places(value, (*path, field.name))


@pytest.mark.parametrize("path", list(places(Config())))
def test_a_misspelt_field_is_named_with_its_full_path_and_the_nearest_one(path):
    values = to_dict(Config())
    section = values
    for name in path:
        section = section[name]
    right = sorted(section)[0]
    section[right + "z"] = section.pop(right)
    full = ".".join((*path, right))
    with pytest.raises(UserError) as caught:
        from_dict(Config, values)
    assert f"no field '{full}z'" in str(caught.value)
    assert f"did you mean '{full}'?" in str(caught.value)


def test_a_field_like_no_other_lists_those_there_are():
    with pytest.raises(UserError, match=r"no field 'loss.qqqq' in the config; it may hold reconstruction, position"):
        from_dict(Config, {"loss": {"qqqq": 1}})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"model": {"slots": "3"}}, "model.slots is '3', a str; expected int"),
        ({"model": {"slots": True}}, "model.slots is True, a bool; expected int"),
        ({"model": {"slots": 2.0}}, "model.slots is 2.0, a float; expected int"),
        ({"model": 3}, "model is 3; expected a mapping"),
        ({"model": {"resolution": "finer"}}, "model.resolution is 'finer'; choose from 'coarse', 'fine'"),
        ({"model": {"zeroed": "frame"}}, "model.zeroed is 'frame'; expected a list"),
        ({"model": {"zeroed": ["fram"]}}, "model.zeroed.0 is 'fram'; choose from 'frame'"),
        ({"train": {"stages": [{"rate": "x"}]}}, "train.stages.0.rate is 'x', a str; expected float"),
        ({"train": {"minutes": "x"}}, "train.minutes is 'x', a str; expected float"),
        ({"model": {"encoder": {"layers": -1}}}, "model.encoder.layers is -1; it must be 0 or more"),
        (
            {"model": {"encoder": {"channels": 50}}},
            "model.encoder.channels is 50; it must be a positive multiple of model.",
        ),
        ({"model": {"transition": {"heads": 0}}}, "model.transition.heads is 0"),
        ({"model": {"decoder": {"channels": 16}}}, "model.decoder.channels is 16"),
        ({"model": {"search": {"candidates": 0}}}, "model.search.candidates is 0"),
        ({"train": {"stages": [{}, {"rate": 0.0}]}}, "train.stages.1: train.stages: rate is 0.0"),
    ],
)
def test_what_is_wrong_is_named_with_its_full_path(values, text):
    with pytest.raises(UserError) as caught:
        from_dict(Config, values)
    assert text in str(caught.value)


WRONG = [
    (EncoderConfig, "encoder", {"layers": -1}),
    (EncoderConfig, "encoder", {"fine_channels": 13}),
    (EncoderConfig, "encoder", {"channels": 50}),
    (TransitionConfig, "transition", {"heads": 0}),
    (TransitionConfig, "transition", {"layers": 0}),
    (TransitionConfig, "transition", {"cell": "gru"}),
    (TransitionConfig, "transition", {"credit": "both"}),
    (TransitionConfig, "transition", {"sparsity": -1.0}),
    (DecoderConfig, "decoder", {"layers": 0}),
    (DecoderConfig, "decoder", {"channels": 16}),
    (SearchConfig, "search", {"candidates": 0}),
    (ModelConfig, "model", {"height": 100}),
    (ModelConfig, "model", {"width": 16}),
    (ModelConfig, "model", {"resolution": "medium"}),
    (ModelConfig, "model", {"slots": 0}),
    (ModelConfig, "model", {"gestalt": 0}),
    (ModelConfig, "model", {"bootstrap": -1}),
    (ModelConfig, "model", {"zeroed": ("colour",)}),
    (DataConfig, "data", {"length": 1}),
    (DataConfig, "data", {"batch": 0}),
    (DataConfig, "data", {"clips": 0}),
    (DataConfig, "data", {"options": ("digits",)}),
    (LossConfig, "loss", {"time": -0.1}),
    (LossConfig, "loss", {"object": float("nan")}),
    (Stage, "train.stages", {"updates": 0}),
    (Stage, "train.stages", {"rate": 0.0}),
    (Stage, "train.stages", {"rate": float("inf")}),
    (Stage, "train.stages", {"supervision": -1.0}),
    (Stage, "train.stages", {"resolution": "best"}),
    (Stage, "train.stages", {"warm_up": -1}),
    (Stage, "train.stages", {"final": 2.0}),
    (TrainConfig, "train", {"stages": ()}),
    (TrainConfig, "train", {"updates": 0}),
    (TrainConfig, "train", {"minutes": 0.0}),
    (TrainConfig, "train", {"start_rate": 0.0}),
    (TrainConfig, "train", {"foreground": -1}),
    (TrainConfig, "train", {"growth": -1.0}),
    (TrainConfig, "train", {"growth": float("nan")}),
    (TrainConfig, "train", {"clip": -1.0}),
    (TrainConfig, "train", {"precision": "float8"}),
    (TrainConfig, "train", {"keep": 0}),
    (TrainConfig, "train", {"save_every": 0}),
    (TrainConfig, "train", {"patience": 0}),
]


@pytest.mark.parametrize(("kind", "section", "values"), WRONG)
def test_a_value_that_makes_no_sense_is_refused_by_its_name(kind, section, values):
    with pytest.raises(UserError) as caught:
        kind(**values)
    (name,) = values
    assert section in str(caught.value)
    assert name in str(caught.value)


def test_parts_that_contradict_each_other():
    with pytest.raises(UserError, match=r"train.window is 3 with e-prop"):
        Config(train=TrainConfig(window=3))
    bptt = ModelConfig(transition=TransitionConfig(credit="bptt"))
    assert Config(model=bptt, train=TrainConfig(window=3)).train.window == 3
    with pytest.raises(UserError, match=r"no snitch head"):
        Config(train=TrainConfig(stages=(Stage(supervision=0.1),)))


def test_total_length():
    train = TrainConfig(stages=(Stage(10), Stage(20)))
    assert train.total == 30
    assert replace(train, updates=25).total == 25
