from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from loci import checkpoint, cli, presets
from loci.commands import demo
from loci.model import Loci
from loci.track.demo import Play, Watched
from loci.worlds.moving_mnist import MovingMnist


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Two untrained networks in place of those that ship, and shorter clips."""
    for name in demo.PARTS:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = Loci(replace(presets.smoke().model, slots=2))
        with torch.no_grad():
            model.compose.background_logit.fill_(-4.0)
        checkpoint.save(tmp_path / "weights" / f"{name}.safetensors", model)
    monkeypatch.setattr(checkpoint, "WEIGHTS", tmp_path / "weights")
    world = MovingMnist(split="test", length=8)
    monkeypatch.setattr(demo, "parts", lambda clip: [Play(name, world, clip, 10) for name in demo.PARTS])


def test_the_demo_tracks_scores_and_shows(shipped, tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "demo")]) == 0
    said = capsys.readouterr().out
    for word in ("MOTA", "IDF1", "HOTA", "FG-ARI", "position error", "found again", "report.html"):
        assert word in said
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["cater", "moving_mnist", "report.html"]
    for name in demo.PARTS:
        assert (tmp_path / "demo" / name / f"{name}.mp4").is_file()
        assert (tmp_path / "demo" / name / "tracks.csv").is_file()
    text = (tmp_path / "demo" / "report.html").read_text()
    assert text.count("data:video/mp4;base64,") == 2
    assert text.count("MOTA") == 2


def test_a_network_that_does_not_ship_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoint, "WEIGHTS", tmp_path)
    assert cli.main(["demo", "--out", str(tmp_path / "demo")]) == 2
    assert "no network ships for moving_mnist and cater" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


def test_a_tracker_that_knows_the_truth_scores_full_marks():
    clip = MovingMnist(split="test", length=12).clips([3])
    labels = torch.zeros(12, 64, 64, dtype=torch.uint8)
    for n in range(2):
        labels[clip.visible[0, :, n]] = n + 1
    watched = Watched(SimpleNamespace(slots=3, facts=SimpleNamespace(size=(64, 64))))
    for t in range(12):
        places = (clip.position[0, t].numpy() + 1) / 2 * 63
        watched.add(
            SimpleNamespace(slots=np.array([0, 1]), seen=np.ones(2, bool), labels=labels[t].numpy(), positions=places)
        )
    rows = {row.name: row.value for row in watched.score(clip)}
    assert rows["MOTA"] == rows["IDF1"] == rows["HOTA"] == rows["FG-ARI"] == "100.0%"
    assert rows["position error, seen"].startswith("0.0 pixels")
    assert rows["objects' frames held by no slot"] == "0"
