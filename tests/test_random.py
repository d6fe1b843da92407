"""Random numbers as pure functions of a key: what every seed of this project hangs on."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from loci import random

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    """The finaliser of SplitMix64 as it is published, in Python's own whole numbers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def signed(x):
    return x - 2**64 if x >= 2**63 else x


integers = st.integers(-(2**63), 2**63 - 1)


@given(integers, integers)
@settings(deadline=None)
def test_the_hash_is_splitmix64(base, part):
    folded = mix(((base & MASK) * 3 + mix(((part & MASK) + GOLDEN) & MASK) + GOLDEN) & MASK)
    key = torch.tensor(base)
    assert random.fold(key, part).item() == signed(folded)
    assert random.fold(key, torch.tensor(part)).item() == signed(folded)
    stream = [signed(mix(((base & MASK) + n * GOLDEN) & MASK)) for n in (1, 2, 3)]
    assert random.bits(key, (3,)).tolist() == stream


def test_the_first_numbers_of_splitmix64_with_seed_0():
    """The published test vector: what the reference generator gives from state 0."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert random.bits(torch.tensor(0), (3,)).tolist() == [signed(x) for x in expected]


def test_numbers_stay_what_they_are():
    """Changing one of these changes every run, clip and table that a seed was noted for."""
    key = random.key(3, "purpose", -1)
    assert key.item() == 7861511075508987093
    assert random.uniform(key, (2,)).tolist() == [0.022874534130096436, 0.5383405089378357]
    assert random.integers(key, 1000, (3,)).tolist() == [720, 815, 929]
    drawn = random.normal(key, (2,), torch.float64)
    assert drawn.tolist() == pytest.approx([-0.15602451654208022, -0.17501862320670927], rel=1e-12)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 24), (torch.float64, 53)])
def test_uniform_numbers_are_uniform(dtype, digits):
    drawn = random.uniform(random.key(1, "uniform"), (200_000,), dtype)
    assert drawn.dtype == dtype
    assert 0 <= drawn.min() < 1e-4
    assert 1 - 1e-4 < drawn.max() < 1
    assert torch.equal((drawn * 2.0**digits).frac(), torch.zeros_like(drawn))
    assert stats.kstest(drawn.double().numpy(), "uniform").pvalue > 0.001
    neighbours = torch.corrcoef(torch.stack((drawn[:-1], drawn[1:])))[0, 1]
    assert abs(neighbours) < 4 / math.sqrt(len(drawn))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_numbers_are_normal(dtype):
    drawn = random.normal(random.key(1, "normal"), (200_000,), dtype)
    assert torch.isfinite(drawn).all()
    assert stats.kstest(drawn.double().numpy(), "norm").pvalue > 0.001
    assert 4 < drawn.abs().max() < 6.5


def test_whole_numbers_are_even_and_in_range():
    drawn = random.integers(random.key(1, "integers"), 7, (70_000,))
    counts = torch.bincount(drawn, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > 0.001


def test_neighbouring_keys_have_nothing_to_do_with_each_other():
    keys = random.key(0, "video", torch.arange(1000))
    drawn = random.normal(keys, (50,))
    assert drawn.shape == (1000, 50)
    correlation = torch.corrcoef(drawn.double())
    correlation.fill_diagonal_(0)
    assert correlation.abs().max() < 0.75
    assert correlation.mean().abs() < 1e-3
    assert drawn.unique().numel() > 49_900


def test_a_key_gives_the_same_whatever_stands_beside_it():
    keys = random.key(5, torch.arange(12).view(3, 4), "x")
    whole = random.uniform(keys, (6, 2))
    assert whole.shape == (3, 4, 6, 2)
    assert torch.equal(random.uniform(keys[1, 2], (6, 2)), whole[1, 2])
    assert torch.equal(random.uniform(keys, (3,)), whole.flatten(2)[..., :3])  # more of a stream begins as less of it
    assert torch.equal(random.key(5, 6, "x"), keys[1, 2])


def test_names_and_the_order_of_parts_matter():
    keys = [random.key(*parts).item() for parts in (("a",), ("b",), ("a", "b"), ("b", "a"), (0,), (0, 0), (1,), (-1,))]
    assert len(set(keys)) == len(keys)
    assert random.stream("a") != random.stream("b")
    assert random.key(2**64 + 5).item() == random.key(5).item()  # any whole number is a seed


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    random.normal(random.key(1), (5,))
    assert torch.equal(torch.rand(2), expected)
