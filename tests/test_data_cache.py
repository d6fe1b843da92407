import json
import logging
import zlib
from dataclasses import dataclass

import pytest
import torch

from loci.data.batch import readable
from loci.data.cache import cached, filling, identity
from loci.errors import UserError
from loci.worlds.moving_mnist import MovingMnist

FIELDS = ("frames", "background", "visible", "whole", "position", "share", "state", "container", "index")


class Counting:
    """A source that says how often it was asked, and cannot read some of its clips."""

    def __init__(self, source, broken=()):
        self.source, self.broken, self.asked = source, broken, []
        self.size, self.length, self.names = source.size, source.length, source.names

    def __len__(self):
        return 5

    def __repr__(self):
        return repr(self.source)

    def clips(self, indices, *, labels=True, device="cpu"):
        self.asked += list(indices)
        if set(indices) & set(self.broken):
            raise UserError(f"clip {indices[0]} is corrupt")
        return self.source.clips(indices, labels=labels, device=device)


WORLD = MovingMnist(split="test", seed=1, size=(40, 40), length=6)


def same(read, made):
    for name in FIELDS:
        assert torch.equal(getattr(read, name), getattr(made, name)), name
    assert torch.equal(read.attributes["class"], made.attributes["class"])


def test_a_cache_gives_back_what_went_in(tmp_path):
    done = []
    source = Counting(WORLD)
    cache = cached(source, tmp_path / "c", advance=lambda: done.append(1))
    assert (len(cache), cache.size, cache.length, len(done)) == (5, (40, 40), 6, 5)
    assert sorted(source.asked) == [0, 1, 2, 3, 4]
    same(cache.clips([3, 0]), WORLD.clips([3, 0]))
    bare = cache.clips([2], labels=False)
    assert torch.equal(bare.frames, WORLD.clips([2]).frames)
    assert (bare.visible, dict(bare.attributes)) == (None, {})
    assert len(source.asked) == 5


def test_it_is_compact(tmp_path):
    cached(WORLD, tmp_path, count=4)
    clip = WORLD.clips([0])
    raw = sum(getattr(clip, name).numel() * getattr(clip, name).element_size() for name in FIELDS)
    assert max(path.stat().st_size for path in tmp_path.rglob("*.clip")) < raw / 8


def test_a_second_call_goes_on_where_the_first_stopped(tmp_path):
    cached(Counting(WORLD), tmp_path, count=2)
    (tmp_path / "000000" / ".000000002.clip.part").write_bytes(b"killed while writing")
    source = Counting(WORLD)
    assert len(cached(source, tmp_path)) == 5
    assert sorted(source.asked) == [2, 3, 4]


def test_clips_that_cannot_be_read_are_left_out_and_reported(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        cache = cached(Counting(WORLD, broken=(1, 3)), tmp_path)
    assert (cache.numbers, len(cache.skipped)) == ((0, 2, 4), 2)
    assert "2 skipped, first: clip 1 is corrupt" in caplog.text
    made = WORLD.clips([2])
    read = cache.clips([1])
    assert torch.equal(read.frames, made.frames)
    assert read.index.tolist() == [2]
    assert len(cached(Counting(WORLD), tmp_path)) == 5
    with pytest.raises(UserError, match="no clip could be cached"):
        cached(Counting(WORLD, broken=range(5)), tmp_path / "other")


def test_a_cache_that_fills_as_clips_are_asked_for(tmp_path, caplog):
    source = Counting(WORLD, broken=(3,))
    cache = filling(source, tmp_path)
    assert (len(cache), source.asked) == (5, [])
    for _ in range(2):
        same(cache.clips([4, 0]), WORLD.clips([4, 0]))
        with pytest.raises(UserError, match="clip 3 is corrupt"):
            cache.clips([3])
    assert sorted(source.asked[:2]) == [0, 4]  # by several threads, in any order
    assert source.asked[2:] == [3, 3]
    assert cached(source, tmp_path).numbers == (0, 1, 2, 4)
    assert "made again" not in caplog.text
    assert sorted(source.asked[4:]) == [1, 2, 3]
    with pytest.raises(UserError, match="another source"):
        filling(MovingMnist(length=6), tmp_path)


def test_damaged_clips_can_be_left_out_while_reading():
    source = Counting(WORLD, broken=(1, 3))
    clip, faults = readable(source, [0, 1, 2, 3])
    assert (clip.index.tolist(), faults) == ([0, 2], {1: "clip 1 is corrupt", 3: "clip 3 is corrupt"})
    same(clip, WORLD.clips([0, 2]))
    assert readable(source, [1, 3]) == (None, {1: "clip 1 is corrupt", 3: "clip 3 is corrupt"})
    bare, faults = readable(source, [4], labels=False)
    assert (bare.visible, faults) == (None, {})


@pytest.mark.parametrize("place", [0, 5, 15, 60, 400, -200, -1])
def test_damage_is_found_and_repaired(tmp_path, place, caplog):
    cache = cached(Counting(WORLD), tmp_path, count=1)
    path = next(tmp_path.rglob("*.clip"))
    raw = bytearray(path.read_bytes())
    raw[place] ^= 4
    path.write_bytes(raw)
    with caplog.at_level(logging.WARNING):
        same(cache.clips([0]), WORLD.clips([0]))
    assert "made again" in caplog.text
    caplog.clear()
    same(cache.clips([0]), WORLD.clips([0]))
    assert not caplog.text


def test_a_part_that_unpacks_well_but_is_another_is_found(tmp_path, caplog):
    """zlib has a checksum of its own; ours also sees what zlib takes for sound."""
    cache = cached(Counting(WORLD), tmp_path, count=1)
    path = next(tmp_path.rglob("*.clip"))
    raw = path.read_bytes()
    part = json.loads(raw.splitlines()[2][: raw.splitlines()[2].rindex(b"}}") + 2])["frames"]
    start = raw.index(b"}}") + 2 + part["offset"]
    black = zlib.compress(bytes(6 * 3 * 40 * 40), 1)
    path.write_bytes(raw[:start] + black + raw[start + len(black) :])
    assert len(black) < part["bytes"]
    with caplog.at_level(logging.WARNING):
        same(cache.clips([0]), WORLD.clips([0]))
    assert "its frames are damaged" in caplog.text


@pytest.mark.parametrize("cut", [0, 10, 50, 300, -1])
def test_a_cut_file_is_made_again(tmp_path, cut):
    cache = cached(Counting(WORLD), tmp_path, count=1)
    path = next(tmp_path.rglob("*.clip"))
    path.write_bytes(path.read_bytes()[:cut])
    same(cache.clips([0]), WORLD.clips([0]))
    path.unlink()
    same(cache.clips([0]), WORLD.clips([0]))


def test_a_cache_belongs_to_one_source(tmp_path):
    cached(WORLD, tmp_path / "c", count=1)
    with pytest.raises(UserError, match="another source or of other settings"):
        cached(MovingMnist(split="test", seed=2, size=(40, 40), length=6), tmp_path / "c", count=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="no cache and not empty"):
        cached(WORLD, tmp_path / "full", count=1)
    (tmp_path / "c" / "cache.json").write_text("{")
    with pytest.raises(UserError, match="a cache"):
        cached(WORLD, tmp_path / "c", count=1)


def test_an_endless_source_needs_a_count(tmp_path):
    with pytest.raises(UserError, match="count"):
        cached(WORLD, tmp_path)


def test_identity_tells_sources_apart():
    @dataclass(frozen=True)
    class Files:
        names: tuple
        background: torch.Tensor
        skipped: list

    first = Files(("a", "b"), torch.zeros(2), ["x"])
    assert identity(first) == identity(Files(("a", "b"), torch.zeros(2), []))
    assert identity(first) != identity(Files(("a", "c"), torch.zeros(2), []))
    assert identity(first) != identity(Files(("a", "b"), torch.ones(2), []))
