"""A clip is the same bit for bit in any batch, and with a processor's lesser instructions."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import pytest
import torch

from loci import random
from loci.worlds import aquarium_swim
from loci.worlds.open import open_world
from loci.worlds.render_light import lamps, together

CASES = {
    "moving_mnist": {"length": 5, "protocol": "box"},
    "cater": {"length": 2, "size": (130, 174), "jitter": True},
    "clevrer": {"length": 30, "size": (32, 48)},
    "aquarium": {"length": 3, "size": (48, 64)},
}


def made():
    """What each world makes, [name.field, tensor]: run in this process, and in one with other instructions."""
    result = {}
    for name, options in CASES.items():
        clip = open_world(name, seed=6, split="val", **options).clips([2, 8])
        for field in dataclasses.fields(clip):
            value = getattr(clip, field.name)
            if isinstance(value, torch.Tensor):
                result[f"{name}.{field.name}"] = value
    return result


def test_lesser_instructions_make_the_same_clips(tmp_path):
    """Torch and MKL are held to what any x86 processor has; sums and powers would be rounded otherwise there."""
    environment = os.environ | {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    path = tmp_path / "made.pt"
    subprocess.run([sys.executable, "-W", "ignore", __file__, str(path)], check=True, env=environment)
    there, here = torch.load(path), made()
    assert there.pop("capability") == "DEFAULT"
    assert there.keys() == here.keys()
    assert [name for name in here if not torch.equal(here[name], there[name])] == []


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 16, 17])
def test_fish_do_not_depend_on_how_many_tanks_there_are(count):
    """No pictures: all tanks' fish, and where they are, against one tank after another."""
    keys = random.key("exact", torch.arange(17))
    time = torch.arange(9) / 25

    def fish(some):
        cast = aquarium_swim.cast(some, 18, 4 / 3)
        clip = torch.arange(len(some)).repeat_interleave(len(time))
        pose = aquarium_swim.swim(cast.at(clip), time.repeat(len(some)))
        return [*cast, *(value.unflatten(0, (len(some), len(time))) for value in pose)]

    alone = [torch.cat(values) for values in zip(*(fish(key[None]) for key in keys), strict=True)]
    parts = [torch.cat(values) for values in zip(*(fish(some) for some in keys.split(count)), strict=True)]
    assert all(torch.equal(one, other) for one, other in zip(alone, parts, strict=True))


def test_lamps_are_added_as_a_matrix_product_would():
    light = lamps(None, "cpu")
    shares = random.uniform(random.key("shares", torch.arange(4)), (103,))
    torch.testing.assert_close(together(light, shares), shares.T @ light.energy)


if __name__ == "__main__":
    torch.save(made() | {"capability": torch.backends.cpu.get_cpu_capability()}, pathlib.Path(sys.argv[1]))
