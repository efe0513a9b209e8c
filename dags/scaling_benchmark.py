"""How training scales with the number of nodes that read from a shared NAS.

One run is a sweep: the data set is converted once; then, for each round, workload and node count, the caches of the array
and of every node are emptied, the gang is launched on all of its nodes at once, and what it left is collected. At the
end stand the scaling table, the bandwidth that the storage must deliver, and a red run if any trial is missing.

Choose the cluster with SCALEOUT_CLUSTER (a file in `clusters/`), before this file is parsed. What a run does not ask for
is skipped at its gate.
"""

from airflow.sdk import DAG, TaskGroup, TriggerRule, chain

from scaleout import settings
from scaleout.config import files
from scaleout.errors import ConfigError
from scaleout.operators.attempt import RETRIES
from scaleout.operators.form import trigger_form
from scaleout.operators.schedule import nightly_schedule
from scaleout.operators.slots import trial_slots
from scaleout.operators.sweep import (
    CompileResultsOperator,
    DeployOperator,
    LockOperator,
    PlanOperator,
    PreflightOperator,
    PrepareDataOperator,
    RefuseOperator,
    UnlockOperator,
)
from scaleout.operators.trial import CollectOperator, EmptyCachesOperator, GateOperator, LaunchOperator
from training.wire.names import TrialKey


def trial(key: TrialKey) -> TaskGroup:
    slot = {"round_": key.round, "workload": key.workload, "nodes": key.count, "cache_mode": key.cache_mode}
    with TaskGroup(f"r{key.round}_{key.workload}_n{key.count}_{key.cache_mode}", tooltip=str(key)) as group:
        chain(
            GateOperator(task_id="gate", trigger_rule=TriggerRule.ALL_DONE, **slot),
            EmptyCachesOperator(task_id="empty_caches", **slot),
            LaunchOperator(task_id="launch", **slot),
            CollectOperator(task_id="collect", trigger_rule=TriggerRule.NONE_SKIPPED, **slot),
        )
    return group


def sweep(cluster_name: str) -> None:
    lock = LockOperator(task_id="lock")
    # Whatever happens after `lock` both run, also in a run that is marked failed, and the results decide how it ends.
    compile_results = CompileResultsOperator(task_id="compile_results").as_teardown(
        setups=lock, on_failure_fail_dagrun=True
    )
    unlock = UnlockOperator(task_id="unlock").as_teardown(setups=lock)
    chain(
        PlanOperator(task_id="plan", cluster=cluster_name),
        lock,
        PreflightOperator(task_id="preflight"),
        DeployOperator(task_id="deploy"),
        PrepareDataOperator(task_id="prepare_data"),
        *[trial(key) for key in slots],
        compile_results,
        unlock,
    )


try:
    cluster = files.load_cluster(settings.cluster_name())
    form, slots, schedule = trigger_form(cluster), trial_slots(cluster), nightly_schedule(cluster)
    problem = None
except ConfigError as error:
    form, schedule, problem = {}, None, str(error)

with DAG(
    "scaling_benchmark",
    description="Training throughput and storage bandwidth against node count, with proof of the cache state",
    schedule=schedule,
    catchup=False,
    max_active_runs=1,
    params=form,
    doc_md=__doc__,
    tags=["scaleout"],
    default_args=RETRIES,
):
    if problem is None:
        sweep(cluster.name)
    else:
        RefuseOperator(task_id="configuration", sentence=problem)
