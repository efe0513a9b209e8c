"""Resolves a form into a sweep. Pure, apart from reading the configuration's files."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from scaleout.config import files
from scaleout.config.cluster import Cluster
from scaleout.config.form import Choices, Form, Length, length_text
from scaleout.config.workload import Workload
from scaleout.errors import PlanError
from scaleout.plan.dataset import factor_of, variants
from scaleout.plan.sweep import Sweep, Trial
from training.wire.names import CACHE_MODES, slug

BETWEEN_TRIALS_S = 20.0
METHOD_PROCESSES_PER_NODE = 8  # the GPUs of a DGX A100
UNATTENDED_LEASE_S = 30.0  # where nobody starts a dead task again
LEAST_LOCK_TTL_S, LOCK_PER_LEASE = 300.0, 1.5  # the lock must outlive the gang, and is renewed five times in its life


def resolve(
    *, run_id: str, conf: dict[str, Any], cluster: Cluster, created_at: str, lease_s: float = UNATTENDED_LEASE_S
) -> Sweep:
    """The sweep that a raw conf asks for. Raises ConfigError and PlanError before anything has run.

    `lease_s` is how long a gang goes on without an orchestrator, unless the cluster's file says otherwise.
    """
    form = Form.of(conf)
    preset = files.load_preset(form.preset)
    known = files.names("workloads")
    names = sorted(_chosen(form, preset, "workloads", known))
    check_names("workload", names, known)
    workloads = {name: files.load_workload(name) for name in names}
    counts = sorted(_chosen(form, preset, "nodes", cluster.counts()))
    _check_counts(counts, cluster)
    rounds = _chosen(form, preset, "rounds", 1)
    _check_rounds(rounds)
    cache_modes = _chosen(form, preset, "cache_modes", ["cold"])
    factors = {name: factor_of(form, preset, cluster, workload) for name, workload in workloads.items()}
    trials = [
        trial_of(form, preset, cluster, workload, factors[workload.name], round_, nodes, cache_mode)
        for round_ in range(1, rounds + 1)
        for workload in workloads.values()
        for nodes in counts
        for cache_mode in CACHE_MODES
        if cache_mode in cache_modes
    ]
    estimated_h = sum(trial.estimated_s + BETWEEN_TRIALS_S for trial in trials) / 3600
    budget_h = _chosen(form, preset, "budget_h", 12.0)
    if estimated_h > budget_h:
        raise PlanError(
            f"the sweep would take about {estimated_h:.1f} h and the budget is {budget_h:g} h: ask for fewer nodes, "
            "rounds or steps, or raise budget_h in the trigger form"
        )
    lease_s = cluster.lease_s or lease_s
    return Sweep(
        run_id=run_id,
        slug=slug(run_id),
        created_at=created_at,
        form=form,
        cluster=cluster,
        workloads=workloads,
        trials=trials,
        cityscapes=form.cityscapes or cluster.cityscapes,
        dataset_factors=factors,
        estimated_h=estimated_h,
        budget_h=budget_h,
        lease_s=lease_s,
        lock_ttl_s=cluster.lock_ttl_s or max(LEAST_LOCK_TTL_S, LOCK_PER_LEASE * lease_s),
    )


def most_rounds() -> int:
    """The rounds that the DAG has slots for: the most that a preset asks for."""
    return max((files.load_preset(name).rounds or 1 for name in files.names("presets")), default=1)


def trial_of(
    form: Form,
    preset: Choices,
    cluster: Cluster,
    workload: Workload,
    factor: int,
    round_: int,
    nodes: int,
    cache_mode: Any,
    flags: Sequence[str] = (),
) -> Trial:
    """One trial; `flags` are given to the program after the workload's own arguments. Raises PlanError."""
    per_node = _chosen(form, preset, "processes_per_node", cluster.processes_per_node)
    if cluster.device == "cuda" and per_node > cluster.processes_per_node:
        raise PlanError(
            f"processes_per_node {per_node} is more than the {cluster.processes_per_node} GPUs of a node of {cluster.name}"
        )
    ranks = nodes * per_node
    batch = _chosen(form, preset, "batch_per_gpu", workload.batch_per_gpu)
    length = _chosen(form, preset, "length", Length(epochs=workload.epochs))
    num_workers = _chosen(form, preset, "num_workers", workload.num_workers)
    window_steps = _chosen(form, preset, "window_steps", None)
    if window_steps is not None and length.steps is not None and length.steps < window_steps:
        raise PlanError(
            f"{length.steps} steps are too few for one window of {window_steps}: raise steps or lower window_steps"
        )
    warmup, synthetic = _chosen(form, preset, "warmup_steps", 20), _chosen(form, preset, "synthetic_steps", 50)
    rate = workload.expected_images_per_s_per_rank[cluster.device]
    arguments = [*workload.arguments_on(cluster.device), *flags]
    overrides = {
        **_argument_overrides(arguments, workload.arguments),
        "batch per GPU": (batch, workload.batch_per_gpu),
        "workers": (num_workers, workload.num_workers),
        "processes per node": (per_node, METHOD_PROCESSES_PER_NODE),
        "length": (length_text(length), length_text(Length(epochs=workload.epochs))),
        "variants": variants(workload.inflation, factor),
    }
    return Trial(
        round=round_,
        workload=workload.name,
        nodes=nodes,
        cache_mode=cache_mode,
        node_names=[node.name for node in cluster.nodes[:nodes]],
        processes_per_node=per_node,
        ranks=ranks,
        batch_per_gpu=batch,
        global_batch=ranks * batch,
        num_workers=num_workers,
        launcher=_chosen(form, preset, "launcher", workload.launcher),
        arguments=arguments,
        length=length,
        window_steps=window_steps,
        warmup_steps=warmup,
        synthetic_steps=synthetic,
        seed=_chosen(form, preset, "seed", 1),
        overrides={name: f"{ours} (method: {method})" for name, (ours, method) in overrides.items() if ours != method},
        estimated_s=workload.start_up_s
        + (warmup + synthetic) * batch / rate
        + _length_s(length, batch, ranks, rate, workload.images(factor)),
    )


def _argument_overrides(ours: list[str], method: list[str]) -> dict[str, tuple[str, str]]:
    """Our value and the method's of every flag that either passes, by the flag's name."""
    found, published = _by_flag(ours), _by_flag(method)
    return {
        flag.lstrip("-"): (found.get(flag, "not given"), published.get(flag, "not given"))
        for flag in [*found, *(flag for flag in published if flag not in found)]
    }


def _by_flag(arguments: list[str]) -> dict[str, str]:
    values: dict[str, list[str]] = {}
    flag = ""
    for argument in arguments:
        if argument.startswith("--"):
            flag = argument
            values[flag] = []
        else:
            values.setdefault(flag, []).append(argument)
    return {flag: " ".join(given) or "given" for flag, given in values.items()}


def _length_s(length: Length, batch: int, ranks: int, rate: float, dataset_images: int) -> float:
    """Seconds of the measured part, at `rate` images/s per rank and perfect scaling."""
    if length.seconds is not None:
        return length.seconds
    if length.steps is not None:
        return length.steps * batch / rate
    assert length.epochs is not None
    return length.epochs * dataset_images / (ranks * rate)


def _chosen(form: Choices, preset: Choices, key: str, otherwise: Any) -> Any:
    for choices in (form, preset):
        value = getattr(choices, key)
        if value is not None:
            return value
    return otherwise


def check_names(what: str, asked: list[str], known: list[str], where: str = "trigger form") -> None:
    """Raises PlanError."""
    for name in asked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"
            raise PlanError(f"{where}: no {what} named {name!r}; {hint}")


def _check_rounds(rounds: int) -> None:
    slots = most_rounds()
    if rounds > slots:
        raise PlanError(
            f"trigger form: the DAG has no slot for round {rounds} (it has {slots}): raise rounds in a file of presets/, "
            "or ask for fewer"
        )


def _check_counts(counts: list[int], cluster: Cluster) -> None:
    if counts[-1] > len(cluster.nodes):
        raise PlanError(
            f"trigger form: {counts[-1]} nodes are asked for and the cluster {cluster.name} has {len(cluster.nodes)}"
        )
    slots = cluster.counts()
    for count in counts:
        if count not in slots:
            raise PlanError(
                f"trigger form: the DAG has no slot for {count} nodes (it has {', '.join(map(str, slots))}): "
                f"list it in node_counts of clusters/{cluster.name}.yaml"
            )
