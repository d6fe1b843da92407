"""One lease of a GPU used to the last second: networks train, and stand still while a step is measured.

    bash bench/gpu_lease_begin.sh bench/gpu_plan.json 1600 60      # first call: begins it, and tells of a minute
    bash bench/gpu_lease_wait.sh 560                               # as many more as there is time for

PLAN.json says what trains (`trainers`: name, words, folder), what is measured (`workers`: lists of cases for
`gpu_case.py`, `side_by_side` of them at once from second `first_worker` on, since compiling slows the trainers) and
what is run as soon as the main trainer is done (`after`). At second `restart` the main trainer is stopped and begun
again. A measurement waits until it is compiled, then all others are stopped (SIGSTOP) for its second. Where NVIDIA's
multi-process service can be started, trainers share the GPU by it.

It runs on between two calls of the machine. /tmp/lease/until holds the second (CLOCK_MONOTONIC) at which it ends;
writing another number there changes that, as long as trainers have not planned their last stage. Results are in
/tmp/lease/out: rows.jsonl as they come, and at the end one zip for each trainer and one of all logs.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

BEGAN = time.monotonic()
WORK = Path("/tmp/lease")
OUT = WORK / "out"
UNTIL = WORK / "until"
PIPES = WORK / "mps"
KEEPING = 60.0
"""Seconds after which all is packed anew, so that every call may bring it: a lease can end sooner than planned."""
PACKING = 25.0
"""Seconds for saving, packing and the logs at the end."""


def now():
    return time.monotonic() - BEGAN


def end():
    return float(UNTIL.read_text()) - BEGAN


def say(*words):
    print(f"[{now():6.1f}]", *words, flush=True)


def shared():
    """Environment in which processes share the GPU at the same time; empty where that does not work."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        say("no nvidia-cuda-mps-control here: trainers take turns")
        return {}
    PIPES.mkdir()
    added = {"CUDA_MPS_PIPE_DIRECTORY": str(PIPES), "CUDA_MPS_LOG_DIRECTORY": str(PIPES)}
    trial = "import torch; x = torch.ones(8, device='cuda'); torch.cuda.synchronize(); print(float(x.sum()))"
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | added, timeout=10, check=True)
        subprocess.run([sys.executable, "-c", trial], env=os.environ | added, timeout=25, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        say("the multi-process service does not work here, trainers take turns:", error)
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=os.environ | added, timeout=5, check=False)
        return {}
    say("trainers share the GPU")
    return added


class Process:
    """A command in a process group of its own, which can stand still."""

    def __init__(self, name, words, nice=0, environment=None):
        self.name = name
        self.log = next(path for n in range(9) if not (path := WORK / f"{name}.{n}.log").exists())
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                ["nice", "-n", str(nice), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | (environment or {}),
            )

    def alive(self):
        return self.child.poll() is None

    def send(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)

    def told(self):
        return self.log.read_text(errors="replace")

    def last(self):
        lines = [line for line in self.told().replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1][-330:] if lines else "-"


class Lease:
    def __init__(self, plan):
        self.plan = plan
        self.environment = shared()
        self.trainers, self.workers = {}, []
        self.after = None
        self.waiting = list(plan["workers"])
        self.seen, self.measured = set(), set()
        self.ready_since = {}

    def start_trainer(self, name, extra=()):
        trainer = self.plan["trainers"][name]
        if trainer.get("needs_sharing") and not self.environment:
            say("left out:", name)
            return
        words = [word.replace("{until}", str(UNTIL)) for word in trainer["words"]]
        self.trainers[name] = Process(name, [*words, *extra], environment=self.environment)
        say("began", name)

    def everybody(self):
        found = [*self.trainers.values(), *(worker for worker, _ in self.workers)]
        return [p for p in (*found, *([self.after] if self.after else [])) if p.alive()]

    def fill(self):
        """Start workers where there is room."""
        running = sum(worker.alive() for worker, _ in self.workers)
        while self.waiting and running < self.plan["side_by_side"] and now() < end() - self.plan["last_worker"]:
            cases = self.waiting.pop(0)
            words = [sys.executable, "bench/gpu_case.py", str(WORK), json.dumps(cases)]
            few = {"TORCHINDUCTOR_COMPILE_THREADS": "3", "OMP_NUM_THREADS": "2"}
            worker = Process(f"worker{len(self.workers)}", words, nice=5, environment=few)
            self.workers.append((worker, {case["id"] for case in cases}))
            running += 1

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
        """Whether the trainers are well; what to do if the main one is not."""
        plan = self.plan
        for name, trainer in list(self.trainers.items()):
            if not trainer.alive() and trainer.child.returncode and name not in self.seen:
                self.seen.add(name)
                say(name, "ended with", trainer.child.returncode, trainer.told()[-1500:])
        main = plan["main"]
        trainer = self.trainers[main]
        broken = "fast path does not work" in trainer.told() or (not trainer.alive() and trainer.child.returncode)
        if broken and "again" not in self.seen:
            self.seen.add("again")
            say("THE FAST PATH BROKE:", trainer.told()[-3000:])
            trainer.send(signal.SIGKILL)
            trainer.child.wait()
            shutil.rmtree(plan["trainers"][main]["out"], ignore_errors=True)
            self.start_trainer(main, ["--library"])

    def run(self):
        for name in self.plan["trainers"]:
            self.start_trainer(name)
        reported, packed = 0.0, 0.0
        while now() < end() - PACKING:
            if now() > self.plan["first_worker"]:
                self.fill()
            self.turns()
            self.collect()
            self.watch()
            self.restart()
            self.evaluate()
            if now() - reported > 15:
                reported = now()
                for process in self.everybody()[: len(self.trainers) + 1]:
                    say(process.name, process.last())
            if now() - packed > KEEPING:
                packed = now()
                for name in self.trainers:
                    self.pack(name)
                self.zip("logs", WORK.glob("*.log"))
            time.sleep(0.2)
        self.stop()

    def restart(self):
        """Stop the main trainer as a person would, and go on with it by the same words."""
        trainer = self.trainers[self.plan["main"]]
        if now() < self.plan.get("restart", 1e9) or "restart" in self.seen or not trainer.alive():
            return
        self.seen.add("restart")
        trainer.send(signal.SIGTERM)
        trainer.child.wait(30)
        say("stopped", self.plan["main"], "in the middle:", trainer.last())
        self.start_trainer(self.plan["main"])

    def evaluate(self):
        """What follows the main trainer, beside the others."""
        main = self.trainers[self.plan["main"]]
        if self.after is None and not main.alive() and not main.child.returncode:
            self.pack(self.plan["main"])
            left = end() - PACKING - now()
            self.after = Process("after", [word.replace("{left}", str(int(left - 8))) for word in self.plan["after"]])

    def stop(self):
        for worker, _ in self.workers:
            worker.send(signal.SIGKILL)
        for trainer in self.trainers.values():
            trainer.send(signal.SIGCONT)
            if trainer.alive():
                trainer.send(signal.SIGTERM)
        for trainer in self.trainers.values():
            try:
                trainer.child.wait(12)
            except subprocess.TimeoutExpired:
                trainer.send(signal.SIGKILL)
        self.collect()
        say("training is over")
        for name in self.trainers:
            self.pack(name)
        if self.after:
            self.after.send(signal.SIGKILL)
            say(self.after.told()[-5000:])
        self.zip("logs", WORK.glob("*.log"))
        (OUT / "finished").write_text("")

    def weights(self, run, path, label):
        """A checkpoint without what it takes to go on."""
        from loci import checkpoint

        content = checkpoint.read(path, weights_only=True)
        extra = {"minutes": content.extra["place"]["elapsed"] / 60}
        content = checkpoint.Content(content.config, content.step, extra, content.tensors)
        checkpoint.write(run / f"{label}.safetensors", content)

    def zip(self, name, files):
        part = WORK / f"{name}.part"
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                if path.exists():
                    archive.write(path, path.name)
        part.rename(OUT / f"{name}.zip")

    def pack(self, name):
        """The network that a run ended with, its curve and its pictures."""
        run = Path(self.plan["trainers"][name]["out"])
        found = sorted((run / "checkpoints").glob("*.safetensors"))
        if not found:
            say("nothing from", name)
            return
        self.weights(run, found[-1], "final")
        if before := self.plan["trainers"][name].get("also_before_stage"):
            from loci import checkpoint

            early = next(p for p in reversed(found) if checkpoint.read(p).extra["place"]["stage"] < before)
            self.weights(run, early, "early")
            self.zip(f"{name}-early", [run / "early.safetensors"])
        pictures = sorted((run / "pictures").glob("*.png"))[-12:]
        parts = [run / part for part in ("final.safetensors", "metrics.jsonl", "config.json", "background.png")]
        self.zip(name, [*parts, *pictures])
        say(name, int(found[-1].stem), "updates", (OUT / f"{name}.zip").stat().st_size >> 20, "MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    OUT.mkdir(parents=True)
    UNTIL.write_text(str(BEGAN + options.seconds))
    lease = Lease(json.loads(options.plan.read_text()))
    try:
        lease.run()
    finally:
        for process in lease.everybody():
            process.send(signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
