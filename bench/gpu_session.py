"""The stages of `gpu_session.sh`. Uses nothing but torch and the package, so that a bare GPU machine will do."""

import argparse
import copy
import json
import logging
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from loci import presets, random
from loci.bench import measure
from loci.bench.work import frames, resized, tracking, training
from loci.kernels import traces
from loci.kernels.launch import available
from loci.kernels.record import leaves
from loci.model import Loci
from loci.train.fast import FastStep
from loci.train.optimise import Optimisers
from loci.train.schedule import BETAS, PLAIN, Schedule
from loci.train.step import STATISTICS, Learner, Lesson, train_step
from loci.worlds.moving_mnist import MovingMnist

BUDGET = 500.0
"""Seconds; what is left after that is named and left out."""
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BEGAN = time.monotonic()
log = logging.getLogger("gpu_session")

TABLE = [  # work, preset, batch, ms of the published code, at most, aim
    ("train", "moving_mnist", 64, 74.6, 6.0, 3.0),
    ("train", "cater", 16, 60.1, 6.0, 3.5),
    ("train", "cater_fine", 16, 158.6, 20.0, 12.0),
    ("infer", "cater_fine", 1, 17.5, 2.5, 1.5),
    ("infer", "cater_fine", 16, 46.2, 8.0, 5.0),
    ("infer", "moving_mnist", 64, 14.9, 1.5, 0.8),
]


class Results:
    """Rows, kept as they come."""

    def __init__(self, stage):
        self.path = Path(os.environ["OUT"]) / f"{stage}.jsonl"
        self.path.write_text("")
        self.rows = []

    def add(self, what, function):
        """A row from a function, or why there is none; nothing after the budget is spent."""
        spent = time.monotonic() - BEGAN
        if spent > BUDGET:
            row = what | {"error": f"left out after {spent:.0f} s"}
        else:
            try:
                row = what | function()
            except Exception as error:
                traceback.print_exc()
                row = what | {"error": f"{type(error).__name__}: {error}"[:300]}
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        torch._dynamo.reset()
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()

    def table(self, columns):
        """The rows as Markdown, on the screen and beside the JSON."""
        lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        for row in self.rows:
            cells = [row.get(c, "") for c in columns]
            lines.append(f"| {' | '.join(f'{c:.4g}' if isinstance(c, float) else str(c) for c in cells)} |")
            if "error" in row:
                lines.append(f"| {row['error']} |" + " |" * (len(columns) - 1))
        text = "\n".join(lines)
        self.path.with_suffix(".md").write_text(text + "\n")
        print(text)


def measured(kind, config, batch, precision, fast, repeats):
    torch.manual_seed(0)
    work = (training if kind == "train" else tracking)(config, batch, DEVICE, precision, fast)
    row = measure.report(work, kind, batch, repeats)
    row["plain_because"] = work.off
    return row


def table(results, quick):
    rows = [("train", "smoke", 2, 0.0, 0.0, 0.0), ("infer", "smoke", 2, 0.0, 0.0, 0.0)] if quick else TABLE
    for kind, preset, batch, published, most, aim in rows:
        config = presets.PRESETS[preset]()
        for precision in ("float32", "bfloat16"):
            for fast in (False, True):
                what = {"work": kind, "preset": preset, "batch": batch, "precision": precision, "fast": fast}
                what |= {"published_ms": published, "at_most_ms": most, "aim_ms": aim}
                results.add(
                    what,
                    lambda c=config, k=kind, b=batch, p=precision, f=fast: measured(k, c, b, p, f, 4 if quick else 40),
                )
        if quick:
            continue
        work = (training if kind == "train" else tracking)(config, batch, DEVICE, "float32", False)
        for _ in range(work.warm_up):
            work.step()
        loads = measure.loads(work, kind)
        parts = measure.breakdown(work, kind, 10)
        for part, load in loads.items():
            row = {
                "part_ms": parts[part],
                "gflop": load.flops / 1e9,
                "mb": load.bytes / 1e6,
                "operators": load.operators,
            }
            results.add({"work": kind, "preset": preset, "batch": batch, "part": part}, lambda r=row: r)
    results.table(
        ["work", "preset", "batch", "precision", "fast", "part", "published_ms", "at_most_ms", "ms_per_step",
         "ms_quartiles", "peak_memory_mib", "kernels_per_step", "part_ms", "gflop", "plain_because"]
    )  # fmt: skip


def scaling(results, quick):
    slots, batches, sides = (
        ((2, 4), (1, 2), ()) if quick else ((2, 4, 8, 16, 32, 64), (1, 4, 16, 64, 256), (64, 128, 256, 512))
    )
    base = presets.smoke() if quick else presets.moving_mnist()
    cases = [("slots", n, resized(base, None, n), 16) for n in slots]
    cases += [("batch", n, base, n) for n in batches]
    cases += [("side", n, resized(base, n, None), 4) for n in sides]
    for kind in ("train", "infer"):
        for axis, number, config, batch in cases:
            results.add(
                {"work": kind, "axis": axis, "value": number, "batch": batch},
                lambda c=config, k=kind, b=batch: measured(k, c, b, "float32", True, 4 if quick else 20),
            )
        results.add(
            {"work": kind, "axis": "length", "value": 20 if quick else 2000, "batch": 4},
            lambda k=kind: measured(k, base, 4, "float32", True, 20 if quick else 2000),
        )
    results.table(
        ["work", "axis", "value", "batch", "ms_per_step", "ms_last_to_first", "peak_memory_mib", "plain_because"]
    )


def check(results, quick):
    """30 updates, fast against plain; everything in true float32."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    for preset, batch in (
        (("smoke", 2),) if quick else (("smoke", 4), ("moving_mnist", 8), ("cater", 4), ("cater_fine", 2))
    ):
        results.add(
            {"check": "fast = plain", "preset": preset}, lambda p=preset, b=batch: thirty(presets.PRESETS[p](), b)
        )
    if DEVICE.type == "cuda" and available():
        from test_traces import compare

        results.add({"check": "trace kernels = twins"}, lambda: compare("cuda") or {"ok": True})
        results.add({"check": "trace kernels, ms"}, kernel_times)
    results.table(
        [
            "check",
            "preset",
            "ok",
            "report",
            "gradients",
            "one_gradient",
            "whose",
            "parameters",
            "state",
            "plain_because",
            "fused_ms",
            "twin_ms",
            "gb_per_s",
        ]
    )


def thirty(config, batch, steps=30):
    """One update fast and the same one plain, from the same place, thirty times.

    Both begin each update with the plain one's weights, moments and state: rounding that Adam's division has blown up
    to whole steps would else be all there is to compare. A gradient is what an update adds to Adam's first moment.
    """
    torch.manual_seed(0)
    plain = Loci(config.model).to(DEVICE).train()
    with torch.no_grad():  # every branch counts
        for name, parameter in plain.named_parameters():
            if "alpha" in name or name.endswith("_scale"):
                parameter.fill_(0.1)
    quick = copy.deepcopy(plain)
    settings = Schedule(config).settings(config.train.foreground + 1000, len(config.train.stages) - 1)
    shown, snitch = frames(plain, batch), torch.zeros(batch, 2, device=DEVICE) if config.model.snitch else None
    learners, optimisers = [Learner(m) for m in (plain, quick)], [Optimisers(m) for m in (plain, quick)]
    fast = FastStep(learners[1], quick, optimisers[1], rehearse=DEVICE.type == "cpu")
    one, two = (m.start(batch, shown[0][0] // 2) for m in (plain, quick))
    worst = {"report": 0.0, "gradients": 0.0, "one_gradient": 0.0, "parameters": 0.0, "state": 0.0}
    who = ""
    for t in range(PLAIN + 1 + steps):
        lessons = [Lesson(shown[t % 8], shown[(t + 1) % 8], bootstrapping=t < 3, snitch=snitch)]
        before = {name: m.clone() for name, m in first_moments(optimisers[0]).items()}
        one, first, _ = train_step(learners[0], plain, optimisers[0], one, lessons, settings)
        two, second, _ = fast(two, lessons, settings)
        ours, theirs = (taught(o, before) for o in reversed(optimisers))
        alone = apart(ours, theirs)
        name = max(alone, key=lambda name: alone[name])
        who = name if alone[name] > worst["one_gradient"] else who
        found = {
            "report": far([second], [first]),
            "gradients": far([flat(ours)], [flat(theirs)]),
            "one_gradient": alone[name],
            "parameters": far(list(quick.parameters()), list(plain.parameters())),
            "state": far(leaves(two), leaves(one)),
        }
        worst = {name: max(worst[name], value) for name, value in found.items()}
        log.info("update %d: %s", t, found)
        log.info("report %s", {n: (float(a), float(b)) for n, a, b in zip(STATISTICS, second, first, strict=True)})
        with torch.no_grad():
            pairs = zip(everything(quick, optimisers[1], two), everything(plain, optimisers[0], one), strict=True)
            for ours, theirs in pairs:
                ours.copy_(theirs)
    ok = fast.off is None and worst["report"] < 1e-5 and worst["gradients"] < 1e-4
    return worst | {"whose": who, "plain_because": fast.off, "ok": ok}


def first_moments(optimisers):
    """Adam's running mean of each parameter's gradient, where there is one yet."""
    return {name: m for name, m in optimisers.tensors().items() if name.endswith("/exp_avg")}


def taught(optimisers, before):
    """Each parameter's gradient in the update after `before`, but for a factor."""
    return {name: m - BETAS[0] * before.get(name, 0) for name, m in first_moments(optimisers).items()}


def flat(gradients):
    """All of them as one."""
    return torch.cat([g.flatten() for g in gradients.values()])


def apart(ours, theirs):
    """The relative distance of each gradient; of one under a thousandth of all, to a thousandth of all."""
    whole = float(flat(theirs).double().norm())
    distances = {name: float((ours[name] - theirs[name]).double().norm()) for name in theirs}
    return {name: d / max(float(theirs[name].double().norm()), 1e-3 * whole) for name, d in distances.items()}


def everything(model, optimisers, state):
    """All that an update changes."""
    moments = [leaf for adam in optimisers.adams.values() for s in adam.state.values() for leaf in s.values()]
    return [*model.parameters(), *(m for m in moments if isinstance(m, torch.Tensor)), *leaves(state)]


def far(ours, theirs):
    """The largest relative distance between tensors of two lists."""
    pairs = [(a.detach().double(), b.detach().double()) for a, b in zip(ours, theirs, strict=True)]
    return max(float((a - b).norm() / (b.norm() + 1e-12)) for a, b in pairs)


def kernel_times():
    """CATER's traces, batch 16: 205 MB in both layers of one step, here one layer."""
    from loci.model.gatelord import Traces, advance_traces, collect

    n, h = 160, 200
    old = Traces(torch.randn(n, 2, h, 2 * h, device="cuda"), torch.randn(n, 2, h, device="cuda"))
    keep, local = torch.rand(n, h, device="cuda"), torch.randn(n, 2, h, device="cuda")
    inputs, signal = torch.randn(n, 2 * h, device="cuda"), torch.randn(n, h, device="cuda")

    def ms(function):
        for _ in range(3):
            function()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(20):
            function()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 20

    fused = [ms(lambda: traces.advance_traces(old, keep, local, inputs)), ms(lambda: traces.collect(signal, old))]
    twin = [ms(lambda: advance_traces(old, keep, local, inputs)), ms(lambda: collect(signal, old))]
    moved = old.weight.numel() * 4 / 1e6
    return {"fused_ms": fused, "twin_ms": twin, "gb_per_s": [2 * moved / fused[0], moved / fused[1]]}


def curves(results, quick):
    updates = 40 if quick else 2000
    config = presets.smoke() if quick else presets.moving_mnist()
    for precision, seed in (("float32", 0), ("float32", 1), ("float32", 2), ("bfloat16", 0)):
        results.add(
            {"precision": precision, "seed": seed},
            lambda p=precision, s=seed: curve(config, p, s, updates, 2 if quick else 64),
        )
    results.table(["precision", "seed", "first", "middle", "last", "seconds", "plain_because"])


def curve(config, precision, seed, updates, batch):
    """L_BCE over a training run on Moving MNIST, means of a twentieth each."""
    began = time.monotonic()
    torch.manual_seed(seed)
    config = replace(config, train=replace(config.train, foreground=updates // 4))
    model = Loci(config.model).to(DEVICE).train()
    learner = Learner(model, rough=precision == "bfloat16")
    optimisers, schedule = Optimisers(model), Schedule(config)
    step = FastStep(learner, model, optimisers, rough=precision == "bfloat16")
    world = MovingMnist(split="train", seed=seed, size=model.size, length=20)
    losses, update, sequence = [], 0, 0
    while update < updates:
        clip = world.clips(range(sequence * batch, (sequence + 1) * batch), labels=False, device=DEVICE)
        keys = random.key(seed, "curve", sequence, torch.arange(batch, device=DEVICE), device=DEVICE)
        state = model.start(batch, torch.zeros(3, *model.size), keys=keys)
        times = [-1] * config.model.bootstrap + list(range(19))
        for t in times[: updates - update]:
            now = clip.frames[:, max(t, 0)]
            lesson = Lesson(now, now if t < 0 else clip.frames[:, t + 1], bootstrapping=t < 0)
            state, report, _ = step(state, [lesson], schedule.settings(update, 0))
            losses.append(report[STATISTICS.index("reconstruction")].clone())
            update += 1
        sequence += 1
    means = [float(part.mean()) for part in torch.stack(losses).chunk(20)]
    row = {"curve": means, "first": means[0], "middle": means[len(means) // 2], "last": means[-1]}
    return row | {"seconds": time.monotonic() - began, "plain_because": step.off}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    stages = {"check": check, "table": table, "scaling": scaling, "curves": curves}
    parser.add_argument("stage", choices=[*stages, "all"])
    parser.add_argument("--quick", action="store_true", help="tiny, to try the script itself")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    print(torch.__version__, torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu", flush=True)
    for name, stage in stages.items():
        if options.stage in (name, "all"):
            results = Results(name)
            stage(results, options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
