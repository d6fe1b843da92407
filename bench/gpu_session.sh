#!/usr/bin/env bash
# Everything that issue 8 asks of a GPU, in four calls of less than nine minutes each:
#
#     bash bench/gpu_session.sh check      fast against plain, trace kernels against their twins
#     bash bench/gpu_session.sh table      the table of the issue, float32 and bfloat16, plain and fast
#     bash bench/gpu_session.sh scaling    slots, batch, side; and whether a long sequence slows down
#     bash bench/gpu_session.sh curves     bfloat16 against float32: 2000 updates, three seeds
#
# Results go to $OUT (here: bench/out): STAGE.jsonl and STAGE.md. With --quick everything is tiny, and a CPU will do.
set -euo pipefail
cd "$(dirname "$0")/.."
export OUT="${OUT:-bench/out}" PYTHONPATH="src:tests${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$OUT"
exec "${PYTHON:-python3}" bench/gpu_session.py "$@"
