"""The sweep of one host, from plan to report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scaleout.analysis.trial import row_of
from scaleout.errors import STOPPED, GangError, MissingResultsError, PlanError, ScaleoutError
from scaleout.onehost.host import Host
from scaleout.onehost.part import Wish, run_part
from scaleout.plan.commands import LAUNCHER_ENVIRONMENT, Rendezvous, node_command, shown
from scaleout.plan.one_host import HOST, WHERE
from scaleout.plan.sweep import Sweep, Trial
from scaleout.results.remains import remains_of
from scaleout.results.store import IN_FLIGHT, LAUNCH_FILE, PREFLIGHT_FILE, ROW_FILE, SweepStore
from scaleout.steps.compile_results import compile_sweep
from training.wire.job import Job
from training.wire.schema import to_dict

Say = Callable[[str], None]
LOOPBACK = "127.0.0.1"
TELEMETRY_INTERVAL_S = 1.0
FRAMES, VALIDATION_FRAMES = 8, 2


@dataclass
class OneHostSweep:
    """`run` goes through all trials, and past those that fail."""

    store: SweepStore
    sweep: Sweep
    host: Host
    say: Say
    wish: Wish

    def run(self) -> None:
        """Raises PlanError where the host has too few GPUs, GangError, and MissingResultsError in the end."""
        with self.host.held():
            release = self.host.deploy()
            facts = self.host.ask(release, "preflight", str(self.host.root), self.sweep.cityscapes, self._folders()[0])
            self._check(len(facts["gpus"]), facts["versions"])
            self.store.create(self.sweep)
            self.store.write({"nodes": {HOST: facts}, "array": self.sweep.cluster.array.model_dump()}, PREFLIGHT_FILE)
            self.sweep = self.store.update(release=release)
            self._make_data()
            self.sweep = self.store.update(ready=True)
            for number, trial in enumerate(self.sweep.trials, start=1):
                if self.wish.stopped:
                    self.store.update(stopped=f"the sweep was stopped before {trial.key}")
                    break
                self.say(f"── {number} of {len(self.sweep.trials)}: {trial.key}")
                self._tried(trial)
        compile_sweep(self.store, self.say)

    def _check(self, gpus: int, versions: dict[str, str]) -> None:
        most = max(trial.ranks for trial in self.sweep.trials)
        if self.sweep.cluster.device == "cuda" and gpus < most:
            raise PlanError(
                f"{WHERE}: {most} GPUs are asked for and this host has {gpus}: ask for fewer, or give --device cpu"
            )
        if "torch" not in versions:
            raise PlanError(f"{WHERE}: {self.host.python} has no torch: name the training environment's with --python")

    def _folders(self) -> list[str]:
        return [self.sweep.prepared_path(name) for name in self.sweep.workloads]

    def _make_data(self) -> None:
        """Small data sets for synthetic batches, where none is named: the programs take classes and sizes from them."""
        programs = self.host.release(self.sweep.release or "") / "training"
        most = max(trial.ranks for trial in self.sweep.trials)
        made = Path(self.sweep.cityscapes)
        for name, workload in self.sweep.workloads.items():
            if name in self.sweep.data:
                continue
            out = self.sweep.prepared_path(name)
            counts = ["--train", str(max(FRAMES, most)), "--val", str(VALIDATION_FRAMES)]
            for program, arguments in (
                ("data/generate.py", ["--out", str(made), *counts]),
                (workload.prepare, ["--cityscapes", str(made), "--out", out]),
            ):
                command = [self.host.python, str(programs / program), *arguments]
                folder = f"data-{name}-{Path(program).stem}"
                self._held(folder, self._job(folder, command, str(programs), {}, None))

    def _tried(self, trial: Trial) -> None:
        """The trial, or why it could not be run, or its files not be kept."""
        folder = self.store.next_try(trial.key)
        try:
            self._run_trial(trial, folder)
        except ScaleoutError as error:
            self.say(f"scaleout: {error}")
            record = self.store.read(folder, LAUNCH_FILE) or {"commands": {}, "jobs": {}}
            self.store.write(record | {"failure": record.get("failure") or str(error)}, folder, LAUNCH_FILE)

    def _run_trial(self, trial: Trial, folder: str) -> None:
        workload = self.sweep.workloads[trial.workload]
        release = self.sweep.release or ""
        port = self.host.ask(release, "network", "free-port")["port"]
        command = node_command(
            trial=trial, workload=workload, node_rank=0, rendezvous=Rendezvous(LOOPBACK, port), python=self.host.python,
            data=self.sweep.prepared_path(trial.workload), events=str(self._run_folder(folder)),
        )  # fmt: skip
        cwd = str((self.host.release(release) / "training" / workload.program).parent)
        job = self._job(folder, command, cwd, LAUNCHER_ENVIRONMENT | self.sweep.cluster.environment, trial.limit_s)
        line = shown(job.command, job.cwd, job.environment)
        record = {"commands": {HOST: line}, "jobs": {HOST: to_dict(job)}, "started_wall_s": time.time()}
        self.say(f"$ {line}")
        self.store.write(record | {"failure": IN_FLIGHT}, folder, LAUNCH_FILE)
        failure = None
        try:
            self._held(folder, job)
        except GangError as error:
            failure = str(error)
        self.store.write(record | {"failure": failure, "ended_wall_s": time.time()}, folder, LAUNCH_FILE)
        self._collect(folder)
        row = row_of(remains_of(self.store, self.sweep, trial, folder))
        self.store.write(row.model_dump(mode="json"), folder, ROW_FILE)
        self.say(row.reasons["images_per_s"] if row.images_per_s is None else f"{row.images_per_s:.1f} images/s")

    def _held(self, folder: str, job: Job) -> None:
        cluster = self.sweep.cluster
        run_part(
            self.host.python, self.host.release(job.release), self._run_folder(folder), job, self.say, self.wish,
            cluster.no_progress_s,
        )  # fmt: skip

    def _job(
        self, folder: str, command: list[str], cwd: str, environment: dict[str, str], timeout_s: float | None
    ) -> Job:
        return Job(
            run_id=self.sweep.run_id,
            trial=folder,
            node=HOST,
            node_rank=0,
            nodes=[HOST],
            release=self.sweep.release or "",
            command=command,
            cwd=cwd,
            environment={"PYTHONUNBUFFERED": "1", **environment},
            lease_s=self.sweep.lease_s,
            grace_s=self.sweep.cluster.grace_s,
            timeout_s=timeout_s,
            telemetry_interval_s=TELEMETRY_INTERVAL_S,
        )

    def _run_folder(self, folder: str) -> Path:
        return self.host.root / "runs" / self.sweep.slug / folder / HOST

    def _collect(self, folder: str) -> None:
        source, target = self._run_folder(folder), self.store.folder / folder / HOST
        try:
            if source.exists():
                shutil.move(source, target)
        except OSError as error:
            raise ScaleoutError(f"{target}: cannot be written: {error.strerror}; its files are in {source}") from None


def run_to_status(sweep: OneHostSweep) -> int:
    """The exit status: 0, 1 where a trial has no figures, 130 where it was stopped. Raises other ScaleoutErrors."""
    try:
        sweep.run()
    except (MissingResultsError, GangError) as error:
        sweep.say(f"scaleout: {error}")
        return STOPPED if sweep.wish.stopped else 1
    return 0
