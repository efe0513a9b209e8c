"""The SSH targets behind Airflow connections."""

from __future__ import annotations

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from scaleout.array.make import array_connection
from scaleout.config.cluster import Cluster
from scaleout.errors import ConfigError
from scaleout.remote.target import Target, target_of


def targets_of(cluster: Cluster) -> dict[str, Target]:
    """The targets of a cluster's nodes and array, by connection. Raises ConfigError for a connection that is missing."""
    names = {node.connection: node.name for node in cluster.nodes}
    array = array_connection(cluster)
    if array:
        names[array] = "array"
    return {connection: _target(connection, name) for connection, name in names.items()}


def _target(connection_id: str, name: str) -> Target:
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowException as error:
        raise ConfigError(f"{name}: Airflow has no connection {connection_id!r}: add it (type ssh), {error}") from None
    return target_of(
        name,
        host=connection.host,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        extra=connection.extra_dejson,
    )
