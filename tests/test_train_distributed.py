"""Several processes give what one gives, over gloo on the CPU."""

import os
import re
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace

import pytest
import torch

import training
from loci import checkpoint
from loci.errors import UserError
from loci.train import processes
from loci.train.processes import LostError, Processes, choose_device, together

LENGTH = 20
SHIFT = "encoder.position_head.1.second.bias"
"""Its second number shifts all scores of a softmax alike: its gradient is rounding alone, which Adam enlarges."""


def config(length=LENGTH, **train):
    return training.tiny(length, batch=4, precision="float64", save_every=10, clip=0.5, **train)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = tmp_path_factory.mktemp("alone") / "run"
    assert training.finish(training.start("begin", out, config(evaluate_every=10))) == 0
    return out


def start_two(verb, out, chosen, **environment):
    places = [place | environment for place in training.several(2)]
    return [training.start(verb, out, chosen, f"{out}.{i}.told", place) for i, place in enumerate(places)]


def assert_close(out, alone):
    ours, place = training.final(out)
    theirs, end = training.final(alone)
    assert (place["update"], place["sequence"], place["cursor"]) == (LENGTH, end["sequence"], end["cursor"])
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        if "/" not in name or name.startswith("state/"):
            expected = theirs[name]
            if name == SHIFT:
                assert (tensor[1] - expected[1]).abs() < 1e-4
                expected = torch.cat((expected[:1], tensor[1:2], expected[2:]))
            torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6, msg=lambda m: f"{name}: {m}")  # noqa: B023


def test_two_processes_learn_what_one_does_and_one_goes_on(alone, tmp_path):
    out = tmp_path / "run"
    for child in start_two("begin", out, config(10, evaluate_every=10)):
        assert training.finish(child, 120) == 0
    assert [file.stem for file in checkpoint.checkpoints(out)] == ["000000010", "000000000"]
    kept = out.with_name("kept")
    kept.mkdir()
    os.system(f"cp -r {out}/. {kept}")
    # On with one process, and from the same place with two.
    assert training.finish(training.start("resume", out, config(evaluate_every=10))) == 0
    assert_close(out, alone)
    for child in start_two("resume", kept, config(evaluate_every=10)):
        assert training.finish(child, 120) == 0
    assert_close(kept, alone)
    ours, theirs = training.metrics(kept), training.metrics(alone)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for line, other in zip(ours, theirs, strict=True):
        assert line.pop("kind") == other.pop("kind")
        assert line == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_the_fast_path_with_two_processes_and_resume_learns_what_one_plain_one_does(alone, tmp_path):
    out = tmp_path / "run"
    for verb, length in (("begin", 10), ("resume", LENGTH)):
        for child in start_two(verb, out, config(length, evaluate_every=10), REHEARSE="yes"):
            assert training.finish(child, 120) == 0
        for rank in range(2):
            told = (tmp_path / f"run.{rank}.told").read_text()
            recordings = int(re.search(r"(\d+) recordings, off: None", told)[1])
            assert recordings
    assert_close(out, alone)


def test_two_processes_go_on_with_what_one_began(alone, tmp_path):
    out = tmp_path / "run"
    assert training.finish(training.start("begin", out, config(10, evaluate_every=10))) == 0
    for child in start_two("resume", out, config(evaluate_every=10)):
        assert training.finish(child, 120) == 0
    assert_close(out, alone)


def test_torchrun_and_a_process_that_dies(tmp_path):
    out = tmp_path / "run"
    words = (
        "-m loci train smoke --model.gestalt 8 --model.bootstrap 1 --data.batch 2 --data.length 4 --train.log-every 1"
    )
    more = ["--train.updates", "100000", "--train.evaluate-every", "0", "--train.picture-every", "0", "--out", str(out)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*command, *words.split(), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    training.wait_for(lambda: training.updates_logged(out) > 2 or process.poll() is not None, 200)
    assert process.poll() is None, process.communicate()[1]
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    assert len(workers) == 2
    begun = time.monotonic()
    os.kill(int(workers[-1]), signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - begun < 60
    assert process.returncode != 0
    assert "Signal 9" in said or "exitcode  : -9" in said or "most likely because another one has ended" in said


def test_a_lost_process_is_noticed_without_torchrun(tmp_path):
    out = tmp_path / "run"
    children = start_two("begin", out, replace(config(100_000)))
    training.wait_for(lambda: training.updates_logged(out) > 1, 120)
    os.kill(children[1].pid, signal.SIGKILL)
    begun = time.monotonic()
    assert training.finish(children[0], 60) == 1
    assert time.monotonic() - begun < 60
    told = (tmp_path / "run.0.told").read_text()
    assert "process 0 of 2" in told
    assert "most likely because another one has ended" in told
    assert "--resume" in told


@pytest.mark.parametrize("ends", ["well", "with an error", "without another"])
def test_the_wrapped_learner_goes_before_its_group(ends, monkeypatch):
    """Were it the last to hold the group, both would wait for each other for ever."""
    learners = []

    class Learner:
        pass

    def work(_):
        learner = Learner()
        learner.itself = learner  # as modules hold each other
        learners.append(weakref.ref(learner))
        if ends == "with an error":
            raise UserError("the disk is full")
        if ends == "without another":
            raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer")
        return 3

    alive = []
    monkeypatch.setattr(processes, "meet", lambda _: Processes(0, 2, torch.device("cpu")))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: alive.append(learners[0]()))
    if ends == "well":
        assert together("cpu", work) == 3
    elif ends == "with an error":
        with pytest.raises(UserError, match="the disk is full"):
            together("cpu", work)
    else:
        with pytest.raises(LostError, match="most likely because another one has ended"):
            together("cpu", work)
    assert alive == [None]


def test_an_error_of_its_own_is_not_blamed_on_others(monkeypatch):
    def work(_):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(processes, "meet", lambda _: Processes(0, 2, torch.device("cpu")))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        together("cpu", work)


def test_an_environment_that_does_not_say_where_the_others_are(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UserError, match="torchrun --nproc-per-node 2"):
        processes.meet("cpu")


def test_batches_are_shared_evenly():
    cpu = torch.device("cpu")
    assert [list(Processes(rank, 3, cpu).entries(6)) for rank in range(3)] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(UserError, match=r"data.batch is 5, which 3 processes"):
        Processes(0, 3, cpu).entries(5)


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:99" if not torch.cuda.is_available() else "xla"])
def test_devices_that_are_not_here(name):
    with pytest.raises(UserError, match=r"train.device is"):
        choose_device(name, 0)
