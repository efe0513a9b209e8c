"""The DAG as Airflow's own parser sees it, in a process of its own with a home of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trials import CHECKOUT, config_folder, environment

HERE = Path(__file__).parent
NODES = "nodes:\n" + "".join(f"  - {{name: n{i}, connection: c{i}}}\n" for i in range(1, 5))
FOUR = f"""\
name: four
{NODES}node_counts: [1, 4]
cityscapes: /mnt/c
prepared: /mnt/p
processes_per_node: 8
array: {{kind: none}}
"""
BROKEN = FOUR.replace("name: four", "name: broken").replace("processes_per_node", "proceses_per_node")


@pytest.fixture(scope="module")
def parses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the parser found: as shipped, with another cluster, and with each kind of file wrong."""
    tmp = tmp_path_factory.mktemp("dag")

    def folder(name: str, change: Any = lambda path: None) -> dict[str, str]:
        path = config_folder(tmp / name)
        (path / "clusters/four.yaml").write_text(FOUR)
        (path / "clusters/broken.yaml").write_text(BROKEN)
        change(path)
        return {"SCALEOUT_CONFIG_DIR": str(path), "SCALEOUT_CLUSTER": "local"}

    wanted = {
        "shipped": folder("shipped"),
        "four": folder("four") | {"SCALEOUT_CLUSTER": "four"},
        "broken cluster": folder("broken") | {"SCALEOUT_CLUSTER": "broken"},
        "no such cluster": folder("none") | {"SCALEOUT_CLUSTER": "foor"},
        "broken preset": folder("preset", lambda p: (p / "presets/nightly.yaml").write_text("rounds: [\n")),
        "stray workload": folder(
            "stray", lambda p: shutil.copy(p / "workloads/ssd.yaml", p / "workloads/ssd copy.yaml")
        ),
        "no presets": folder("no presets", lambda p: shutil.rmtree(p / "presets")),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "parse_dag.py"), str(CHECKOUT / "dags")],
        input="".join(json.dumps(changes) + "\n" for changes in wanted.values()),
        env=environment(AIRFLOW_HOME=str(tmp / "airflow"), AIRFLOW__CORE__LOAD_EXAMPLES="False"),
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("found ")]
    return dict(zip(wanted, answers, strict=True))


def tasks(parse: dict[str, Any]) -> dict[str, Any]:
    assert parse["errors"] == {}
    (dag,) = parse["dags"].values()
    found: dict[str, Any] = dag["tasks"]
    return found


def in_order(found: dict[str, Any]) -> list[str]:
    """The tasks along the chain from `plan` on. Fails where it is no chain."""
    order, here = [], ["plan"]
    while here:
        (task,) = here
        order.append(task)
        before = {
            name: [u for u in task["upstream"] if not (task["teardown"] and u == "lock")]
            for name, task in found.items()
        }
        here = [name for name in found if order[-1] in before[name] and name != "unlock"]
    return order


STEPS = ("gate", "empty_caches", "launch", "collect")


def test_the_shipped_dag_is_there_and_parses_without_an_error(parses: dict[str, Any]) -> None:
    shipped = parses["shipped"]
    assert shipped["errors"] == {}
    assert list(shipped["dags"]) == ["scaling_benchmark"]
    dag = shipped["dags"]["scaling_benchmark"]
    assert dag["schedule"] is None and dag["max_active_runs"] == 1


def test_the_tasks_run_one_after_the_other_in_the_order_of_the_method(parses: dict[str, Any]) -> None:
    slots = [
        f"r{r}_{workload}_n{n}_{cache}"
        for r in (1, 2, 3)
        for workload in ("segmentation", "ssd")
        for n in (1, 2)
        for cache in ("cold", "warm")
    ]
    assert in_order(tasks(parses["shipped"])) == [
        "plan", "lock", "preflight", "deploy", "prepare_data",
        *[f"{slot}.{step}" for slot in slots for step in STEPS],
        "compile_results",
    ]  # fmt: skip


def test_the_slots_are_the_clusters_node_counts(parses: dict[str, Any]) -> None:
    slots = {name.split(".")[0] for name in tasks(parses["four"]) if "." in name}
    of_ssd = {f"r{r}_ssd_n{n}_{cache}" for r in (1, 2, 3) for n in (1, 4) for cache in ("cold", "warm")}
    assert slots == of_ssd | {slot.replace("ssd", "segmentation") for slot in of_ssd}


def test_a_failed_trial_does_not_keep_the_next_one_from_its_gate_nor_the_results_from_being_compiled(
    parses: dict[str, Any],
) -> None:
    found = tasks(parses["shipped"])
    rules = {name: task["rule"] for name, task in found.items()}
    assert {rule for name, rule in rules.items() if name.endswith(".gate")} == {"all_done"}
    assert rules["compile_results"] == "all_done_setup_success"


def test_nothing_is_launched_after_caches_that_could_not_be_emptied_and_what_ran_is_always_collected(
    parses: dict[str, Any],
) -> None:
    rules = {name.split(".")[-1]: task["rule"] for name, task in tasks(parses["shipped"]).items() if "." in name}
    assert rules == {
        "gate": "all_done", "empty_caches": "all_success", "launch": "all_success", "collect": "none_skipped",
    }  # fmt: skip


def test_before_the_trials_each_task_needs_the_one_before_it(parses: dict[str, Any]) -> None:
    found = tasks(parses["shipped"])
    assert {found[name]["rule"] for name in ("plan", "lock", "preflight", "deploy", "prepare_data")} == {"all_success"}


def test_the_lock_is_given_back_whatever_happened_and_the_results_decide_the_runs_state(parses: dict[str, Any]) -> None:
    found = tasks(parses["shipped"])
    assert found["lock"]["setup"] and found["unlock"]["teardown"]
    assert found["unlock"]["upstream"] == ["compile_results", "lock"]
    followed = {upstream for name, task in found.items() if name != "unlock" for upstream in task["upstream"]}
    assert set(found) - followed - {"unlock"} == {"compile_results"}
    decides = {name for name, task in found.items() if task["teardown"] and task["fails_the_run"]}
    assert decides == {"compile_results"}


def test_tasks_that_die_are_tried_again_soon_and_none_is_for_what_it_says_itself(parses: dict[str, Any]) -> None:
    for task in tasks(parses["shipped"]).values():
        assert task["retries"] > 1 and task["retry_delay_s"] <= 10
        assert task["retried_after"] == {"SystemExit": "fail", "ValueError": "fail", "AirflowTaskTimeout": "fail"}


def test_the_form_has_every_field_that_is_validated(parses: dict[str, Any]) -> None:
    from scaleout.config.form import Form

    assert parses["shipped"]["dags"]["scaling_benchmark"]["form"] == sorted(Form.model_fields)


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        (
            "broken cluster",
            "clusters/broken.yaml:10: unknown key 'proceses_per_node'; did you mean 'processes_per_node'?",
        ),
        ("no such cluster", "no cluster named 'foor' in {folder}/clusters; did you mean 'four'?"),
        ("stray workload", "workloads/ssd copy.yaml: 'ssd copy' is no name of a workload"),
        ("broken preset", "presets/nightly.yaml:2: not YAML: expected the node content"),
    ],
)
def test_a_wrong_file_gives_a_dag_whose_one_task_says_what_is_wrong(
    case: str, sentence: str, parses: dict[str, Any]
) -> None:
    found = tasks(parses[case])
    assert list(found) == ["configuration"]
    told = found["configuration"]["sentence"]
    assert all(part in told for part in sentence.split("{folder}"))
    assert told.count("\n") == 0 or case == "broken cluster"


def test_without_presets_there_is_a_dag_whose_plan_will_say_so(parses: dict[str, Any]) -> None:
    assert "plan" in tasks(parses["no presets"])


def test_parsing_loads_nothing_heavy(parses: dict[str, Any]) -> None:
    assert [name for parse in parses.values() for name in parse["heavy"]] == []


def test_what_parsing_imports_of_ours_loads_no_template_engine_either(parses: dict[str, Any]) -> None:
    """Airflow itself loads jinja2, so ours is tried without Airflow."""
    ours = [name for name in parses["shipped"]["ours"] if not name.startswith("scaleout.operators")]
    assert "scaleout.steps.compile_results" in ours
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print([name for name in ('airflow', 'jinja2', 'matplotlib', 'numpy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *ours], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == "[]\n"
