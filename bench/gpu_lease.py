"""One lease of a GPU, used to the last second: networks train, and stand still while a step is measured.

    PYTHONPATH=src:bench:tests python3 bench/gpu_lease.py PLAN.json --seconds 470

PLAN.json says what trains (`trainers`: name, words, folder), what is measured (`workers`: lists of cases
for `gpu_case.py`) and what is run at the end (`after`). Compiling takes most of a short lease and no GPU, so everything
compiles side by side; a measurement waits until it is ready, then all others are stopped (SIGSTOP) for its second.
Results go to $OUT: rows.jsonl as they come, and at the end one zip for each trainer and one of all logs.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

BEGAN = time.monotonic()
WORK = Path("/tmp/lease")
OUT = Path(os.environ.get("OUT", "bench/out"))
SIDE_BY_SIDE = 9
"""Workers at once: each compiles on a core or two."""


def now():
    return time.monotonic() - BEGAN


def say(*words):
    print(f"[{now():6.1f}]", *words, flush=True)


class Process:
    """A command in a process group of its own, which can stand still."""

    def __init__(self, name, words, nice=0):
        self.name = name
        self.log = next(path for n in range(9) if not (path := WORK / f"{name}.{n}.log").exists())
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                ["nice", "-n", str(nice), *words], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def alive(self):
        return self.child.poll() is None

    def send(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)

    def told(self):
        return self.log.read_text(errors="replace")


class Lease:
    def __init__(self, plan, seconds):
        self.plan, self.seconds = plan, seconds
        self.trainers, self.workers = {}, []
        self.waiting = list(plan["workers"])
        self.seen, self.measured = set(), set()
        self.ready_since = {}

    def start_trainer(self, name, extra=()):
        trainer = self.plan["trainers"][name]
        words = [w.replace("{seconds}", str(int(self.plan["train_until"] - now()))) for w in trainer["words"]]
        self.trainers[name] = Process(name, [*words, *extra])
        say("began", name)

    def everybody(self):
        return [p for p in (*self.trainers.values(), *(w for w, _ in self.workers)) if p.alive()]

    def fill(self):
        """Start workers where there is room."""
        running = [w for w, _ in self.workers if w.alive()]
        while self.waiting and len(running) < SIDE_BY_SIDE and now() < self.plan["last_worker"]:
            cases = self.waiting.pop(0)
            name = f"worker{len(self.workers)}"
            worker = Process(name, [sys.executable, "bench/gpu_case.py", str(WORK), json.dumps(cases)], nice=5)
            self.workers.append((worker, {case["id"] for case in cases}))
            running.append(worker)

    def turns(self):
        """Let what is ready be measured, one after the other, with nobody else at work."""
        for path in WORK.glob("*.ready"):
            if path.stem not in self.measured:
                self.ready_since.setdefault(path.stem, now())
        if not self.ready_since:
            return
        if len(self.ready_since) < 4 and now() - min(self.ready_since.values()) < 6:
            return
        begun, others = now(), self.everybody()
        for process in others:
            process.send(signal.SIGSTOP)
        time.sleep(0.3)
        for name in list(self.ready_since):
            owner = next((w for w, names in self.workers if name in names), None)
            if owner is None or not owner.alive():
                continue
            owner.send(signal.SIGCONT)
            (WORK / f"{name}.go").write_text("")
            limit = now() + 15
            while not (WORK / f"{name}.done").exists() and owner.alive() and now() < limit:
                time.sleep(0.01)
            owner.send(signal.SIGSTOP)
            self.measured.add(name)
        for process in others:
            process.send(signal.SIGCONT)
        say(f"measured {', '.join(self.ready_since)} in {now() - begun:.1f} s")
        self.ready_since.clear()

    def collect(self):
        for path in sorted(WORK.glob("*.row")):
            if path.name not in self.seen:
                self.seen.add(path.name)
                row = path.read_text()
                with (OUT / "rows.jsonl").open("a") as file:
                    file.write(row + "\n")
                say(row[:700])

    def watch(self):
        """Whether the first trainer is well; what to do if not."""
        plan = self.plan
        for name, trainer in list(self.trainers.items()):
            if trainer.alive():
                continue
            if trainer.child.returncode and name not in self.seen:
                self.seen.add(name)
                say(name, "ended with", trainer.child.returncode, trainer.told()[-1500:])
        main = plan["main"]
        trainer = self.trainers[main]
        broken = "fast path does not work" in trainer.told() or (not trainer.alive() and trainer.child.returncode)
        if broken and "again" not in self.seen:
            self.seen.add("again")
            say("THE FAST PATH BROKE:", trainer.told()[-3000:])
            trainer.send(signal.SIGKILL)
            import shutil

            shutil.rmtree(plan["trainers"][main]["out"], ignore_errors=True)
            self.start_trainer(main, ["--library"])
        elif broken:
            say("BROKEN AGAIN:", trainer.told()[-3000:])
            return False
        if now() > plan["awake_by"] and "awake" not in self.seen:
            self.seen.add("awake")
            paces = [float(x) for x in re.findall(r"updates_per_second': ([0-9.]+)", trainer.told())]
            say("updates/s so far:", paces)
            if not paces or max(paces) < plan["pace"]:
                say("TOO SLOW, the rest of the lease is saved:", trainer.told()[-3000:])
                return False
        return True

    def run(self):
        plan = self.plan
        for name in plan["trainers"]:
            self.start_trainer(name)
        reported = 0.0
        while now() < plan["train_until"]:
            if now() > plan["first_worker"]:
                self.fill()
            self.turns()
            self.collect()
            if not self.watch():
                break
            if now() - reported > 30:
                reported = now()
                for name, trainer in self.trainers.items():
                    lines = [line for line in trainer.told().replace("\r", "\n").splitlines() if line.strip()]
                    say(name, lines[-1][-330:] if lines else "-")
            if not self.trainers[plan["main"]].alive() and not self.waiting:
                break
            time.sleep(0.2)
        self.end()

    def end(self):
        plan = self.plan
        for worker, _ in self.workers:
            worker.send(signal.SIGKILL)
        for trainer in self.trainers.values():
            trainer.send(signal.SIGCONT)
            if trainer.alive():
                trainer.send(signal.SIGTERM)
        for trainer in self.trainers.values():
            try:
                trainer.child.wait(25)
            except subprocess.TimeoutExpired:
                trainer.send(signal.SIGKILL)
        self.collect()
        say("training is over")
        for name, trainer in plan["trainers"].items():
            self.pack(name, Path(trainer["out"]))
        self.logs()
        for words in plan["after"]:
            left = self.seconds - now() - 8
            if left < 15:
                say("left out:", words)
                continue
            words = [w.replace("{left}", str(int(left - 8))) for w in words]
            try:
                done = subprocess.run(words, timeout=left, capture_output=True, text=True)
                say((done.stdout + done.stderr[-1500:])[-6000:])
            except subprocess.TimeoutExpired:
                say("cut off:", words)
        self.logs()

    def pack(self, name, run):
        """The network that a run ended with, its curve and its pictures."""
        found = sorted((run / "checkpoints").glob("*.safetensors"))
        if not found:
            say("nothing from", name)
            return
        from loci import checkpoint

        content = checkpoint.read(found[-1], weights_only=True)
        extra = {"minutes": content.extra["place"]["elapsed"] / 60}
        final = run / "final.safetensors"
        checkpoint.write(final, checkpoint.Content(content.config, content.step, extra, content.tensors))
        with zipfile.ZipFile(OUT / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in [
                final,
                run / "best.safetensors",
                run / "metrics.jsonl",
                run / "config.json",
                run / "background.png",
            ]:
                if path.exists():
                    archive.write(path, path.name)
            for path in sorted((run / "pictures").glob("*.png"))[:12]:
                archive.write(path, f"pictures/{path.name}")
        say(name, content.step, "updates", (OUT / f"{name}.zip").stat().st_size >> 20, "MiB")

    def logs(self):
        with zipfile.ZipFile(OUT / "logs.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path in WORK.glob("*.log"):
                archive.write(path, path.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    OUT.mkdir(parents=True, exist_ok=True)
    lease = Lease(json.loads(options.plan.read_text()), options.seconds)
    try:
        lease.run()
    finally:
        for process in lease.everybody():
            process.send(signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
