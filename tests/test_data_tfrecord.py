import gzip
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as tensorboards_crc

import tfrecords
from loci.data.checksum import crc32c, masked_crc32c
from loci.data.example import parse_example
from loci.data.tfrecord import TfRecords
from loci.errors import UserError

BOTH = pytest.mark.parametrize("packed", [False, True])


def test_crc32c_of_known_data():
    assert crc32c(b"123456789") == 0xE3069283  # the catalogue's check value
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [0, 1, 8, 1023, 1024, 1025, 4096, 70001])
def test_crc32c_against_the_slow_one_and_tensorboards(size):
    data = np.random.default_rng(size).bytes(size)
    assert masked_crc32c(data) == tfrecords.masked(data)
    assert masked_crc32c(data) == tensorboards_crc(data)


@BOTH
def test_any_record_in_any_order(tmp_path, packed):
    records = [os.urandom(n) for n in (5, 0, 3000, 70000, 1)]
    file = TfRecords(tfrecords.write(tmp_path / "x", records, packed))
    for n in (3, 0, 4, 1, 1, 2, 4):
        assert file[n] == records[n]
    assert file.count() == 5
    assert file[0] == records[0]
    with pytest.raises(UserError, match=r"no record 5: .* there are 5"):
        file[5]
    with pytest.raises(UserError, match="no record -1"):
        file[-1]


def test_ways_back_are_short(tmp_path, monkeypatch):
    """With states kept every 200 bytes, going back reads less than the whole file again."""
    records = [bytes([n]) * 100 for n in range(50)]
    file = TfRecords(tfrecords.write(tmp_path / "x", records, packed=True))
    monkeypatch.setattr(type(file._cursor), "spacing", 200)
    assert file.count() == 50
    assert len(file._marks) > 20
    passed = []
    real = file._passed
    monkeypatch.setattr(file, "_passed", lambda length: (passed.append(length), real(length)))
    for n in (40, 3, 49, 20):
        assert file[n] == records[n]
    assert len(passed) <= 4 * 3


def test_gzip_in_several_members(tmp_path):
    """As written by tools that compress piece by piece; a member may end within a record."""
    raw = tfrecords.framed([b"a" * 100, b"b" * 200])
    path = tmp_path / "x"
    path.write_bytes(b"".join(gzip.compress(raw[n : n + 70]) for n in range(0, len(raw), 70)))
    assert TfRecords(path).count() == 2
    assert TfRecords(path)[1] == b"b" * 200


@BOTH
def test_cut_anywhere(tmp_path, packed):
    """Every cut is either at a record's end (plain files only) or an error that says which record is broken."""
    records = [b"first" * 3, b"second" * 3]
    whole = tfrecords.write(tmp_path / "x", records, packed).read_bytes()
    ends = {0, 16 + 15, 16 + 15 + 16 + 18}
    for cut in range(len(whole)):
        path = tmp_path / "cut"
        path.write_bytes(whole[:cut])
        if cut == 0 or (cut in ends and not packed):
            assert TfRecords(path).count() == sorted(ends).index(cut)
            continue
        with pytest.raises(UserError, match=r"cut|damaged|no TFRecord|cut off"):
            TfRecords(path).count()


def test_the_records_before_a_cut_can_be_read(tmp_path):
    path = tfrecords.write(tmp_path / "x", [b"first" * 3, b"second" * 3])
    path.write_bytes(path.read_bytes()[:-6])
    file = TfRecords(path)
    with pytest.raises(UserError, match=r"record 1 cannot be read: its data is cut off; the 1 before it .* limit=1"):
        file.count()
    assert file[0] == b"first" * 3
    with pytest.raises(UserError, match="record 1 cannot be read: its data is cut off"):
        file[1]
    assert file[0] == b"first" * 3


def test_a_flipped_bit_is_found(tmp_path):
    path = tfrecords.write(tmp_path / "x", [b"first" * 3, b"second" * 3, b"third" * 3])
    raw = bytearray(path.read_bytes())
    raw[31 + 12 + 4] ^= 1
    path.write_bytes(raw)
    file = TfRecords(path)
    with pytest.raises(UserError, match="record 1 is damaged: its checksum is wrong"):
        file[1]
    assert file[2] == b"third" * 3


def test_a_length_beyond_reason_is_refused_before_memory_is_taken(tmp_path):
    length = struct.pack("<Q", 2**40)
    path = tmp_path / "x"
    path.write_bytes(length + struct.pack("<I", tfrecords.masked(length)) + b"x")
    with pytest.raises(UserError, match=r"claims 1099511627776 bytes"):
        TfRecords(path)[0]


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        TfRecords(tmp_path / "nowhere")
    path = tmp_path / "x"
    path.write_bytes(b"no records here, really")
    with pytest.raises(UserError, match="no TFRecord file"):
        TfRecords(path)
    path.write_bytes(b"")
    assert TfRecords(path).count() == 0


@settings(max_examples=80, deadline=None)
@given(st.data(), st.booleans())
def test_damaged_files_give_what_was_written_or_an_error(tmp_path_factory, data, packed):
    records = [b"first" * 3, b"", b"third" * 5]
    path = tfrecords.write(tmp_path_factory.mktemp("fuzz") / "x", records, packed)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    for n in range(3):
        try:
            assert TfRecords(path)[n] == records[n]
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017


FEATURES = st.one_of(
    st.lists(st.binary(max_size=5), min_size=1),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1).map(np.float32),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1).map(np.int64),
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text("abc/é", min_size=1), FEATURES))
def test_examples_against_googles_writer(features):
    parsed = parse_example(tfrecords.example(**features))
    assert parsed.keys() == features.keys()
    for name, values in features.items():
        if isinstance(values, list):
            assert parsed[name].bytes_list() == values
        else:
            found = parsed[name].floats() if values.dtype == np.float32 else parsed[name].ints()
            np.testing.assert_array_equal(found, values)


def test_rows_of_equal_length():
    values = np.random.default_rng(0).integers(0, 256, (1000, 3), np.uint8)
    feature = parse_example(tfrecords.example(image=[bytes(v) for v in values]))["image"]
    np.testing.assert_array_equal(feature.rows(), values)
    long = parse_example(tfrecords.example(image=[b"x" * 300, b"y" * 300]))["image"]
    assert long.rows().shape == (2, 300)
    uneven = parse_example(tfrecords.example(image=[b"ab", b"abc", b"a"]))["image"]
    with pytest.raises(ValueError, match="same number of bytes"):
        uneven.rows()
    assert parse_example(tfrecords.example(image=[b"", b""]))["image"].rows().shape == (2, 0)


def test_unpacked_numbers():
    """Writers may store each number as a field of its own."""
    floats = b"".join(b"\x0d" + struct.pack("<f", x) for x in (1.5, -2.0))
    ints = b"\x08\x05\x08\xac\x02"

    def wrapped(*pieces):
        data = b""
        for tag, piece in pieces:
            data += bytes([tag, len(piece)]) + piece
        return data

    def entry(name, tag, values):
        return wrapped((0x0A, name), (0x12, wrapped((tag, values))))

    parsed = parse_example(wrapped((0x0A, wrapped((0x0A, entry(b"f", 0x12, floats)), (0x0A, entry(b"i", 0x1A, ints))))))
    assert parsed["f"].floats().tolist() == [1.5, -2.0]
    assert parsed["i"].ints().tolist() == [5, 300]
    with pytest.raises(ValueError, match="list of bytes, not of floats"):
        parsed["f"].bytes_list()


def test_numbers_that_never_end():
    """In a packed list, and where the parser reads tags and lengths."""
    raw = tfrecords.example(x=np.int64([2**62, 2**62]))
    good = raw[raw.index(b"\x80") :]
    assert len(good) == 18
    endless = raw[: -len(good)] + b"\x80" * 17 + b"\x01"
    with pytest.raises(ValueError, match="more than ten bytes"):
        parse_example(endless)["x"].ints()
    with pytest.raises(ValueError, match="more than ten bytes"):
        parse_example(b"\xff" * 20)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_examples_are_read_or_refused(data):
    raw = bytearray(tfrecords.example(image=[b"ab", b"cd"], x=np.float32([1, 2]), shape=np.int64([3, 400])))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        for feature in parse_example(bytes(raw)).values():
            {"bytes": feature.rows, "floats": feature.floats, "ints": feature.ints}[feature.kind]()
            if feature.kind == "bytes":
                feature.bytes_list()
    except ValueError as error:
        assert str(error)  # noqa: PT017
