import gzip
import itertools
import json

import numpy as np
import pytest
from pycocotools import mask as coco

from loci.data.document import LARGEST, choice, find, numbers, read_json, run_lengths, whole_number
from loci.errors import UserError


def masks(count):
    """Any size, any share of ones, speckled or in stretches; among them empty and full ones."""
    rng = np.random.default_rng(3)
    for n in range(count):
        size = tuple(rng.integers(1, 40, 2).tolist())
        mask = rng.random(size) < rng.choice([0, 0.02, 0.5, 0.98, 1])
        if n % 2:
            top, left = rng.integers(0, size[0]), rng.integers(0, size[1])
            mask[top : top + rng.integers(1, 30), left : left + rng.integers(1, 30)] ^= True
        yield mask


def test_run_lengths_against_pycocotools():
    """Its letters, and the same as a list of numbers."""
    for mask in masks(3000):
        code = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
        text = {"size": code["size"], "counts": code["counts"].decode()}
        np.testing.assert_array_equal(run_lengths(text, mask.shape), mask)
        counts = [0] * bool(mask[0, 0]) + [len(list(run)) for _, run in itertools.groupby(mask.T.ravel())]
        listed = {"size": list(mask.shape), "counts": counts}
        np.testing.assert_array_equal(run_lengths(listed, mask.shape), mask)


def test_long_runs():
    """Of a frame as large as they come, whose lengths take several letters."""
    mask = np.zeros((1080, 1920), bool)
    mask[500:900, 3:1900] = True
    code = coco.encode(np.asfortranarray(mask.astype(np.uint8)))
    found = run_lengths({"size": [1080, 1920], "counts": code["counts"].decode()}, (1080, 1920))
    np.testing.assert_array_equal(found, mask)


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ("", "end within a number"),
        ("d", "end within a number"),
        ("!!", "no meaning"),
        ("o" * 30 + "0", "beyond all frames"),
        ("3", "add up"),
        ([], "add up"),
        ([5], "add up"),
        ([7, -1], "add up"),
        ([2**62, 2**62, 2**62, 2**62, 6], "whole number"),
        ([2**61, 2**61, 2**61, 2**61, 2**61, 2**61, 2**61, 2**61, 6], "add up"),
        ([2.0, 4], "whole number"),
        ([True, 5], "whole number"),
    ],
)
def test_run_lengths_that_are_none(counts, complaint):
    with pytest.raises(ValueError, match=complaint):
        run_lengths({"size": [2, 3], "counts": counts}, (2, 3))
    with pytest.raises(ValueError, match="a mask of 3x2 expected"):
        run_lengths({"size": [2, 3], "counts": counts}, (3, 2))


def test_json_plain_and_packed(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x": [1, 2]}))
    assert read_json(path, "numbers") == {"x": [1, 2]}
    packed = tmp_path / "b.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_json(packed, "numbers") == {"x": [1, 2]}
    assert (find(tmp_path, "a"), find(tmp_path, "b"), find(tmp_path, "c")) == (path, packed, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2", b"\x1f\x8bno gzip", b"\xff\xfe\x00", b"[" * 100_000])
def test_json_that_is_none_names_its_file(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json"):
        read_json(path, "numbers")
    with pytest.raises(UserError, match="nowhere"):
        read_json(tmp_path / "nowhere.json", "numbers")


def test_what_is_packed_may_not_burst_memory(tmp_path):
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(LARGEST // 2**24 + 1):
            file.write(bytes(2**24))
    with pytest.raises(UserError, match="holds more than"):
        read_json(path, "numbers")


def test_values():
    np.testing.assert_array_equal(numbers([[1, 2.5]], (-1, 2)), [[1, 2.5]])
    for wrong in ([[1, 2, 3]], [1, 2], [["1", "2"]], [[1, float("nan")]], [[True, False]]):
        with pytest.raises(ValueError, match="expected"):
            numbers(wrong, (-1, 2))
    assert whole_number(7) == 7
    for no in (True, 7.0, "7", None, 2**62):
        with pytest.raises(ValueError, match="whole number"):
            whole_number(no)
    assert choice("b", ("a", "b")) == 1
    with pytest.raises(ValueError, match="one of a, b expected, got 'c'"):
        choice("c", ("a", "b"))
