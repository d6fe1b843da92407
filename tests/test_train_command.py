"""`loci train`, in this process."""

import json
import re
import time
from dataclasses import replace

import pytest
import torch

import loci
import training
from loci import checkpoint, cli, presets
from loci.commands import train
from loci.commands.train_display import Display, duration, line
from loci.config import Config, Stage, TransitionConfig
from loci.data.clip import Clip
from loci.errors import UserError
from loci.model import Loci
from loci.train.feed import Feed, open_data, snitch_position
from loci.train.footage import first_video
from loci.train.loop import Trainer
from loci.train.processes import Processes
from loci.train.scene import Scene, named_scene, still_scene
from loci.worlds.moving_mnist import MovingMnist

TINY = [
    "smoke",
    "--model.gestalt",
    "8",
    "--model.bootstrap",
    "1",
    "--data.batch",
    "2",
    "--data.length",
    "3",
    "--train.log-every",
    "2",
    "--train.evaluate-every",
    "4",
    "--train.picture-every",
    "4",
    "--train.evaluate-clips",
    "2",
    "--train.updates",
    "6",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("command") / "run"
    assert cli.main(["train", *TINY, "--out", str(out)]) == 0
    return out


def test_what_a_run_leaves(run):
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["gestalt"] == 8
    lines = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(entry["step"], entry["kind"]) for entry in lines] == [
        (2, "train"),
        (4, "train"),
        (4, "held_out"),
        (6, "train"),
        (6, "held_out"),
    ]
    terms = {"loss", "reconstruction", "position", "object", "time", "supervision", "l2_object", "visible", "gates"}
    assert terms | {"gradient", "dropped", "rate"} <= lines[0].keys()
    assert {"updates_per_second", "waiting"} <= lines[3].keys()
    assert {"reconstruction", "l2_object", "squared_error"} <= lines[2].keys()
    assert (run / "pictures" / "000000004.png").stat().st_size > 500
    assert list((run / "tensorboard").iterdir())
    best = min((entry for entry in lines if entry["kind"] == "held_out"), key=lambda entry: entry["l2_object"])
    assert checkpoint.read(run / "best.safetensors").step == best["step"]
    assert loci.load(run).config.gestalt == 8


def test_tensorboard_has_scalars_and_a_picture(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tensorboard"))
    board.Reload()
    tags = board.Tags()
    assert {"train/loss", "train/visible", "train/gates", "held_out/l2_object"} <= set(tags["scalars"])
    assert [event.step for event in board.Scalars("train/loss")] == [2, 4, 6]
    assert tags["images"] == ["held_out"]


def test_resume_by_command_and_what_it_refuses(run, capsys):
    assert cli.main(["train", "--resume", str(run), "--train.updates", "8"]) == 0
    assert "finished after 8 updates" in capsys.readouterr().out
    assert cli.main(["train", "--resume", str(run), "--loss.time", "4"]) == 2
    assert "loss.time: 0.1 in the run, 4.0 now" in capsys.readouterr().err
    assert cli.main(["train", "--resume", str(run), "--out", "elsewhere"]) == 2
    assert cli.main(["train", "smoke", "--resume", str(run)]) == 2
    assert cli.main(["train", *TINY, "--out", str(run)]) == 2
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["smok", "--out", "x"], "did you mean 'smoke'"),
        (["smoke"], "loci train smoke --out RUN"),
        ([], "say what to train: one of moving_mnist"),
        (["--resume"], "--resume needs the folder"),
        (["--resume", "/nowhere"], "has no checkpoints"),
        (["smoke", "--train.minuts", "3", "--out", "x"], "--train.minutes"),
        (["smoke", "--train.seed", "x", "--out", "x"], "--train.seed"),
        (["smoke", "--train.window", "2", "--out", "x"], "train.window is 2 with e-prop"),
        (["smoke", "--train.device", "tpu", "--out", "x"], "train.device is 'tpu'"),
        (["smoke", "--data.source", "movi", "--out", "x"], "--data.path PATH"),
        (["smoke", "--data.source", "moving_mnits", "--out", "x"], "moving_mnist"),
        (["smoke", "--data.options", "digits=x", "--out", "x"], "data.options digits=x: a value of another kind"),
        (["smoke", "--data.options", "seed=3", "--out", "x"], "use --train.seed"),
        (["smoke", "--data.options", "digit=3", "--out", "x"], "did you mean 'digits'"),
        (["smoke", "--data.background", "none.png", "--out", "x"], "none.png cannot be read"),
        (["SMOKE", "--out", "x"], "did you mean 'smoke'"),
        (["none.json", "--out", "x"], "none.json cannot be read as a config: No such file"),
        (["smoke", "--train.seed", str(10**30), "--out", "x"], "64 bits"),
        (["smoke", "--train.stages.0.rate", "1e38", "--out", "x"], "100 at most"),
        (["video", "--out", "x"], "--data.path PATH"),
        (["video", "--data.path", "/nowhere.mp4", "--out", "x"], "no file or folder '/nowhere.mp4'"),
    ],
)
def test_mistakes_end_with_2_and_a_way_out(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(["train", *words])
    except SystemExit as error:
        code = error.code
    captured = capsys.readouterr()
    assert code == 2
    assert said in captured.err + captured.out
    assert not list(tmp_path.glob("x/checkpoints/*"))


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["--out", "x", "smoke"], ["smoke", "--out", "x"]),
        (["--dry-run", "smoke"], ["smoke", "--dry-run"]),
        (["smoke", "--out=x", "--model.snitch", "true"], ["smoke", "--out", "x", "--model.snitch"]),
        (["smoke", "--out", "x", "--train.fast=False"], ["smoke", "--out", "x", "--train.no-fast"]),
        (["smoke", "--out", "x", "--train.log_every", "3"], ["smoke", "--out", "x", "--train.log-every", "3"]),
    ],
)
def test_other_ways_to_say_the_same(words, same, monkeypatch):
    """Options before the preset, with an equals sign, with true and false, with underscores."""
    told = []
    monkeypatch.setattr(train, "_train", lambda *asked: told.append(asked) or 0)
    monkeypatch.setattr(train, "_rehearse", lambda *asked: told.append(asked) or 0)
    assert cli.main(["train", *words]) == cli.main(["train", *same]) == 0
    assert told[0] == told[1]


def test_resume_with_an_equals_sign_and_a_run_from_a_file(run, tmp_path, capsys):
    assert cli.main(["train", f"--resume={run}", "--train.updates=1"]) == 2
    assert "updates already" in capsys.readouterr().err
    stages = [{"updates": 1, "rate": 0.001}, {"updates": 2, "rate": 0.0001, "final": 0.5}]
    values = json.loads((run / "config.json").read_text())
    values["train"] |= {"stages": stages, "updates": None}
    (tmp_path / "mine.json").write_text(json.dumps(values))
    out = tmp_path / "again"
    assert cli.main(["train", str(tmp_path / "mine.json"), "--out", str(out), "--train.seed", "5"]) == 0
    told = json.loads((out / "config.json").read_text())
    assert (told["train"]["seed"], len(told["train"]["stages"])) == (5, 2)
    assert checkpoint.checkpoints(out)[0].stem == "000000003"


def test_a_start_that_fails_is_no_run_yet(tmp_path, capsys):
    """What is wrong with the data shows with the first frames; the same command, put right, begins."""
    out, more = str(tmp_path / "run"), ["--train.stages.0.supervision", "0.1", "--model.snitch"]
    assert cli.main(["train", *TINY, *more, "--out", out]) == 2
    assert "supervision needs labels" in capsys.readouterr().err
    assert cli.main(["train", *TINY, "--train.updates", "1", "--out", out]) == 0


def test_frames_that_are_not_there_in_time_are_not_waited_for():
    class Slow(Few):
        def clips(self, indices, **more):
            time.sleep(0.6)
            return super().clips(indices, **more)

    slow = feed(Slow())
    slow.scene = Scene(torch.zeros(3, 32, 32, dtype=torch.uint8))
    begun = time.monotonic()
    assert not slow.ready(0, lambda: True)
    assert time.monotonic() - begun < 0.5
    assert slow.ready(0, lambda: False)
    assert slow.get(0).frames.shape[0] == 4
    assert slow.waited > 0.5
    slow.close()


def test_one_of_several_processes_writes_the_learned_background(tmp_path, monkeypatch):
    from loci.train import scene

    monkeypatch.setattr(scene, "pretrain", lambda *_, **__: None)
    config = training.tiny(2)
    config = replace(config, data=replace(config.data, background="learned"))
    named_scene(config, MovingMnist(size=(32, 32), length=16), tmp_path, torch.device("cpu"), writes=False)
    assert not list(tmp_path.iterdir())


def test_dry_run_says_what_it_would_take_and_leaves_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *TINY, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert '"gestalt": 8' in said
    count = sum(p.numel() for p in Loci(replace(presets.smoke().model, gestalt=8)).parameters())
    assert f"{count:,}" in said
    assert re.search(r"stage 1: \d+ ms an update", said)
    assert re.search(r"6 updates would take about \d+ seconds on cpu", said)
    assert not list(tmp_path.iterdir())


def test_smoke_halves_its_loss_within_a_minute(tmp_path):
    """A minute of one core's time, which is less than what is asked for: a minute on two."""
    begun, seen = time.process_time(), []

    def tell(update, metrics):
        if metrics is not None:
            seen.append((time.process_time() - begun, metrics["loss"]))

    config = presets.smoke()
    train = replace(config.train, log_every=1, evaluate_every=0, picture_every=0, save_every=1000, updates=400)
    from loci.train.run import begin

    begin(replace(config, train=train), tmp_path / "run", tell)
    recent = [sum(loss for _, loss in seen[i - 20 : i]) / 20 for i in range(20, len(seen))]
    assert min(recent) < seen[0][1] / 2
    assert seen[-1][0] < 60


def test_training_as_a_library(tmp_path):
    outcome = loci.train(training.tiny(3), tmp_path / "run")
    assert (outcome.reason, outcome.updates) == ("finished", 3)
    assert isinstance(loci.load(outcome.out), Loci)


def test_stages_from_coarse_to_fine_are_one_run(tmp_path):
    config = training.tiny(evaluate_every=4)
    stages = (Stage(5, "coarse", 1e-3), Stage(4, "fine", 1e-4))
    model = replace(config.model, height=32, width=32)
    data = replace(config.data, source="aquarium", length=3)
    config = replace(config, model=model, data=data, train=replace(config.train, stages=stages))
    config = replace(config, data=replace(data, source="moving_mnist", options=("digits=1",)))
    model = replace(model, height=128, width=128)
    config = replace(config, model=model)
    outcome = loci.train(config, tmp_path / "run")
    # A sequence has 3 updates here: the coarse stage ends with its second one.
    assert outcome.updates == 9
    content = checkpoint.read(checkpoint.checkpoints(tmp_path / "run")[0])
    assert content.config.model.resolution == "fine"
    assert content.extra["resolution"] == "coarse"
    counts = content.extra["place"]["counts"]
    assert (counts["network"], counts["fine"]) == (9, 3)
    assert loci.load(tmp_path / "run").size == (128, 128)
    longer = replace(config, train=replace(config.train, updates=11))
    from loci.train.run import resume

    assert resume(tmp_path / "run", longer).updates == 11


@pytest.mark.parametrize(
    ("bootstrap", "window", "plan"),
    [
        (0, 1, [[0], [1], [2]]),
        (2, 1, [[-1], [-1], [0], [1], [2]]),
        (2, 3, [[-1, -1, 0], [1, 2]]),
        (1, 9, [[-1, 0, 1, 2]]),
    ],
)
def test_every_frame_is_an_update_after_those_on_the_first(bootstrap, window, plan):
    config = training.tiny()
    model = replace(config.model, bootstrap=bootstrap, transition=TransitionConfig(1, 1, credit="bptt"))
    config = replace(config, model=model, train=replace(config.train, window=window))
    trainer = Trainer(config, Processes(0, 1, torch.device("cpu")))
    trainer.close()
    assert trainer.updates() == plan


def test_the_best_network_is_the_best_of_its_own_size(tmp_path, monkeypatch):
    """Errors of coarse and fine frames cannot be compared: the fine ones begin anew, though they are larger here."""
    from loci.train import loop

    errors = {"coarse": iter([0.1, 0.2]), "fine": iter([0.5, 0.3, 0.4])}

    def measured(model, *_):
        return torch.tensor([1, next(errors[model.config.resolution]), 1, 1, 1, 1], dtype=torch.float64)

    monkeypatch.setattr(loop, "evaluate", measured)
    config = training.tiny(evaluate_every=3, foreground=0)
    stages = (Stage(6, "coarse", 1e-3), Stage(9, "fine", 1e-4))
    model = replace(config.model, height=128, width=128)
    data = replace(config.data, length=3)
    loci.train(replace(config, model=model, data=data, train=replace(config.train, stages=stages)), tmp_path / "run")
    best = checkpoint.read(tmp_path / "run" / "best.safetensors")
    assert (best.step, best.config.model.resolution, best.extra["held_out"]["l2_object"]) == (12, "fine", 0.3)


# What a person sees


def test_a_line_of_metrics():
    metrics = {"loss": 0.5, "reconstruction": 0.4, "position": 0.1, "object": 0.0, "time": 0.2, "supervision": 0.0,
               "l2_object": 0.01, "visible": 1.5, "gates": 0.25, "dropped": 0.0, "waiting": 0.04}  # fmt: skip
    said = line(metrics)
    assert "loss 0.5" in said
    assert "object 0" not in said.split("L2_object")[0]
    assert "visible slots 1.50" in said
    assert "gates open 25%" in said
    assert "waiting for data 4%" in said
    assert "dropped" not in said
    assert "3 dropped" in line({"dropped": 3.0})


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 seconds"), (600, "10.0 minutes"), (36_000, "10.0 hours"), (864_000, "10.0 days")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_the_display_says_how_long_it_will_take(capsys):
    with Display(100) as display:
        display(10, None)
        time.sleep(0.01)
        display(20, {"dropped": 0.0})
    said = capsys.readouterr().err
    assert said.startswith("20/100")
    assert "updates/s" in said
    assert "left" in said


def test_time_left_is_what_the_clock_or_the_updates_leave():
    for seconds, said in ((None, "9.8 minutes left"), (3600, "9.8 minutes left"), (250, "4.1 minutes left")):
        display = Display(1000, seconds, quiet=True)
        display.begun = (10, 0.0)
        assert display._pace(20, 6.0).endswith(said)
    assert Display(1000, 5, quiet=True)._pace(3, 1.0) == ""
    late = Display(1000, 5, quiet=True)
    late.begun = (0, 0.0)
    assert late._pace(1, 9.0).endswith("0 seconds left")


# What it learns from


def feed(source, **changes):
    data = replace(Config().data, batch=4, **changes)
    return Feed(source, data, seed=3, entries=range(4), device=torch.device("cpu"), snitch=False)


class Few:
    """Five clips of different brightness."""

    size, length, names = (32, 32), 2, {}

    def __len__(self):
        return 5

    def clips(self, indices, *, labels=True, device="cpu"):
        level = torch.tensor(list(indices), dtype=torch.uint8)[:, None, None, None, None]
        return Clip(level.expand(-1, 2, 3, 32, 32).contiguous(), index=torch.tensor(list(indices)))


def test_a_folder_is_shown_in_rounds_each_in_a_new_order():
    few = feed(Few())
    shown = [index for sequence in range(25) for index in few.indices(sequence)]
    rounds = [tuple(shown[i : i + 5]) for i in range(0, 100, 5)]
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in rounds)
    assert len(set(rounds)) > 5
    first = feed(Few(), clips=2)
    assert set(first.indices(0) + first.indices(1)) == {0, 1}


def test_an_endless_world_never_repeats_and_processes_share_it():
    world = MovingMnist(size=(32, 32), length=2)
    whole = feed(world)
    assert whole.indices(0) + whole.indices(1) == list(range(8))
    part = Feed(world, whole_data(), seed=3, entries=range(2, 4), device=torch.device("cpu"), snitch=False)
    assert torch.equal(part.get(1).frames, whole.get(1).frames[2:])
    whole.close()
    part.close()


def whole_data():
    return replace(Config().data, batch=4)


def test_the_next_batch_is_made_meanwhile():
    few = feed(Few())
    few.scene = Scene(torch.zeros(3, 32, 32, dtype=torch.uint8))
    few.get(0)
    assert list(few.ahead) == [1]
    few.ahead[1].result()
    waited = few.waited
    few.get(1)
    assert few.waited - waited < 0.05
    few.close()


def test_a_source_without_background_gets_one_from_its_frames(tmp_path):
    class Street(Few):
        def clips(self, indices, *, labels=True, device="cpu"):
            frames = torch.full((len(indices), 20, 3, 32, 32), 90, dtype=torch.uint8)
            for entry, n in enumerate(indices):
                for t in range(20):
                    frames[entry, t, :, 4:9, (5 * n + t) % 28 : (5 * n + t) % 28 + 4] = 250
            return Clip(frames, index=torch.tensor(list(indices)))

    scene = still_scene(Street(), 5, tmp_path)
    background = scene.background(torch.zeros(2, 7, 3, 32, 32, dtype=torch.uint8))
    assert background.shape == (2, 1, 3, 32, 32)
    assert (background.int() - 90).abs().max() < 20
    assert (tmp_path / "background.png").exists()


def test_a_moving_background_is_learned_first_and_read_again(tmp_path):
    config = training.tiny(2, background_updates=3)
    config = replace(config, data=replace(config.data, background="learned"))
    loci.train(config, tmp_path / "run")
    (file,) = (tmp_path / "run").glob("background_*.safetensors")
    assert file.name == "background_32x32.safetensors"
    before = file.stat().st_mtime_ns
    from loci.train.run import resume

    longer = replace(config, train=replace(config.train, updates=4))
    assert resume(tmp_path / "run", longer).updates == 4
    assert file.stat().st_mtime_ns == before


def test_a_moving_background_looks_at_no_more_than_it_learns_from(tmp_path, monkeypatch):
    asked = []

    class Counted(MovingMnist):
        def clips(self, indices, **more):
            asked.extend(indices)
            return super().clips(indices, **more)

    from loci.train import scene

    monkeypatch.setattr(scene, "pretrain", lambda *_, **__: None)
    config = training.tiny(2, background_updates=100)
    config = replace(config, data=replace(config.data, background="learned"))
    named_scene(config, Counted(size=(32, 32), length=16), tmp_path, torch.device("cpu"))
    assert asked == list(range(50))  # 100 updates of 8 frames each


def test_where_the_snitch_is():
    class Cater(Few):
        names = {"shape": ("cube", "spl", "cone")}  # noqa: RUF012

    position = torch.arange(12.0).view(1, 2, 3, 2)
    clip = Clip(torch.zeros(1, 2, 3, 4, 4), position=position, attributes={"shape": torch.tensor([[0, 2, 1]])})
    assert torch.equal(snitch_position(clip, Cater()), position[:, :, 2])
    with pytest.raises(UserError, match="supervision needs labels"):
        snitch_position(Clip(clip.frames), Few())


def test_options_reach_the_source():
    config = training.tiny()
    config = replace(config, data=replace(config.data, options=("digits=3", "protocol=box")))
    source = open_data(config, "train", (64, 64))
    assert (source.digits, source.protocol, source.length) == (3, "box", 4)


# Footage


def test_the_first_video_of_a_folder(tmp_path):
    for name in ("b.mp4", "a.avi", "notes.txt"):
        (tmp_path / name).write_text("")
    assert first_video(tmp_path) == tmp_path / "a.avi"
    assert first_video(tmp_path / "b.mp4") == tmp_path / "b.mp4"
    with pytest.raises(UserError, match="there is no"):
        first_video(tmp_path / "c.mp4")
