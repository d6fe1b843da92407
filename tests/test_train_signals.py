"""SIGTERM and Ctrl-C, with the real command."""

import os
import signal
import subprocess
import sys
import time

import pytest

import training
from loci import checkpoint, cli
from loci.train import run as running

COMMAND = [sys.executable, "-m", "loci", "train"]
WORDS = [
    "smoke",
    "--model.gestalt",
    "8",
    "--model.bootstrap",
    "1",
    "--data.batch",
    "2",
    "--data.length",
    "4",
    "--train.updates",
    "100000",
    "--train.log-every",
    "1",
    "--train.save-every",
    "1000",
    "--train.evaluate-every",
    "0",
    "--train.picture-every",
    "0",
]


def launch(words):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("signals") / "run"


def test_sigterm_then_ctrl_c_save_and_say_how_to_go_on(run):
    """One after the other on the same run, to spare starts."""
    for number, code, words in (
        (signal.SIGTERM, 0, [*WORDS, "--out", str(run)]),
        (signal.SIGINT, 130, ["--resume", str(run)]),
    ):
        before = training.updates_logged(run)
        process = launch(words)
        training.wait_for(lambda: training.updates_logged(run) > before + 2, 120)  # noqa: B023
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == code
        assert f"loci train --resume {run}" in said
        done = int(checkpoint.checkpoints(run)[0].stem)
        assert done == training.updates_logged(run) > before
        assert f"after {done} updates, all of it saved" in said


def test_a_signal_is_heard_while_the_first_frames_are_being_made(tmp_path):
    """301 frames of CATER for sixteen videos take minutes on a CPU."""
    out = tmp_path / "run"
    process = launch(["cater", "--out", str(out)])
    training.wait_for((out / "tensorboard").exists, 120)
    time.sleep(0.5)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert time.monotonic() - begun < 20
    assert process.returncode == 0
    assert f"asked to end after 0 updates, all of it saved; go on with: loci train --resume {out}" in said
    assert [file.stem for file in checkpoint.checkpoints(out)] == ["000000000"]


def test_sigterm_before_anything_was_begun(monkeypatch, capsys, tmp_path):
    def begin(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setattr(running, "begin", begin)
    assert cli.main(["train", *WORDS, "--out", str(tmp_path / "run")]) == 0
    assert "nothing is lost; begin again with the same command" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_program_ends_though_a_thread_is_busy():
    code = (
        "import sys, threading, time, loci.cli\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "loci.cli.main = lambda: print('done') or 3\n"
        "loci.cli.run()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40)
    assert (ended.returncode, ended.stdout) == (3, "done\n")


def train_with_slow_saves(out, told):
    """In the child: all checkpoints but the first take a minute."""
    from loci.train import checkpoint as saving

    write, calls = saving.write, []

    def slow(path, content):
        calls.append(path)
        if len(calls) > 1:
            path.with_name(".part-1-half").write_bytes(b"half")
            told.write_text("saving")
            time.sleep(60)
        write(path, content)

    saving.write = slow
    training.work("begin", str(out), training.tiny(10_000, save_every=10_000), str(told) + ".end", {}, None)


def test_a_second_ctrl_c_leaves_at_once_with_the_last_checkpoint_whole(tmp_path):
    out, told = tmp_path / "run", tmp_path / "told"
    child = training.SERVER.Process(target=train_with_slow_saves, args=(out, told))
    child.start()
    training.wait_for(lambda: training.updates_logged(out) > 2)
    os.kill(child.pid, signal.SIGINT)
    training.wait_for(told.exists)
    begun = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    assert training.finish(child, 30) == 130
    assert time.monotonic() - begun < 10
    assert [file.stem for file in checkpoint.checkpoints(out)] == ["000000000"]
    assert checkpoint.read(checkpoint.checkpoints(out)[0]).step == 0
    config = training.tiny(10_000, save_every=10_000, updates=12)
    assert training.finish(training.start("resume", out, config)) == 0
    assert not list(out.rglob(".part-*"))
