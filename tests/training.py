"""Small training runs in processes of their own, forked from a server that has everything imported."""

import io
import json
import multiprocessing
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import torch

from loci import checkpoint, presets
from loci.config import Stage
from loci.errors import UserError
from loci.train import loop
from loci.train.fast import FastStep
from loci.train.run import begin, resume
from loci.worlds.moving_mnist import MovingMnist

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["training", "torch._dynamo", "torch.utils.tensorboard.writer"])


def tiny(length=24, batch=2, **train):
    config = presets.smoke()
    model = replace(config.model, gestalt=8, bootstrap=1, slots=2)
    data = replace(config.data, batch=batch, length=4)
    quick = {"log_every": 1, "save_every": 5, "evaluate_every": 0, "picture_every": 0, "evaluate_clips": 2}
    quick |= {"foreground": 6, "growth": 30.0}
    train = replace(config.train, stages=(Stage(length, rate=1e-3),), **(quick | train))
    return replace(config, model=model, data=data, train=train)


def work(verb, out, config, told, environment, limit):
    """In the child: train, leaving what was said in `told` and the exit code of the command line."""
    torch.set_num_threads(1)
    os.environ.update(environment)
    rehearsed = []
    if "REHEARSE" in environment:  # the fast path's motions without a GPU

        def rehearse(*args, **kwargs):
            rehearsed.append(FastStep(*args, **kwargs, rehearse=True))
            return rehearsed[-1]

        loop.FastStep = rehearse
    if limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    text = io.StringIO()
    try:
        outcome = begin(config, out) if verb == "begin" else resume(out, config)
        text.write(outcome.reason)
        code = 0
    except UserError as error:
        text.write(str(error))
        code = 2
    except RuntimeError as error:
        text.write(f"{type(error).__name__}: {error}")
        code = 1
    text.write("".join(f" {len(step.recordings)} recordings, off: {step.off}" for step in rehearsed))
    Path(told).write_text(text.getvalue())
    os._exit(code)


def start(verb, out, config=None, told=None, environment=None, limit=None):
    told = told or Path(out).with_suffix(".told")
    child = SERVER.Process(target=work, args=(verb, str(out), config, str(told), environment or {}, limit))
    child.start()
    return child


def finish(child, seconds=60):
    child.join(seconds)
    if child.exitcode is None:
        child.kill()
        raise AssertionError("the process hangs")
    return child.exitcode


def updates_logged(out):
    path = Path(out) / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def metrics(out):
    """Every line, but for what is about time."""
    lines = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    timing = ("seconds", "updates_per_second", "waiting")
    return [{k: v for k, v in line.items() if k not in timing} for line in lines]


def final(out):
    """The newest checkpoint's tensors and place."""
    content = checkpoint.read(checkpoint.checkpoints(Path(out))[0])
    place = {k: v for k, v in content.extra["place"].items() if k != "elapsed"}
    return content.tensors, place


def assert_same(ours, theirs, least=300):
    assert ours[1] == theirs[1]
    assert ours[0].keys() == theirs[0].keys()
    assert len(ours[0]) > least
    for name, tensor in ours[0].items():
        assert torch.equal(tensor, theirs[0][name]), name


def several(count):
    """Environments as torchrun makes them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


MovingMnist(size=(32, 32), length=2).clips([0])  # so that the server's children have the digits already
