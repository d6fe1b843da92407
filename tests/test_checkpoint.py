"""Networks on disk."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import loci
from loci import Loci, checkpoint, presets
from loci.checkpoint import Content, DamagedError, landmarks
from loci.config import Config, EncoderConfig
from loci.errors import UserError


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Loci(replace(presets.smoke().model, gestalt=8))


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "net.safetensors"
    checkpoint.save(path, model, step=7, extra={"note": "ä"})
    return path


def rewritten(file, path, tensors=None, **changes):
    """The same file with something else in it, and a digest that says it is whole."""
    content = checkpoint.read(file)
    with safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = content.tensors if tensors is None else tensors
    metadata = {**metadata, **changes}
    metadata["digest"] = checkpoint.digest(tensors, metadata)
    save_file(tensors, path, metadata)
    return path


def test_what_is_saved_comes_back(model, file):
    again = loci.load(file)
    assert not again.training
    assert again.config == model.config
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    content = checkpoint.read(file)
    assert (content.step, content.extra) == (7, {"note": "ä"})
    frame = torch.zeros(1, 3, *again.size)
    assert torch.equal(model.eval().step(frame, model.start())[1].frame, again.step(frame, again.start())[1].frame)


def test_loading_leaves_the_global_random_numbers_alone(file):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    loci.load(file)
    assert torch.equal(torch.rand(3), expected)


def test_a_file_is_readable_by_others_and_nothing_else_is_left(file):
    assert file.stat().st_mode & 0o777 == 0o644
    assert [f.name for f in file.parent.iterdir()] == [file.name]


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_a_changed_byte_is_noticed_wherever_it_is(file, tmp_path_factory, data):
    whole = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    place = data.draw(st.one_of(st.integers(0, header - 1), st.integers(0, len(whole) - 1)))
    flip = data.draw(st.integers(1, 255))
    if header - 8 <= place < header and whole[place] == 0x20:
        return  # padding
    whole[place] ^= flip
    path = tmp_path_factory.mktemp("harmed") / "net.safetensors"
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"net.safetensors"):
        checkpoint.read(path)


@given(st.floats(0, 0.999))
@settings(deadline=None, max_examples=20)
def test_a_file_that_was_cut_off_is_noticed(file, tmp_path_factory, share):
    whole = file.read_bytes()
    path = tmp_path_factory.mktemp("cut") / "net.safetensors"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(DamagedError, match=r"net.safetensors is damaged or cut off"):
        checkpoint.read(path)


def test_sizes_are_compared_before_they_get_memory(file, tmp_path):
    config = json.dumps({"model": {"height": 8192, "width": 8192, "gestalt": 10**9}})
    huge = rewritten(file, tmp_path / "huge.safetensors", config=config)
    with pytest.raises(DamagedError, match=r"do not fit its config: .*background_logit is \(128, 128\), expected"):
        loci.load(huge)


@pytest.mark.parametrize(
    "change",
    [
        {"height": 64},
        {"gestalt": 9},
        {"encoder": EncoderConfig(channels=48, fine_channels=24, layers=1)},
        {"encoder": EncoderConfig(channels=24, fine_channels=12, layers=1)},
        {"encoder": EncoderConfig(channels=24, fine_channels=24, layers=2)},
        {"transition": replace(presets.smoke().model.transition, heads=2)},
        {"transition": replace(presets.smoke().model.transition, layers=2)},
        {"decoder": replace(presets.smoke().model.decoder, channels=12)},
        {"decoder": replace(presets.smoke().model.decoder, layers=3)},
    ],
)
def test_landmarks_show_every_size(model, file, tmp_path, change):
    marks = landmarks(replace(model.config, **change))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert any(shapes.get(name) != shape for name, shape in marks.items())
    assert all(shapes[name] == shape for name, shape in landmarks(model.config).items())


def test_missing_and_left_over_tensors_are_named(model, file, tmp_path):
    tensors = dict(checkpoint.read(file).tensors)
    tensors["decoder.trunk.7.extra"] = tensors.pop("encoder.down.alpha")
    path = rewritten(file, tmp_path / "other.safetensors", tensors)
    with pytest.raises(DamagedError, match=r"encoder.down.alpha is missing; decoder.trunk.7.extra is left over"):
        loci.load(path)


def test_another_format_and_no_format(file, tmp_path):
    with pytest.raises(UserError, match=r"has format 'loci 9'; this version of loci reads 'loci 1'"):
        loci.load(rewritten(file, tmp_path / "later.safetensors", format="loci 9"))
    save_file({"x": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    with pytest.raises(DamagedError, match=r"says no format"):
        loci.load(tmp_path / "foreign.safetensors")


def test_a_config_that_makes_no_sense(file, tmp_path):
    path = rewritten(file, tmp_path / "odd.safetensors", config=json.dumps({"model": {"slotz": 3}}))
    with pytest.raises(DamagedError, match=r"did you mean 'model.slots'"):
        loci.load(path)


def test_a_pickle_is_not_loaded(tmp_path):
    path = tmp_path / "net.pt"
    torch.save({"model": torch.zeros(2)}, path)
    with pytest.raises(DamagedError, match=r"net.pt is damaged or cut off"):
        loci.load(path)


def test_a_name_that_does_not_exist_lists_those_that_do(monkeypatch, file, tmp_path):
    monkeypatch.setattr(checkpoint, "WEIGHTS", file.parent)
    assert loci.load("net").config.gestalt == 8
    with pytest.raises(UserError, match=r"no file, folder or shipped network 'cater'; networks that ship: net"):
        loci.load("cater")
    with pytest.raises(UserError, match=r"is a folder without best.safetensors or checkpoints/"):
        loci.load(tmp_path)


def test_a_run_gives_its_best_network_or_else_its_newest(model, tmp_path):
    for step in (9, 100):
        with torch.no_grad():
            model.seed.sigma.fill_(step)
        extra = {"state/x": torch.zeros(3), "optimiser/y": torch.ones(2)}
        content = Content(Config(model=model.config), step, {}, dict(model.state_dict()) | extra)
        checkpoint.write(tmp_path / "checkpoints" / f"{step:09d}.safetensors", content)
    assert loci.load(tmp_path).seed.sigma.item() == 100
    with torch.no_grad():
        model.seed.sigma.fill_(0.5)
    checkpoint.save(tmp_path / "best.safetensors", model)
    assert loci.load(tmp_path).seed.sigma.item() == 0.5
    assert loci.load(tmp_path / "checkpoints" / "000000009.safetensors").seed.sigma.item() == 9


def test_nothing_not_finite_is_saved(model, tmp_path):
    content = Content(Config(), 0, {}, {"x": torch.tensor([1.0, float("nan")])})
    with pytest.raises(UserError, match=r"x has values that are not finite"):
        checkpoint.write(tmp_path / "bad.safetensors", content)
    assert not list(tmp_path.iterdir())


def test_a_file_is_on_the_disk_before_it_takes_its_name(model, tmp_path, monkeypatch):
    """Data to the disk, then the name, then the folder: else a power cut leaves a name without its data."""
    done, path = [], tmp_path / "net.safetensors"
    fsync, rename = os.fsync, Path.replace

    def note_fsync(handle):
        (target,) = (f for f in (tmp_path, *tmp_path.iterdir()) if os.path.samestat(f.stat(), os.fstat(handle)))
        done.append("folder" if target == tmp_path else f"{target.name}, {target.stat().st_size > 1000}")
        fsync(handle)

    def note_rename(part, target):
        done.append(f"{part.name} -> {Path(target).name}")
        return rename(part, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_rename)
    checkpoint.save(path, model)
    part = f".part-{os.getpid()}-net.safetensors"
    assert done == [f"{part}, True", f"{part} -> net.safetensors", "folder"]


def test_where_nothing_can_be_written(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write"):
        checkpoint.save(tmp_path / "file" / "net.safetensors", model)
