#!/usr/bin/env bash
# What bench/gpu_lease_begin.sh has begun goes on between calls: wait for it, tell how it goes, and bring what is ready.
#
# Every call brings the networks, curves and logs as they were at most a minute ago. Plan the lease to end a good minute
# before the time on the machine does: what is not in $OUT when that is spent is lost.
#
#     bash bench/gpu_lease_wait.sh SECONDS          # until it has finished, or so long
#     bash bench/gpu_lease_wait.sh SECONDS END      # and let it end END seconds from now
set -euo pipefail
cd /tmp/lease
if [ $# -gt 1 ]; then
  python3 -c "import time; open('until', 'w').write(str(time.monotonic() + $2))"
fi
for _ in $(seq "$1"); do
  [ -f out/finished ] && break
  sleep 1
done
cut -c1-400 lease.log | tail -n 40
find out -type f ! -name finished -exec cp {} "$OUT" \;
