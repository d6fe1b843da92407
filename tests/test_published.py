"""Checkpoints of the published code, through files and the command line."""

import json

import pytest
import torch

import golden
from loci import load, presets
from loci.cli import main
from loci.config import ModelConfig, TransitionConfig
from loci.errors import UserError
from loci.model import Loci
from loci.published import count_published, export_published, import_published, layout, read_published

SHAPES = json.loads((golden.HERE / "cater_state_dict.json").read_text())


def random_state_dict():
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def test_parameters_as_published():
    assert count_published(Loci(presets.cater().model)) == 2_961_118


def test_import_and_export_are_the_identity_bit_for_bit(tmp_path, capsys):
    theirs = random_state_dict()
    torch.save({"model": theirs, "optimizer": {"lr": 1e-4}}, tmp_path / "published.pt")
    assert (
        main(["import", str(tmp_path / "published.pt"), str(tmp_path / "ours.safetensors"), "--preset", "cater"]) == 0
    )
    assert main(["export-published", str(tmp_path / "ours.safetensors"), str(tmp_path / "back.pt")]) == 0
    back = read_published(tmp_path / "back.pt")
    assert set(back) == set(theirs)
    for name, tensor in theirs.items():
        assert back[name].shape == tensor.shape
        assert torch.equal(back[name], tensor), name


def test_every_weight_of_ours_has_a_published_name():
    model = Loci(presets.cater().model)
    places = layout(model).values()
    assert {place.name for place in places} == set(model.state_dict())
    taken = sum(t.numel() for t in export_published(model).values()) - 3 * 240 * 320
    assert taken == sum(t.numel() for t in model.state_dict().values())


def test_sizes_that_no_preset_has(tmp_path, capsys):
    config = ModelConfig(height=64, width=64, resolution="coarse", gestalt=16, transition=TransitionConfig(heads=1))
    torch.save({"model": export_published(Loci(config))}, tmp_path / "small.pt")
    words = ["import", str(tmp_path / "small.pt"), str(tmp_path / "small.safetensors")]
    assert main(words) == 2
    assert "--model.gestalt" in capsys.readouterr().err
    sizes = "--model.height 64 --model.width 64 --model.gestalt 16 --model.transition.heads 1 --model.slots 4"
    assert main([*words, *sizes.split()]) == 0
    again = load(tmp_path / "small.safetensors").config
    assert (again.gestalt, again.slots, again.snitch) == (16, 4, False)
    assert main([*words, "--preset", "caterr"]) == 2
    assert "choose from moving_mnist" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_to(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["export-published", "moving_mnist", str(tmp_path / "file" / "out.pt")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_old_names():
    theirs = random_state_dict()
    old = {
        name.replace("predictor.bottleneck", "predictor.vae").replace("encoder.layers1", "encoder.module.layers1"): t
        for name, t in theirs.items()
    }
    assert set(old) != set(theirs)
    new, same = Loci(presets.cater().model), Loci(presets.cater().model)
    import_published(new, old)
    import_published(same, theirs)
    assert all(torch.equal(a, b) for a, b in zip(new.state_dict().values(), same.state_dict().values(), strict=True))


def test_refusals_name_what_is_wrong(tmp_path):
    theirs = random_state_dict()
    model = Loci(presets.cater().model)
    missing = {name: t for name, t in theirs.items() if name != "decoder.mask_alpha"}
    with pytest.raises(UserError, match=r"missing decoder\.mask_alpha"):
        import_published(model, missing)
    with pytest.raises(UserError, match=r"left over what\.is\.this"):
        import_published(model, {**theirs, "what.is.this": torch.zeros(1)})
    with pytest.raises(UserError, match=r"predictor\.std_alpha has shape \(2,\), expected \(1,\)"):
        import_published(model, {**theirs, "predictor.std_alpha": torch.zeros(2)})
    twice = {**theirs, "encoder.module." + "x": torch.zeros(1), "encoder.x": torch.zeros(1)}
    with pytest.raises(UserError, match=r"two tensors for encoder\.x"):
        import_published(model, twice)
    lstm = Loci(ModelConfig(height=64, width=64, transition=TransitionConfig(cell="lstm")))
    with pytest.raises(UserError, match="no LSTM"):
        export_published(lstm)


def test_files_that_are_not_checkpoints(tmp_path, capsys):
    (tmp_path / "text.pt").write_text("not a checkpoint")
    torch.save({"weights": 1}, tmp_path / "other.pt")
    torch.save({"model": Evil(tmp_path / "touched")}, tmp_path / "evil.pt")
    for name, words in (("text", "safely"), ("other", "no key 'model'"), ("evil", "safely"), ("none", "no such file")):
        assert main(["import", str(tmp_path / f"{name}.pt"), str(tmp_path / "out.safetensors")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()
    assert not (tmp_path / "touched").exists()


class Evil:
    """What would write a file on loading, were it loaded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))
