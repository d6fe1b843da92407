"""The bench measures the step that training and tracking run, and counts what it asks for."""

import json

import pytest
import torch
from torch import nn

from loci import presets
from loci.bench.measure import breakdown, loads
from loci.bench.parts import PARTS, Clock, Counter
from loci.bench.work import resized, tracking, training
from loci.commands import bench
from loci.errors import UserError

CPU = torch.device("cpu")


@pytest.mark.parametrize("word", ["train", "infer"])
def test_one_json_object_with_all_that_was_asked(word, capsys):
    words = f"{word} --preset smoke --batch 2 --repeats 4 --device cpu --breakdown --json"
    assert bench.main(words.split()) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ms_fastest"] <= result["ms_per_step"]
    assert result["frames_per_second"] == pytest.approx(2e3 / result["ms_per_step"])
    assert 0 < result["share_of_bfloat16_roofline"] < 1
    assert result["peak_memory_mib"] > 10
    assert result["times_faster_than_plain"] > 0.1
    assert result["plain_ms_per_step"] > 0.1
    assert ("this is cpu" in result["plain_because"]) if word == "train" else result["plain_because"] is None
    assert result["gflop_per_step"] == pytest.approx(sum(part["gflop"] for part in result["parts"].values()))
    expected = set(PARTS) if word == "train" else set(PARTS) - {"losses", "backward", "optimiser"}
    assert set(result["parts"]) == expected


def test_arithmetic_is_counted_as_by_hand():
    layer, x = nn.Conv2d(3, 5, 3, padding=1), torch.randn(2, 3, 8, 8)
    clock = Clock(CPU, "other")
    with torch.inference_mode(), Counter(clock) as counter:
        layer(x) @ torch.randn(8, 4)
    assert counter.loads["other"].flops == 2 * 2 * 5 * 64 * 27 + 2 * (2 * 5 * 8) * 8 * 4
    assert counter.loads["other"].bytes > 4 * (x.numel() + 2 * 5 * 64)


def test_more_slots_are_that_much_more_work():
    few, many = (
        sum(
            load.flops
            for load in loads(tracking(resized(presets.smoke(), None, k), 1, CPU, "float32", False), "infer").values()
        )
        for k in (2, 8)
    )
    assert 3.5 < many / few < 4.1  # a little is shared


def test_measuring_leaves_the_network_as_it_was():
    work = training(presets.smoke(), 1, CPU, "bfloat16", False)
    before = {name: dict(vars(module)) for name, module in work.model.named_modules()}
    times = breakdown(work, "train", 2)
    assert all(
        times[part] > 0 for part in ("seed", "encoder", "transition", "decoder", "losses", "backward", "optimiser")
    )
    for name, module in work.model.named_modules():
        assert vars(module).keys() == before[name].keys(), name


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("infer --preset numbers", "no preset 'numbers'"),
        ("infer --preset smoke --side 64", "fine frames"),
        ("infer --preset smoke --repeats 0", "--repeats 0: it must be 1 or more"),
        ("infer --preset smoke --batch 0", "--batch 0: it must be 1 or more"),
        ("train --preset smoke --slots -3", "--slots -3: it must be 1 or more"),
        ("infer --preset cater_fine --side 100", "side of 100|100"),
        ("infer --preset smoke --device warp", "no device 'warp'"),
    ],
)
def test_what_cannot_be_measured(words, text):
    with pytest.raises(UserError, match=text):
        bench.main(words.split())
