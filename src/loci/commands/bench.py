"""`loci bench`: how fast training and tracking are here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from loci.commands import console
from loci.errors import UserError

EXAMPLES = """
  loci bench train --preset moving_mnist --batch 64 --device cuda --json
  loci bench infer --preset cater_fine --batch 1 --breakdown
  loci bench infer --preset cater_fine --batch 1 --precision bfloat16 --threads 2
"""


@dataclass(frozen=True)
class Bench:
    """Measure one step in the middle of a sequence: an update of training, or a step of tracking.

    It is the step that `loci train` and `loci track` run, on made-up frames. On a machine that others use too, look at
    `ms_fastest`, and at `times_faster_than_plain`, for which both take turns.
    """

    work: Annotated[Literal["train", "infer"], tyro.conf.Positional]
    """What to measure."""
    preset: str = "moving_mnist"
    """Whose network and losses."""
    batch: int | None = None
    """Videos side by side; the preset's own number in training, else 1."""
    slots: int | None = None
    """Slots, unless the preset's own number."""
    side: int | None = None
    """Height and width of a square picture, unless the preset's own size."""
    device: str = "auto"
    """cpu, cuda, cuda:1; auto takes a GPU where there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of convolutions."""
    fast: bool = True
    """Compiled and recorded, where that is supported."""
    threads: int | None = None
    """On a CPU; torch's own choice unless given."""
    repeats: int = 30
    """Steps that are timed."""
    breakdown: bool = False
    """Say also where the time of a plain step goes, and what each part asks of the machine."""
    json: bool = False
    """One JSON object and nothing else."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = console.parse(Bench, words, "bench", EXAMPLES)
    for name in ("repeats", "batch", "slots", "side", "threads"):
        number = getattr(options, name)
        if number is not None and number < 1:
            raise UserError(f"--{name} {number}: it must be 1 or more")
    result = _measure(options)
    if options.json:
        print(json.dumps(result))  # noqa: T201
    else:
        _show(result)
    return 0


def _measure(options: Bench) -> dict[str, Any]:
    import torch

    from loci import presets
    from loci.bench import measure
    from loci.bench.work import resized, tracking, training

    if options.preset not in presets.PRESETS:
        raise UserError(f"no preset {options.preset!r}; choose one of {', '.join(presets.PRESETS)}")
    name = options.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.zeros(1, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"no device {options.device!r} here: {error}; --device cpu always works") from error
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = resized(presets.PRESETS[options.preset](), options.side, options.slots)
    batch = options.batch or (config.data.batch if options.work == "train" else 1)
    make = training if options.work == "train" else tracking
    work = make(config, batch, device, options.precision, options.fast)
    result: dict[str, Any] = {
        "work": options.work,
        "preset": options.preset,
        "batch": batch,
        "slots": config.model.slots,
        "size": list(work.model.size),
        "precision": options.precision,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    } | measure.report(work, options.work, batch, options.repeats)
    result["plain_because"] = work.off  # after the run: recording may have failed
    plain = make(config, batch, device, options.precision, False)
    for _ in range(plain.warm_up):
        plain.step()
    result |= measure.beside_plain(work, plain, min(options.repeats, 30))
    loads = measure.loads(plain, options.work)
    flops = sum(load.flops for load in loads.values())
    result["gflop_per_step"] = flops / 1e9
    result["operators_per_plain_step"] = sum(load.operators for load in loads.values())
    result["share_of_bfloat16_roofline"] = flops / result["bfloat16_peak_tflops"] / 1e9 / result["ms_per_step"]
    if options.breakdown:
        times = measure.breakdown(plain, options.work, min(options.repeats, 10))
        result["parts"] = {
            part: {"ms": times[part], "gflop": load.flops / 1e9, "mb": load.bytes / 1e6, "operators": load.operators}
            for part, load in loads.items()
        }
    return result


def _show(result: dict[str, Any]) -> None:
    parts = result.pop("parts", None)
    rows = [(name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in result.items()]
    console.table(f"{result['work']} {result['preset']}", ("what", "value"), rows)
    if parts:
        rows = [(name, *(f"{value:.4g}" for value in part.values())) for name, part in parts.items()]
        console.table("one plain step, by part", ("part", "ms", "GFLOP", "MB", "operators"), rows)
