"""A cluster: its nodes, its NAS, and what its owner wants of a launch. Source: `clusters/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveFloat, PositiveInt, model_validator

from scaleout.config.cron import valid_cron, valid_timezone
from scaleout.config.form import NightlyForm
from scaleout.config.inflation import DatasetFactor
from scaleout.config.model import Model, RemotePath, placed
from scaleout.config.workload import Device

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=63)]
Interface = Annotated[
    str, Field(pattern=r"^[^\s/,=^]{1,15}(,[^\s/,=^]{1,15})*$", description="a name, or several with commas")
]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
MOST_COUNTS = 8


class Node(Model):
    """One node: the Airflow connection that reaches it, and the address that its peers reach it by.

    `network_interface` is the node's own, where it is not called like the others'.
    """

    name: Name
    connection: str
    address: str | None = None
    network_interface: Interface | None = None


class OneFS(Model):
    """An Isilon or PowerScale array: `isi_for_array isi_flush` over SSH to one of its nodes, which flushes all of them."""

    kind: Literal["onefs"]
    connection: str
    nodes: PositiveInt
    sudo: bool = False
    settle_s: Annotated[float, Field(ge=0)] = 10.0
    timeout_s: PositiveFloat = 600.0


class CommandArray(Model):
    """Any array whose cache a command empties: exit status 0 means emptied."""

    kind: Literal["command"]
    connection: str
    command: Annotated[list[str], Field(min_length=1)]
    settle_s: Annotated[float, Field(ge=0)] = 10.0
    timeout_s: PositiveFloat = 600.0


class NoArray(Model):
    """No array to flush: a cold read can then only be proved up to the nodes."""

    kind: Literal["none"]


Array = Annotated[OneFS | CommandArray | NoArray, Field(discriminator="kind")]


class Cluster(Model):
    """The nodes in the order in which trials take them: a trial on n nodes runs on the first n.

    `dataset_factor` is how large a data set its storage shall hold, where the form does not say; null: what the preset has.

    `nightly` (cron, in `timezone`) starts a sweep with `nightly_form` when the DAG is not paused. One that could not begin
    within `nightly_late_s` of its time is skipped.

    A gang that nobody renews for `lease_s`, and a lock that nobody renews for `lock_ttl_s`, are given up; null: as long as
    whoever starts a dead task again needs for it. A gang of which no rank makes progress for `no_progress_s` (null: for
    ever) is stopped, and so is one with a node that is out of reach for `node_patience_s`.
    """

    name: Name
    description: str = ""
    nodes: Annotated[list[Node], Field(min_length=1)]
    python: str = "python3"
    remote_root: RemotePath = "~/scaleout"
    cityscapes: RemotePath
    prepared: RemotePath
    dataset_factor: DatasetFactor = None
    device: Device = "cuda"
    processes_per_node: PositiveInt
    node_counts: list[PositiveInt] | None = None
    network_interface: Interface | None = None
    environment: dict[Variable, str] = {}
    array: Array
    timezone: Annotated[str, AfterValidator(valid_timezone)] = "UTC"
    nightly: Annotated[str, AfterValidator(valid_cron)] | None = None
    nightly_form: NightlyForm = NightlyForm()
    nightly_late_s: PositiveFloat = 1800.0
    connect_timeout_s: PositiveFloat = 20.0
    lock_ttl_s: PositiveFloat | None = None
    lease_s: PositiveFloat | None = None
    grace_s: PositiveFloat = 10.0
    no_progress_s: PositiveFloat | None = 1800.0
    node_patience_s: PositiveFloat = 30.0

    @model_validator(mode="after")
    def _nodes_are_distinct(self) -> Cluster:
        for what in ("name", "connection"):
            seen = [getattr(node, what) for node in self.nodes]
            for index, value in enumerate(seen):
                if value in seen[:index]:
                    raise placed(
                        f"the {what} {value!r} stands more than once; each node needs its own", "nodes", index, what
                    )
        for index, count in enumerate(self.node_counts or []):
            if count > len(self.nodes):
                raise placed(f"{count} is more than the cluster's {len(self.nodes)} nodes", "node_counts", index)
        return self

    def counts(self) -> list[int]:
        """The node counts that the DAG has slots for: as listed, else all up to 8, else powers of two and the whole."""
        whole = len(self.nodes)
        if self.node_counts:
            return sorted(set(self.node_counts))
        if whole <= MOST_COUNTS:
            return list(range(1, whole + 1))
        return sorted({2**k for k in range(whole.bit_length()) if 2**k <= whole} | {whole})
