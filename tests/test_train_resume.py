"""Nothing is lost: a run that is killed at any moment goes on as if nothing had happened."""

import json
import logging
import math
import os
import random
import shutil
import signal
import time
from dataclasses import replace

import pytest
import torch

import loci
import training
from loci import checkpoint
from loci.errors import UserError
from loci.train.checkpoint import newest
from loci.train.run import begin, check_change, resume

LENGTH = 45


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    assert training.finish(training.start("begin", out, training.tiny(LENGTH, evaluate_every=20))) == 0
    return out


@pytest.fixture
def run(undisturbed, tmp_path):
    """A copy to do harm to."""
    return shutil.copytree(undisturbed, tmp_path / "copy")


def test_ten_kills_change_nothing(undisturbed, tmp_path):
    out, config, dice = tmp_path / "run", training.tiny(LENGTH, evaluate_every=20), random.Random(7)
    begun, kills = False, 0
    while kills < 10:
        child = training.start("resume" if begun else "begin", out, None if begun else config)
        if not begun:
            training.wait_for(lambda: checkpoint.checkpoints(out))
            begun = True
        first = training.updates_logged(out)
        training.wait_for(lambda: training.updates_logged(out) != first)  # noqa: B023
        time.sleep(dice.uniform(0, 0.15))
        assert child.is_alive(), "the run was over before it had been killed ten times"
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
    assert training.finish(training.start("resume", out)) == 0
    training.assert_same(training.final(out), training.final(undisturbed))
    assert training.metrics(out) == training.metrics(undisturbed)
    assert not list(out.rglob(".part-*"))
    ours, theirs = (loci.load(run).state_dict() for run in (out, undisturbed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_checkpoints_hold_everything_and_three_are_kept(undisturbed):
    files = checkpoint.checkpoints(undisturbed)
    assert [int(file.stem) for file in files] == [45, 40, 35]
    assert (undisturbed / "best.safetensors").exists()
    tensors, place = training.final(undisturbed)
    assert place["update"] == LENGTH
    assert (place["sequence"], place["cursor"]) == (11, 1)
    assert {name.split("/")[0] for name in tensors if "/" in name} == {"optimiser", "state", "meter"}
    assert "state/cells/0/traces/weight" in tensors
    assert [line["step"] for line in training.metrics(undisturbed) if line["kind"] == "held_out"] == [20, 40, 45]


def test_the_newest_is_damaged(run, undisturbed, caplog):
    first, second, _ = checkpoint.checkpoints(run)
    whole = bytearray(first.read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    config = whole.index(b'"config"')
    places = {
        "length of the header": 2,
        "header": 20,
        "metadata, a name": config + 3,
        "metadata, a value": whole.index(b'"step"') + 9,
        "metadata, the format": whole.index(b"loci 1") + 1,
        "metadata, the digest": whole.index(b'"digest"') + 14,
        "a tensor's name": whole.index(b"encoder.down") + 2,
        "the first tensor": header + 1,
        "a tensor in the middle": (header + len(whole)) // 2,
        "the last byte": len(whole) - 1,
    }
    assert newest(run)[0] == first
    for what, place in places.items():
        harmed = bytearray(whole)
        harmed[place] ^= 0x11
        first.write_bytes(harmed)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            assert newest(run)[0] == second, what
        assert first.name in caplog.text, what
    for size in (0, 4, 8, header // 2, header, header + 1000, len(whole) - 1):
        first.write_bytes(whole[:size])
        assert newest(run)[0] == second, size
    assert training.finish(training.start("resume", run)) == 0
    training.assert_same(training.final(run), training.final(undisturbed))


def test_all_are_damaged(run):
    for file in checkpoint.checkpoints(run):
        file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"all 3 checkpoints in .* are damaged"):
        resume(run)


def test_nothing_to_resume(tmp_path):
    with pytest.raises(UserError, match=r"has no checkpoints"):
        resume(tmp_path)


def test_a_full_disk_leaves_the_earlier_ones(run):
    before = {file.name: file.read_bytes() for file in checkpoint.checkpoints(run)}
    content = newest(run)[1]
    longer = replace(content.config, train=replace(content.config.train, updates=70))
    limit = len(before["000000045.safetensors"]) // 2
    assert training.finish(training.start("resume", run, longer, limit=limit)) == 2
    told = run.with_suffix(".told").read_text()
    assert "000000050.safetensors: the file is larger than the limit" in told
    assert "as it was" in told
    assert {file.name: file.read_bytes() for file in checkpoint.checkpoints(run)} == before
    assert not list(run.rglob(".part-*"))


def test_metrics_that_find_no_room_end_the_run_and_harm_nothing(run):
    before = {file.name: file.read_bytes() for file in checkpoint.checkpoints(run)}
    content = newest(run)[1]
    longer = replace(content.config, train=replace(content.config.train, updates=70, save_every=1000))
    limit = (run / "metrics.jsonl").stat().st_size + 700
    assert training.finish(training.start("resume", run, longer, limit=limit)) == 2
    assert f"cannot write to {run}: File too large; what was saved before" in run.with_suffix(".told").read_text()
    assert {file.name: file.read_bytes() for file in checkpoint.checkpoints(run)} == before
    assert resume(run, replace(longer, train=replace(longer.train, updates=50))).updates == 50
    steps = [line["step"] for line in training.metrics(run) if line["kind"] == "train"]
    assert steps == list(range(1, 51))


RECIPES = {
    "lstm": {"model.transition.cell": "lstm"},
    "bptt": {"model.transition.credit": "bptt", "train.window": 2},
    "no credit": {"model.transition.credit": "bptt", "model.transition.cell": "lstm"},
    "no regularisers": {"loss.position": 0.0, "loss.object": 0.0, "loss.time": 0.0},
    "blind": {"model.zeroed": ["error", "own_mask"], "model.search.invisible": True, "model.search.guided": False},
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_goes_on_bit_for_bit(name, tmp_path):
    from loci.evaluate.ablations import changed

    config = changed(training.tiny(11), RECIPES[name])
    begin(config, tmp_path / "whole")
    begin(replace(config, train=replace(config.train, updates=6)), tmp_path / "parts")
    resume(tmp_path / "parts", config)
    training.assert_same(training.final(tmp_path / "parts"), training.final(tmp_path / "whole"), 150)
    assert training.metrics(tmp_path / "parts") == training.metrics(tmp_path / "whole")


def test_a_run_may_become_longer(run):
    content = newest(run)[1]
    longer = replace(content.config, train=replace(content.config.train, updates=50, log_every=3))
    outcome = resume(run, longer)
    assert (outcome.reason, outcome.updates) == ("finished", 50)
    assert resume(run).updates == 50, "a finished run has nothing to do"


def test_another_run_is_refused(undisturbed):
    old = newest(undisturbed)[1].config
    other = replace(
        old,
        model=replace(old.model, slots=5),
        data=replace(old.data, batch=4),
        train=replace(old.train, save_every=1, minutes=5.0),
    )
    with pytest.raises(UserError, match=r"would be another run") as caught:
        check_change(old, other, 45)
    assert "model.slots: 2 in the run, 5 now" in str(caught.value)
    assert "data.batch: 2 in the run, 4 now" in str(caught.value)
    assert "save_every" not in str(caught.value)
    stages = (replace(old.train.stages[0], updates=LENGTH + 1),)
    check_change(old, replace(old, train=replace(old.train, stages=stages)), 45)
    with pytest.raises(UserError, match=r"45 updates already"):
        check_change(old, replace(old, train=replace(old.train, updates=44)), 45)


def test_a_folder_with_a_run_is_not_overwritten(undisturbed):
    with pytest.raises(UserError, match=r"already holds a run"):
        begin(training.tiny(), undisturbed)


def test_what_is_not_finite_stops_the_run_and_is_never_saved(tmp_path, monkeypatch):
    from loci.train import step

    count = [0]
    clean = step.loss_terms

    def terms(*arguments, **more):
        given = clean(*arguments, **more)
        count[0] += 1
        return given._replace(reconstruction=given.reconstruction * math.nan) if count[0] > 7 else given

    monkeypatch.setattr(step, "loss_terms", terms)
    outcome = begin(training.tiny(40, patience=6), tmp_path / "run")
    assert (outcome.reason, outcome.updates) == ("not finite", 13)
    assert outcome.metrics["dropped"] == 6
    dump = json.loads((tmp_path / "run" / "not_finite.json").read_text())
    assert (dump["seed"], dump["update"], dump["sequence"], dump["clips"]) == (0, 13, 3, [6, 7])
    path, content = newest(tmp_path / "run")
    assert path.name == "000000005.safetensors", "the one before the first update that was left out"
    assert all(torch.isfinite(t).all() for t in content.tensors.values() if t.is_floating_point())
    monkeypatch.setattr(step, "loss_terms", clean)
    assert resume(tmp_path / "run").reason == "finished"
