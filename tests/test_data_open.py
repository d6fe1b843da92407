import numpy as np
import pytest
import torch

from loci.commands import data
from loci.data.cache import CachedClips
from loci.data.open import EXAMPLES, READERS, open_source
from loci.data.write_video import write_video
from loci.errors import UserError
from loci.worlds.moving_mnist import MovingMnist


def test_a_world_by_its_name():
    source = open_source("moving_mnist", split="val", seed=3, length=5, digits=1)
    assert source == MovingMnist(split="val", seed=3, length=5, digits=1)


def test_files_by_kind_and_place(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 8, 8), np.uint8))
    source = open_source(f"mnist:{tmp_path / 'x.npy'}", length=4)
    assert (len(source), source.size, source.length) == (3, (8, 8), 4)
    frames = open_source("moving_mnist", length=4).clips([0], labels=False).frames[0]
    write_video(tmp_path / "a" / "x.mp4", frames, 25)
    for split in ("train", "test"):
        assert open_source(f"video:{tmp_path / 'a'}", split=split, size=(32, 32)).size == (32, 32)


def test_every_kind_of_files_has_an_example_and_an_opener(tmp_path):
    for kind in READERS:
        assert f"{kind}:" in EXAMPLES
        with pytest.raises(UserError, match=str(tmp_path)):
            open_source(f"{kind}:{tmp_path}")


def test_a_folder_that_loci_made_comes_with_its_labels(tmp_path):
    assert (
        data.main(["make", "aquarium", "--count", "2", "--size", "48", "64", "--length", "6", "--out", str(tmp_path)])
        == 0
    )
    source = open_source(f"video:{tmp_path}")
    world = open_source("aquarium", split="train", size=(48, 64), length=6)
    assert (len(source), source.names) == (2, world.names)
    read, made = source.clips([0, 1]), world.clips([0, 1])
    N = read.state.shape[2]
    for name in ("visible", "whole", "state"):
        assert torch.equal(getattr(read, name), getattr(made, name)[:, :, :N]), name
    for name, values in read.attributes.items():
        assert torch.equal(values, made.attributes[name][:, :N])
    (tmp_path / "videos" / "00000.mp4").unlink()
    assert len(open_source(f"video:{tmp_path}").skipped) == 1
    (tmp_path / "settings.json").write_text('{"world": "narnia"}')
    with pytest.raises(UserError, match="one of moving_mnist, cater"):
        open_source(f"video:{tmp_path}")


def test_with_a_cache(tmp_path):
    done = []
    source = open_source("moving_mnist", length=3, cache=str(tmp_path / "c"), count=2, advance=lambda: done.append(1))
    assert isinstance(source, CachedClips)
    assert (len(source), len(done)) == (2, 2)


@pytest.mark.parametrize(
    ("spec", "options", "complaint"),
    [
        ("catr", {}, "did you mean 'cater'"),
        ("movi", {}, "needs a place behind a colon"),
        ("movi:", {}, "needs a place behind the colon"),
        ("movy:/x", {}, "did you mean 'movi'"),
        ("cater:/no/such/place", {}, "there is no /no/such/place"),
        ("moving_mnist", {"split": "testing"}, "choose one of train, val, test"),
        ("moving_mnist", {"digit": 3}, "did you mean 'digits'"),
        ("video:/", {"checks": 1}, "no option 'checks': choose from size, length"),
        ("/", {}, "say what it is: video:/"),
    ],
)
def test_what_cannot_be_opened_says_the_way_out(spec, options, complaint):
    with pytest.raises(UserError, match=complaint):
        open_source(spec, **options)
