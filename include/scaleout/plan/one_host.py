"""A sweep over the GPUs of one host, or over processes on its CPU: no cluster file, no array, one node."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from scaleout.config import files
from scaleout.config.cluster import Cluster, NoArray, Node, Variable
from scaleout.config.form import Choices, Form, Length
from scaleout.config.model import Model
from scaleout.config.workload import Device, Workload
from scaleout.errors import PlanError
from scaleout.plan.resolve import UNATTENDED_LEASE_S, check_names, trial_of
from scaleout.plan.sweep import Sweep, Trial
from training.wire.names import Axis, slug

HOST = "host"
WHERE = "one-host"
# The same on every count of a round: caches are not emptied, and synthetic batches need none.
CACHE_MODE = "warm"
# Between the ranks of one host nothing needs a network.
INTERFACE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo"}
ONE_CORE = {"OMP_NUM_THREADS": "1"}  # the same for each process, however many share the cores
# The number of processes is what is swept, and how often each frame is in a folder that was named is not known.
NOT_OVERRIDES = ("processes per node", "variants")


class Request(Model):
    """What is asked for. `data` is by workload; `flags` go to the training programs as they stand."""

    counts: Annotated[list[PositiveInt], Field(min_length=1)]
    workloads: Annotated[list[str], Field(min_length=1)]
    loader: Literal["synthetic", "torch", "dali"] = "synthetic"
    rounds: PositiveInt = 3
    steps: PositiveInt = 100
    window_steps: PositiveInt | None = None
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    synthetic_steps: Annotated[int, Field(ge=0)] = 50
    batch_per_gpu: PositiveInt | None = None
    num_workers: PositiveInt | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    device: Device = "cuda"
    data: dict[str, str] = {}
    environment: dict[Variable, str] = {}
    flags: list[str] = []

    @property
    def axis(self) -> Axis:
        return "gpus" if self.device == "cuda" else "processes"


def plan(request: Request, *, run_id: str, created_at: str, root: str, python: str) -> Sweep:
    """The sweep, its trials round by round. `root` holds what is made on the way. Raises ConfigError, PlanError."""
    names = files.names("workloads")
    check_names("workload", [*request.workloads, *request.data], names, WHERE)
    _check_counts(request)
    workloads = {name: files.load_workload(name) for name in sorted(set(request.workloads))}
    for name in workloads:
        if request.loader != "synthetic" and name not in request.data:
            raise PlanError(f"{WHERE}: --loader {request.loader} reads a data set: give --data {name}=DIR")
    cluster = Cluster(
        name="one-host",
        nodes=[Node(name=HOST, connection="none")],
        python=python,
        remote_root=root,
        cityscapes=f"{root}/cityscapes",
        prepared=f"{root}/prepared",
        device=request.device,
        processes_per_node=max(request.counts),
        environment=INTERFACE | (ONE_CORE if request.device == "cpu" else {}) | request.environment,
        array=NoArray(kind="none"),
    )
    trials = [
        _trial(request, cluster, workload, round_, count)
        for round_ in range(1, request.rounds + 1)
        for workload in workloads.values()
        for count in sorted(request.counts)
    ]
    estimated_h = sum(trial.estimated_s for trial in trials) / 3600
    return Sweep(
        run_id=run_id,
        slug=slug(run_id),
        created_at=created_at,
        form=_form(request),
        cluster=cluster,
        workloads=workloads,
        trials=trials,
        cityscapes=cluster.cityscapes,
        data=request.data,
        estimated_h=estimated_h,
        budget_h=estimated_h,
        lease_s=UNATTENDED_LEASE_S,
        lock_ttl_s=UNATTENDED_LEASE_S,
    )


def _form(request: Request) -> Form:
    return Form(
        preset=WHERE,
        workloads=sorted(set(request.workloads)),
        nodes=[1],
        rounds=request.rounds,
        cache_modes=[CACHE_MODE],
        length=Length(steps=request.steps),
        batch_per_gpu=request.batch_per_gpu,
        num_workers=request.num_workers,
        window_steps=request.window_steps,
        warmup_steps=request.warmup_steps or None,
        synthetic_steps=request.synthetic_steps or None,
        seed=request.seed,
    )


def _trial(request: Request, cluster: Cluster, workload: Workload, round_: int, count: int) -> Trial:
    form = _form(request).model_copy(update={"processes_per_node": count})
    where = ["--no-cuda"] if request.device == "cpu" else []
    flags = ["--loader", request.loader, *where, *request.flags]
    trial = trial_of(form, Choices(), cluster, workload, 1, round_, 1, CACHE_MODE, flags)
    return trial.model_copy(
        update={
            "axis": request.axis,
            "warmup_steps": request.warmup_steps,
            "synthetic_steps": request.synthetic_steps,
            "overrides": {name: text for name, text in trial.overrides.items() if name not in NOT_OVERRIDES},
        }
    )


def _check_counts(request: Request) -> None:
    for count in request.counts:
        if request.counts.count(count) > 1:
            raise PlanError(f"{WHERE}: {count} stands more than once in --counts; --rounds repeats trials")
