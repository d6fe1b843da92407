import json
import typing
from pathlib import Path

import pytest
import torch

from evaluating import tiny
from loci import checkpoint, presets
from loci.cli import main
from loci.config import Config, TrainConfig, to_dict
from loci.errors import UserError
from loci.evaluate import ablations, networks, phydnet_train
from loci.evaluate.phydnet import PhyDNetConfig
from loci.evaluate.reproduce import NAMES, unsupervised
from loci.worlds.moving_mnist import MovingMnist


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.safetensors"
    checkpoint.save(path, tiny((64, 64)))
    return str(path)


def run(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def test_evaluate_prints_and_saves(network, tmp_path, capsys):
    code, out, _ = run(
        capsys, "evaluate", network, "--on", "moving_mnist", "--count", 2, "--length", 13, "--out", tmp_path / "r"
    )
    assert code == 0
    assert "Moving MNIST in closed loop" in out
    assert "…" not in out.replace("1…T", "")  # no number is cut off
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert {"moving-mnist.md", "moving-mnist.json", "moving-mnist-strip.png", "tracking.md"} <= names
    content = json.loads((tmp_path / "r" / "moving-mnist.json").read_text())
    assert content["facts"]["source"] == "moving_mnist"
    assert content["facts"]["sequences"] == 2
    assert content["facts"]["predicted"] == 3


def test_evaluate_on_files(network, tmp_path, capsys):
    """A folder of images says nothing about objects: what needs no truth is measured, the rest is left out."""
    import cv2

    folder = tmp_path / "images"
    folder.mkdir()
    for t, frame in enumerate(MovingMnist(length=6).clips([0]).frames[0]):
        cv2.imwrite(str(folder / f"{t:03d}.png"), frame.permute(1, 2, 0).numpy())
    code, _out, err = run(capsys, "evaluate", network, "--on", f"images:{folder}", "--out", tmp_path / "r")
    assert code == 0, err
    measures = [row[0] for row in json.loads((tmp_path / "r" / "tracking.json").read_text())["tables"][0]["rows"]]
    assert "L2_object" in measures
    assert "mIoU" not in measures


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evaluate", "nowhere", "--on", "cater"), "nowhere"),
        (("evaluate", "NET", "--on", "catter"), "did you mean 'cater'"),
        (("evaluate", "NET", "--on", "moving_mnist", "--count", "0"), "--count 0"),
        (("evaluate", "NET", "--on", "moving_mnist", "--device", "cuda:77"), "try cpu"),
        (("reproduce", "cater", "--network", "NET", "--count", "1", "--length", "2"), "no head for the snitch"),
        (("reproduce", "ablations-cell"), "say --train"),
        (("reproduce", "ablations-cell", "--train", "--set", "train.stages"), "NAME=VALUE"),
        (("reproduce", "ablations-cell", "--train", "--set", "train.nothing=1"), "no field 'train.nothing'"),
        (("reproduce", "moving-mnist", "--train", "--preset", "nothing"), "no preset 'nothing'"),
        (("reproduce", "moving-mnist", "--network", "NET", "--count", "-1"), "--count -1"),
    ],
)
def test_mistakes_are_named(network, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *(network if word == "NET" else word for word in words))
    assert code == 2
    assert message in err


def test_every_experiment_has_a_name_on_the_command_line():
    from loci.commands.reproduce import Name

    assert typing.get_args(Name) == NAMES


def test_phydnet_is_a_network_too(tmp_path, capsys):
    source = MovingMnist(length=20, size=(32, 32))
    config = PhyDNetConfig(32, 32, channels=8, kernel=3, memory=(8,), groups=4)
    phydnet_train.train(tmp_path / "p", source, phydnet_train.Recipe(updates=1, batch=1), config)
    opened = networks.open_network(tmp_path / "p")
    assert opened.parameters > 0
    with pytest.raises(UserError, match="no slots"):
        opened.loci()
    words = ("evaluate", tmp_path / "p", "--on", "moving_mnist", "--count", 1, "--length", 12, "--out", tmp_path / "r")
    code, _out, err = run(capsys, *words)
    assert code == 0, err
    assert not (tmp_path / "r" / "tracking.md").exists()


def test_training_phydnet_is_a_command_and_gives_a_rival(network, tmp_path, capsys):
    """The real size, one update: the same command then has nothing left to do."""
    words = ("train", "phydnet", "--out", tmp_path / "p", "--updates", 1, "--batch", 1, "--device", "cpu")
    for _ in range(2):
        code, out, err = run(capsys, *words)
        assert code == 0, err
        assert "PhyDNet after 1 updates" in out
    words = ("--rival", tmp_path / "p", "--count", 1, "--length", 12, "--out", tmp_path / "r", "--device", "cpu")
    code, out, err = run(capsys, "reproduce", "moving-mnist", "--network", network, *words)
    assert code == 0, err
    curves = json.loads((tmp_path / "r" / "moving-mnist.json").read_text())["curves"]
    names = ("Loci", "PhyDNet", "black frames")
    assert {f"{name} {kind}" for name in names for kind in ("mse", "ssim")} == set(curves)
    assert all(len(curve) == 2 for curve in curves.values())


def test_unsupervised_codes_are_extracted_once_from_one_network(tmp_path, capsys, monkeypatch):
    from loci.evaluate import cater_readout

    monkeypatch.setattr(cater_readout, "STEPS", 5)
    path, other = tmp_path / "net.safetensors", tmp_path / "other" / "net.safetensors"
    checkpoint.save(path, tiny((32, 32)))
    changed = tiny((32, 32))
    with torch.no_grad():
        changed.decoder.colour.head.first.bias.add_(0.1)
    checkpoint.save(other, changed)
    words = ("reproduce", "cater-unsupervised", "--count", 3, "--length", 4, "--out", tmp_path / "r", "--device", "cpu")
    code, _, err = run(capsys, *words, "--network", path)
    assert code == 0, err
    facts = json.loads((tmp_path / "r" / "cater-unsupervised.json").read_text())["facts"]
    assert facts["network was shown the snitch"] == "no"
    assert facts["clips"] == 1
    monkeypatch.setattr(cater_readout, "extract", lambda *_, **__: pytest.fail("extracted twice"))
    assert run(capsys, *words, "--network", path)[0] == 0
    code, _, err = run(capsys, *words, "--network", other)
    assert code == 2
    assert "was extracted with network" in err


@pytest.mark.parametrize(
    ("name", "head", "more", "reports"),
    [
        ("moving-mnist", False, (), {"moving-mnist"}),
        ("cater", True, ("--length", 6), {"cater", "containment"}),
        ("containment", True, ("--length", 6), {"containment"}),
        ("containment", False, ("--length", 6), {"containment-unsupervised"}),
        ("clevr", False, (), {"clevr"}),
        ("clevrer", False, (), {"clevrer", "clevrer-6-42"}),
        ("lesions", True, ("--length", 3), {"lesions-cater"}),
        ("lesions", False, ("--length", 3), {"lesions-cater"}),
        ("lesions-moving-mnist", False, (), {"lesions-moving-mnist"}),
    ],
)
def test_every_experiment_runs_on_whatever_network_there_is(tmp_path, capsys, monkeypatch, name, head, more, reports):
    from loci.evaluate import cater_readout, clevrer, lesions, moving_mnist

    monkeypatch.setattr(cater_readout, "STEPS", 3)
    monkeypatch.setattr(moving_mnist, "STEPS", 12)
    monkeypatch.setattr(clevrer, "PAPER", clevrer.Protocol("clevrer", 3, 3, marks=(1, 3)))
    monkeypatch.setattr(clevrer, "LATER", clevrer.Protocol("clevrer-6-42", 2, 3, 2, (16, 16), marks=(1, 3)))
    for measure in (lesions.cater, lesions.moving_mnist):
        monkeypatch.setitem(measure.__wrapped__.__kwdefaults__, "levels", (0.0, 0.5))
    monkeypatch.setattr(lesions, "LEVELS", (0.0, 0.5))
    path = tmp_path / "net.safetensors"
    checkpoint.save(path, tiny((64, 64) if "mnist" in name else (32, 32), snitch=head))
    words = ("--network", path, "--count", 1, "--seed", 3, "--device", "cpu", "--out", tmp_path / "r", *more)
    code, out, err = run(capsys, "reproduce", name, *words)
    assert code == 0, err
    assert {file.stem for file in (tmp_path / "r").glob("*.json")} == reports
    for file in (tmp_path / "r").glob("*.json"):
        content = json.loads(file.read_text())
        assert content["tables"]
        assert content["facts"]["network"] == str(path)
        assert content["facts"].get("clips", 1) == 1
    assert ("clips that the read-out learned from" in content["facts"]) == (name == "lesions" and not head)
    assert list((tmp_path / "r").glob("*.png")) or name == "containment"
    assert "saved:" in out


def test_the_codes_of_a_network_that_sees_objects(tmp_path, capsys):
    """The shipped network for digits, which does."""
    words = ("--on", "moving_mnist", "--network", "moving_mnist", "--count", 4, "--device", "cpu", "--out", tmp_path)
    code, _, err = run(capsys, "reproduce", "gestalt", *words)
    assert code == 0, err
    bits = json.loads((tmp_path / "gestalt.json").read_text())["tables"][0]
    assert bits["title"] == "What a Gestalt's numbers carry"


def test_a_runs_folder_also_tells_how_it_learned(tmp_path, capsys):
    run_ = tmp_path / "mine"
    checkpoint.save(run_ / checkpoint.BEST, tiny((64, 64)))
    (run_ / "metrics.jsonl").write_text('{"step": 10, "kind": "held_out", "l2_object": 3.0}\n')
    words = ("--on", "moving_mnist", "--length", 12, "--count", 1, "--device", "cpu", "--out", tmp_path / "r")
    code, _, err = run(capsys, "evaluate", run_, *words)
    assert code == 0, err
    assert (tmp_path / "r" / "learning-curves.png").is_file()
    assert json.loads((tmp_path / "r" / "learning.json").read_text())["facts"]["updates of mine"] == 10


def test_clevr_is_scored_from_the_published_file(network, tmp_path, capsys):
    import test_data_clevr
    import tfrecords

    path = tmp_path / "clevr_with_masks.tfrecords"
    tfrecords.write(path, [test_data_clevr.record(n) for n in range(10)], packed=True)
    words = ("--on", f"clevr:{path}", "--network", network, "--out", tmp_path / "r", "--device", "cpu")
    code, out, err = run(capsys, "reproduce", "clevr", *words)
    assert code == 0, err
    facts = json.loads((tmp_path / "r" / "clevr.json").read_text())["facts"]
    assert facts["images"] == 2
    assert facts["objects"] > 0
    assert "Table 5" in out


@pytest.mark.parametrize("study", ablations.STUDIES)
def test_arms_differ_from_the_first_in_what_they_say(study):
    base = unsupervised(presets.cater())
    arms = ablations.configs(study, base, 600)
    plain = to_dict(next(iter(arms.values()))[1])
    assert len(arms) == len(ablations.STUDIES[study]) > 1
    for arm, config in arms.values():
        assert config.train.total * arm.window == 600
        flat, reference = flattened(to_dict(config)), flattened(plain)
        different = {path for path in flat if flat[path] != reference[path]}
        timing = {"train.updates", "train.foreground", "train.growth", "train.evaluate_every"}
        assert different - timing <= set(arm.changes)
        for path, value in arm.changes.items():
            assert flat[path] == value


def flattened(values, path=""):
    result = {}
    for name, value in values.items():
        result |= flattened(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
    return result


def test_an_ablation_compares_held_out_errors_over_frames(tmp_path):
    trained = []

    def train(config: Config, out: Path):
        out.mkdir(parents=True)
        trained.append(out.name)
        level = 2.0 if config.model.transition.cell == "lstm" else 1.0
        rows = [
            {"step": step, "kind": kind, "l2_object": level * (10 - step / 20)}
            for step in (50, 100)
            for kind in ("train", "held_out")
        ]
        (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    told = []
    base = presets.smoke()
    report = ablations.run("ablations-cell", base, tmp_path, train, frames=100, told=told.append)
    assert trained == ["GateL0RD", "LSTM"]
    assert told == [1, 1]
    assert report.tables[0].rows == (("GateL0RD", 5.0, 5.0, 1.0), ("LSTM", 10.0, 10.0, 2.0))
    assert report.curves["LSTM, x"] == [50, 100]
    ablations.run("ablations-cell", base, tmp_path, train, frames=100, told=told.append)
    assert trained == ["GateL0RD", "LSTM"]
    with pytest.raises(UserError, match="a run of 100 updates, 200 are asked for"):
        ablations.run("ablations-cell", base, tmp_path, train, frames=200, told=told.append)


def test_from_nothing(tmp_path, capsys):
    """With --train both models of the digits' table are trained first, once; the same command then finds them there."""
    words = (
        "--train",
        "--preset",
        "smoke",
        "--set",
        "train.updates=2",
        "train.evaluate_every=0",
        "train.evaluate_clips=1",
    )
    words = ("reproduce", "moving-mnist", *words, "--count", 1, "--length", 12, "--device", "cpu", "--out", tmp_path)
    for said in ("saved:", "is there: using its network"):
        code, out, err = run(capsys, *words)
        assert code == 0, err
        assert said in out
    rows = json.loads((tmp_path / "moving-mnist.json").read_text())["tables"][0]["rows"]
    assert {"Loci", "PhyDNet", "Loci (paper)", "PhyDNet (paper)"} <= {row[0] for row in rows}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"loci", "phydnet"}


def test_an_ablation_from_nothing(tmp_path, capsys):
    words = ("--train", "--preset", "smoke", "--set", "train.evaluate_clips=1", "--frames", 2, "--out", tmp_path)
    code, out, err = run(capsys, "reproduce", "ablations-cell", *words, "--device", "cpu")
    assert code == 0, err
    assert "L2_object at the end" in out
    table = json.loads((tmp_path / "ablations-cell.json").read_text())["tables"][0]
    assert [row[0] for row in table["rows"]] == ["GateL0RD", "LSTM"]
    assert all(row[1] > 0 for row in table["rows"])
    assert (tmp_path / "ablations-cell-curves.png").is_file()


def test_a_window_of_frames_is_counted_as_frames(tmp_path):
    run_ = tmp_path / "run"
    run_.mkdir()
    (run_ / "metrics.jsonl").write_text('{"step": 10, "kind": "held_out", "l2_object": 3.0}\n')
    assert ablations.held_out(run_, 5) == ([50.0], [3.0])


def test_the_unsupervised_run_never_hears_of_the_snitch():
    config = unsupervised(presets.cater())
    assert not config.model.snitch
    assert all(stage.supervision == 0 for stage in config.train.stages)
    assert sum(stage.supervision for stage in presets.cater().train.stages) > 0


def test_reports_know_whether_a_network_was_supervised(tmp_path):
    for name, config in (("with", presets.cater()), ("without", unsupervised(presets.cater()))):
        small = tiny((32, 32), snitch=True)
        checkpoint.save(tmp_path / f"{name}.safetensors", small, run=config)
    assert networks.open_network(tmp_path / "with.safetensors").supervised
    assert not networks.open_network(tmp_path / "without.safetensors").supervised
    assert TrainConfig().total > 0
    assert isinstance(networks.open_network(tmp_path / "with.safetensors").model, torch.nn.Module)
