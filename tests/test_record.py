"""What a run leaves for people survives kills and full disks."""

import errno
import json
import logging
import os

import pytest
import torch

from loci.errors import UserError
from loci.train.record import METRICS, Record


def line(step, kind="train"):
    return json.dumps({"step": step, "kind": kind, "loss": 0.5}) + "\n"


@pytest.mark.parametrize(
    "torn", ['{"step": 3, "ki', "\0\0\0\0\n", "3\n", '{"kind": "train"}\n', '{"step": null}\n', line(3).strip()]
)
def test_a_resumed_run_keeps_the_whole_lines_up_to_its_update(tmp_path, torn):
    (tmp_path / METRICS).write_text(line(1) + line(2) + line(2, "held_out") + line(4) + torn)
    record = Record(tmp_path, 2)
    assert (tmp_path / METRICS).read_text() == line(1) + line(2) + line(2, "held_out")
    record.write(3, {"loss": 1 / 3}, "train")
    record.close()
    assert json.loads((tmp_path / METRICS).read_text().splitlines()[-1]) == {
        "step": 3,
        "kind": "train",
        "loss": 0.333333,
    }
    assert not list(tmp_path.glob(".part-*"))


def test_a_kill_while_lines_are_taken_out_loses_none(tmp_path, monkeypatch):
    before = line(1) + line(2) + line(3)
    (tmp_path / METRICS).write_text(before)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    monkeypatch.setattr("pathlib.Path.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Record(tmp_path, 2)
    assert (tmp_path / METRICS).read_text() == before


def test_a_full_disk_is_told_clearly(tmp_path, monkeypatch, caplog):
    record = Record(tmp_path, 0)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("add_scalar", "add_image", "close"):
        monkeypatch.setattr(record.board, name, full)
    with pytest.raises(UserError, match=r"cannot write to .*: No space left on device; what was saved before"):
        record.write(1, {"loss": 1.0}, "train")
    with pytest.raises(UserError, match="No space left on device"):
        record.picture(1, torch.zeros(3, 4, 4, dtype=torch.uint8))
    with caplog.at_level(logging.WARNING):
        record.close()
    assert "No space left on device" in caplog.text
    monkeypatch.undo()
    record.close()


def test_a_place_that_cannot_be_written_to(tmp_path):
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"cannot write to"):
        Record(tmp_path, 0)
