import json
import math

import pytest

from loci.errors import UserError
from loci.evaluate import learning


@pytest.fixture
def run(tmp_path):
    """Ten training lines, one every 100 updates and six seconds, and two held-out ones between them."""
    folder = tmp_path / "mine"
    folder.mkdir()
    lines = [{"step": n, "kind": "train", "position": 1 / n, "seconds": n * 0.06} for n in range(100, 1001, 100)]
    lines += [{"step": n, "kind": "held_out", "squared_error": 10.0 / n, "visible": 0.0} for n in (250, 1000)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 1100, "kind": "tra')
    return folder


def test_held_out_scores_have_the_minutes_of_the_training_around_them(run):
    curves = learning.read(run)
    assert set(curves) == {("train", "position"), ("held_out", "squared_error"), ("held_out", "visible")}
    curve = curves["held_out", "squared_error"]
    assert curve.updates == (250, 1000)
    assert curve.minutes == pytest.approx((0.25, 1.0))
    assert curve.values == (0.04, 0.01)
    assert curves["train", "position"].at(0.1) == pytest.approx(1 / 100)
    assert curves["train", "position"].at(1) == pytest.approx(1 / 1000)


def test_the_report_has_updates_minutes_and_pictures(run):
    report = learning.report({"mine": run})
    assert report.facts == {"updates of mine": 1000, "minutes of mine": pytest.approx(1.0)}
    rows = {row[1]: row[2:] for row in report.tables[0].rows}
    assert report.tables[0].header == ("run", "measure", "first", "at 10%", "at 50%", "at 100%")
    assert rows["train position"] == pytest.approx((1 / 100, 1 / 100, 1 / 500, 1 / 1000))
    assert rows["held_out squared_error"] == (0.04, 0.04, 0.04, 0.01)
    assert report.curves["mine held_out squared_error values"] == [0.04, 0.01]
    both = learning.report({"mine": run, "again": run}).pictures["curves"]
    assert both.shape == report.pictures["curves"].shape
    assert (both != report.pictures["curves"]).any()


def test_a_run_without_a_clock_has_no_minutes(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 10, "kind": "held_out", "l2_object": 3.0}\n')
    curve = learning.read(tmp_path)["held_out", "l2_object"]
    assert math.isnan(curve.minutes[0])
    assert learning.report({"r": tmp_path}).tables[0].rows == (("r", "held_out l2_object", 3, 3, 3, 3),)


def test_folders_that_are_no_runs(tmp_path):
    with pytest.raises(UserError, match="no run's folder"):
        learning.read(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="nothing in it yet"):
        learning.read(tmp_path)
