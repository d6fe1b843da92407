"""Measurements on a GPU that others train on: `gpu_lease.py` starts this, and stops the others while it measures.

    PYTHONPATH=src:bench:tests python3 bench/gpu_case.py FOLDER '[{"do": "speed", "kind": "train", ...}, ...]'

Every case is prepared (compiled, recorded) while the others work; then FOLDER/ID.ready appears, and after FOLDER/ID.go
it is measured. A row of JSON for each goes to FOLDER/ID.row. Checks and curves need no silence.
"""

import json
import logging
import os
import sys
import time
import traceback
from pathlib import Path

if '"check"' in sys.argv[-1]:
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # no library may round float32, whatever torch asks for

import gpu_session
import torch
from gpu_probe import kernels

from loci import presets
from loci.bench import measure
from loci.bench.work import resized, tracking, training

PATIENCE = 300.0


def settle():
    """Wait for the device."""
    if gpu_session.DEVICE.type == "cuda":
        torch.cuda.synchronize()


def turn(folder, name):
    """Wait until nobody else works."""
    settle()
    (folder / f"{name}.ready").write_text(str(os.getpid()))
    began = time.monotonic()
    while not (folder / f"{name}.go").exists():
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError("no turn came")
        time.sleep(0.01)


def speed(folder, case):
    """Milliseconds of a step, as `loci bench` measures them."""
    config = presets.PRESETS[case["preset"]]()
    config = resized(config, case.get("side"), case.get("slots"))
    torch.manual_seed(0)
    make = training if case["kind"] == "train" else tracking
    began = time.perf_counter()
    work = make(config, case["batch"], gpu_session.DEVICE, case["precision"], case.get("fast", True))
    for _ in range(work.warm_up):
        work.step()
    settle()
    row = {"set_up_s": time.perf_counter() - began}
    turn(folder, case["id"])
    row |= measure.timed(work, case.get("repeats", 40))
    if case.get("profile"):
        (folder / f"{case['id']}.kernels.log").write_text(
            "".join(f"{us:8.1f} us {n:6.1f} x  {name[:200]}\n" for us, n, name in kernels(work))
        )
    if case.get("ceiling"):
        row["bfloat16_peak_tflops"] = measure.peak_flops(gpu_session.DEVICE, torch.bfloat16) / 1e12
    (folder / f"{case['id']}.done").write_text("")
    row |= measure.peak_memory(work)
    if case.get("launches", True):
        row["kernels_per_step"] = measure.launches(work)
    row["plain_because"] = work.off
    return row


def check(folder, case):
    """30 updates, fast against plain, in true float32; or the convolution's and the traces' kernels."""
    if case["preset"] == "kernels":
        import test_adam
        import test_convolution
        import test_traces

        test_convolution.compare("cuda", torch.bfloat16)
        test_convolution.test_function_is_the_librarys()
        test_traces.compare("cuda")
        test_adam.compare("cuda")
        return {"ok": True} | gpu_session.kernel_times()
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    return gpu_session.thirty(presets.PRESETS[case["preset"]](), case["batch"])


def curve(folder, case):
    """L_BCE over 2000 updates."""
    return gpu_session.curve(
        presets.PRESETS[case["preset"]](), case["precision"], case["seed"], case["updates"], case["batch"]
    )


def main():
    folder, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    for case in cases:
        try:
            row = {"speed": speed, "check": check, "curve": curve}[case["do"]](folder, case)
        except Exception as error:
            traceback.print_exc()
            row = {"error": f"{type(error).__name__}: {error}"[:500]}
        (folder / f"{case['id']}.done").write_text("")
        part = folder / f"{case['id']}.part"
        part.write_text(json.dumps(case | row))
        part.rename(folder / f"{case['id']}.row")
        torch._dynamo.reset()
        if gpu_session.DEVICE.type == "cuda":
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
