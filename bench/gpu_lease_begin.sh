#!/usr/bin/env bash
# Begin bench/gpu_lease.py on a lent machine, in the background and on a copy of the tree, and tell of its first minutes.
#
#     bash bench/gpu_lease_begin.sh PLAN.json SECONDS TELL
set -euo pipefail
mkdir -p /tmp/lease/tree
mkdir -p scratch
cp -r src bench tests scratch pyproject.toml /tmp/lease/tree
cd /tmp/lease/tree
export PYTHONPATH=src:bench:tests:scratch/carry/py PYTHONUNBUFFERED=1 OUT=/tmp/lease/out
export TORCHINDUCTOR_CACHE_DIR=/tmp/lease/cache # for a trainer that is begun again
[ -f scratch/carry/vtest.avi ] && python3 bench/video_frames.py scratch/carry/vtest.avi /tmp/lease/vtest_frames
nvidia-smi --query-gpu=name,driver_version,utilization.gpu,memory.used --format=csv || true
setsid nohup python3 bench/gpu_lease.py "$1" --seconds "$2" > /tmp/lease/lease.log 2>&1 < /dev/null &
sleep "$3"
cut -c1-600 /tmp/lease/lease.log
