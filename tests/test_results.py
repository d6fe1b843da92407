import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from evaluating import tiny
from loci import checkpoint, presets
from loci.evaluate import ablations
from loci.evaluate.report import Report, Table
from loci.evaluate.reproduce import NAMES

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def results(monkeypatch, tmp_path):
    """The script, with page and networks of its own."""
    monkeypatch.syspath_prepend(str(BENCH))
    module = importlib.import_module("results")
    for name, path in (("PAGE", "results.md"), ("KEPT", "kept"), ("WEIGHTS", "weights")):
        monkeypatch.setattr(module, name, tmp_path / path)
    (tmp_path / "weights").mkdir()
    return module


def ship(results, name, **more):
    checkpoint.save(results.WEIGHTS / f"{name}.safetensors", tiny((64, 64), **more))


def saying(report):
    """A command line that saves a report whatever it is told, but for experiments that fail."""
    heard = []

    def loci(words):
        heard.append(words)
        report.save(Path(words[words.index("--out") + 1]))
        return 0 if words[1] == "clevr" or words[0] == "evaluate" else 2

    return heard, loci


def clevr():
    picture = torch.zeros(4, 4, 3, dtype=torch.uint8).numpy()
    return Report("clevr", {"images": 2}, (Table("Numbers", ("a",), ((0.5,),)),), {"masks": picture})


def test_the_page_changes_between_markers_alone(results):
    page = results.replaced("# Results\n\nWords.\n", "cater", "first")
    page = results.replaced(page, "clevr", "other") + "\nMore words.\n"
    changed = results.replaced(page, "cater", "second")
    assert changed == page.replace("first", "second")
    assert changed.index("second") < changed.index("other") < changed.index("More words.")
    with pytest.raises(ValueError, match="has no"):
        results.replaced("<!-- results:cater -->\n", "cater", "x")


def test_the_page_is_made_of_what_the_commands_save(results, tmp_path, monkeypatch, capsys):
    heard, loci = saying(clevr())
    monkeypatch.setattr(results, "loci", loci)
    ship(results, "cater")
    assert (
        results.main(["clevr", "moving-mnist", "--share", "0.01", "--out", str(tmp_path / "out"), "--device", "cpu"])
        == 0
    )
    assert heard[0][:6] == ["reproduce", "clevr", "--network", "cater", "--count", "10"]
    assert len(heard) == 1
    page = (tmp_path / "results.md").read_text()
    digest = results.shipped_digest("cater")
    assert "`loci reproduce clevr --network cater --count 10`: 10 asked for, " in page
    assert f"network cater ({digest[:12]})" in page
    assert "minutes on " in page
    assert "##### Numbers" in page
    assert "![masks](kept/clevr/clevr-masks.png)" in page
    assert (tmp_path / "kept" / "clevr" / "clevr-masks.png").is_file()
    assert json.loads((tmp_path / "kept" / "clevr" / "tables.json").read_text())["facts"] == {"clevr": {"images": 2}}
    assert "moving-mnist: passed over, no network moving_mnist ships" in capsys.readouterr().out
    assert "Not the network that ships" not in page


def test_what_fails_leaves_the_page_as_it_was(results, tmp_path, monkeypatch, capsys):
    _, loci = saying(clevr())
    monkeypatch.setattr(results, "loci", loci)
    ship(results, "cater")
    assert results.main(["lesions", "--out", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "results.md").exists()
    assert "lesions: failed" in capsys.readouterr().out


def test_the_supervised_table_needs_a_network_with_a_head(results, tmp_path, monkeypatch, capsys):
    heard, loci = saying(clevr())
    monkeypatch.setattr(results, "loci", loci)
    ship(results, "cater")
    assert results.main(["cater", "--out", str(tmp_path / "out")]) == 0
    assert not heard
    assert "cater has no head for the snitch" in capsys.readouterr().out
    ship(results, "cater_supervised", snitch=True)
    results.main(["cater", "--out", str(tmp_path / "out")])
    assert heard[0][:4] == ["reproduce", "cater", "--network", "cater_supervised"]


def test_the_table_with_phydnet_needs_its_run(results, tmp_path, monkeypatch, capsys):
    heard, loci = saying(clevr())
    monkeypatch.setattr(results, "loci", loci)
    monkeypatch.chdir(tmp_path)
    ship(results, "moving_mnist")
    assert results.main(["phydnet", "--out", str(tmp_path / "out")]) == 0
    assert not heard
    assert "there is no runs/phydnet: loci train phydnet --out runs/phydnet" in capsys.readouterr().out
    (tmp_path / "runs" / "phydnet").mkdir(parents=True)
    results.main(["phydnet", "--out", str(tmp_path / "out")])
    assert heard[0][:6] == ["reproduce", "moving-mnist", "--rival", "runs/phydnet", "--network", "moving_mnist"]


def brought(results, tmp_path, digest, more=()):
    """A zip as the other machine leaves it."""
    spread = Table(
        "Over the seeds", ("metric", "whose", "mean"), (("Top 1 (%)", "ours", 91.5), ("L1 (grid)", "ours", 0.2))
    )
    folder = tmp_path / "made"
    Report("cater", {"clips": 4}, (spread,)).save(folder)
    how = results.about(["reproduce", "cater", "--count", "4"], 4, 90.0, "cater_supervised", digest)
    (folder / "about.json").write_text(json.dumps({**how, "device": "A GPU"}))
    path = tmp_path / "cater.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
        for name in more:
            archive.writestr(name, "x")
    return path


def test_what_another_machine_measured_is_taken(results, tmp_path):
    ship(results, "cater_supervised", snitch=True)
    path = brought(results, tmp_path, results.shipped_digest("cater_supervised"))
    assert results.main(["--take", str(path), "--out", str(tmp_path / "out")]) == 0
    page = (tmp_path / "results.md").read_text()
    assert "4 asked for, 1.5 minutes on A GPU" in page
    assert "| CATER world, supervised: Top 1 (%) | ≥ 90.7 | 91.5 | yes | | 4 | 1.5, A GPU |" in page
    assert "| CATER world, supervised: L1 (grid) | ≤ 0.14 | 0.2 | no | | 4 | 1.5, A GPU |" in page
    assert "| CATER world, unsupervised: Top 1 (%) | ≥ 78.4 | not measured | | | | |" in page
    assert "Not the network that ships" not in page


def test_another_network_than_the_one_that_ships_is_said_to_be_another(results, tmp_path):
    ship(results, "cater_supervised", snitch=True)
    assert results.main(["--take", str(brought(results, tmp_path, "0123")), "--out", str(tmp_path / "out")]) == 0
    assert "**Not the network that ships under this name.**" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize("name", ["../evil.md", "sub/page.md", "run.py"])
def test_a_zip_with_anything_else_is_refused(results, tmp_path, name):
    path = brought(results, tmp_path, "0123", more=[name])
    with pytest.raises(ValueError, match="no table and no picture"):
        results.main(["--take", str(path), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "results.md").exists()


def test_every_result_is_a_command_that_exists(results):
    for run in results.RUNS:
        kind, name, *_ = run.command("NET", 1.0)
        assert kind in ("evaluate", "reproduce")
        assert name in (NAMES if kind == "reproduce" else ["NET"])
        assert (run.counted == "--frames") == (name in ablations.STUDIES)


def test_every_target_is_a_block(results):
    targets = importlib.import_module("results_targets").TARGETS
    assert {target.block for target in targets} <= {run.name for run in results.RUNS}
    assert len(targets) == 17


MISSING = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""
BARE = (
    """
MODULES = ("av", "tyro", "pycocotools", "motmetrics")
"""
    + MISSING
    + """
sys.path.insert(0, sys.argv.pop(1))
import gpu_evaluate
from loci.evaluate import cater_readout

cater_readout.STEPS = 20
sys.exit(gpu_evaluate.main())
"""
)


COMMANDS = (
    """
MODULES = ("av", "pycocotools", "motmetrics")
"""
    + MISSING
    + """
from loci.cli import main

for words in sys.argv[2:]:
    print("code", main(words.split()), flush=True)
"""
)


def bare(tmp_path, *words, script=BARE):
    """The script where PyAV, tyro, pycocotools and motmetrics are missing."""
    path = tmp_path / "bare.py"
    path.write_text(script)
    environment = {"OUT": str(tmp_path / "out"), "PYTHONPATH": str(BENCH.parent / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(path), str(BENCH), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_a_bare_machine_evaluates_and_the_page_takes_it(results, tmp_path):
    path = tmp_path / "moving_mnist.safetensors"
    checkpoint.save(path, tiny((64, 64)))
    done = bare(tmp_path, path, "moving-mnist", "digits-tracked", "--count", 2, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert "| moving_mnist | mean over 1…T |" in done.stdout
    packed = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in packed] == ["digits-tracked.zip", "moving-mnist.zip"]
    assert results.main(["--take", *map(str, packed), "--out", str(tmp_path / "taken")]) == 0
    page = (tmp_path / "results.md").read_text()
    assert "`loci reproduce moving-mnist --network moving_mnist --count 2`" in page
    assert "`loci evaluate moving_mnist --on moving_mnist --count 2`" in page
    assert "FG-ARI (frames without overlap)" in page
    assert page.count("Moving MNIST in closed loop, MSE") == 1  # the other block has tracking alone
    row = next(line for line in page.splitlines() if "Moving MNIST MSE, mean to T=100" in line)
    ours, reached, black = (cell.strip() for cell in row.split("|")[3:6])
    assert reached == ("yes" if float(ours) <= 221.2 else "no")
    assert 100 < float(black) < 300


def test_the_commands_run_without_what_they_do_not_need(tmp_path):
    """And say what is missing where it is needed."""
    path = tmp_path / "net.safetensors"
    checkpoint.save(path, tiny((64, 64)))
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_bytes(b"a video, perhaps")
    digits = f"--count 1 --length 12 --device cpu --out {tmp_path / 'r'}"
    scenes = f"--count 1 --length 4 --device cpu --out {tmp_path / 'r'}"
    done = bare(
        tmp_path,
        f"evaluate {path} --on moving_mnist {digits}",
        f"reproduce moving-mnist --network {path} {digits}",
        f"evaluate {path} --on cater {scenes}",
        f"evaluate {path} --on video:{tmp_path / 'videos'}",
        script=COMMANDS,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("code")] == [
        *(["code 0"] * 3),
        "code 2",
    ], done.stderr
    assert "videos are read by av, which is not installed: pip install av" in done.stderr


def test_a_bare_machine_trains_the_read_out_within_its_time(results, tmp_path):
    """A budget of nothing: every part still does one batch, and says how many clips that was."""
    path = tmp_path / "cater.safetensors"
    checkpoint.save(path, tiny((32, 32)), run=presets.smoke())
    done = bare(tmp_path, path, "cater-unsupervised", "--count", 5, "--length", 30, "--batch", 1, "--budget", 0)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "out" / "cater-unsupervised.zip") as archive:
        names = archive.namelist()
        facts = json.loads(archive.read("cater-unsupervised.json"))["facts"]
    assert facts["clips"] == 1
    assert facts["clips that the read-out learned from"] == 1
    assert not [name for name in names if name.endswith(".safetensors")]
    assert {"about.json", "containment-unsupervised.md"} <= set(names)


def test_a_run_of_training_gives_its_curves(results, tmp_path):
    run = tmp_path / "mine"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 10, "kind": "held_out", "l2_object": 3.0}\n')
    done = bare(tmp_path, run, "learning")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "out" / "learning.zip") as archive:
        assert set(archive.namelist()) == {"learning.md", "learning.json", "learning-curves.png"}


def test_what_fails_is_said_and_the_rest_goes_on(results, tmp_path):
    path = tmp_path / "net.safetensors"
    checkpoint.save(path, tiny((64, 64)))
    done = bare(tmp_path, path, "cater", "digits-tracked", "--count", 1, "--device", "cpu")
    assert done.returncode == 1
    assert "no head for the snitch" in done.stderr
    assert (tmp_path / "out" / "digits-tracked.zip").is_file()


def test_a_digest_tells_networks_apart(results):
    ship(results, "cater")
    first = results.shipped_digest("cater")
    ship(results, "cater", snitch=True)
    assert first
    assert first != results.shipped_digest("cater")
    assert results.shipped_digest("none") == ""
