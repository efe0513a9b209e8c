"""The data set of a workload in a sweep: how large, where it lies, what making it takes, and by which command. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scaleout.config.cluster import Cluster
from scaleout.config.form import Choices
from scaleout.config.inflation import PUBLISHED, Inflation
from scaleout.config.workload import Workload
from scaleout.errors import PlanError

MB = 10**6
SECONDS_PER_HOUR = 3600
METHOD_CORES_PER_NODE = 128  # two AMD EPYC 7742 in a DGX A100

Phase = Literal["plan", "make", "finish"]


def factor_of(form: Choices, preset: Choices, cluster: Cluster, workload: Workload) -> int:
    """The form's, else the cluster's, whose storage must hold it, else the preset's. Raises PlanError."""
    asked = form.dataset_factor or cluster.dataset_factor or preset.dataset_factor or 1
    if workload.inflation is None:
        if asked not in (1, PUBLISHED):
            raise PlanError(
                f"dataset_factor {asked} is asked for and workloads/{workload.name}.yaml has no `inflation`, which names the "
                f"program that makes such a data set: add it, or leave {workload.name} out of `workloads`"
            )
        return 1
    return workload.inflation.factor if asked == PUBLISHED else asked


@dataclass(frozen=True)
class Estimate:
    """Of a data set made from the whole of Cityscapes: images of the training split, and what making them takes.

    `bytes` is the most where the images are not brought to a size; copies take no core hours to speak of.
    """

    images: int
    bytes: int
    core_hours: float

    def hours(self, nodes: int) -> float:
        """On so many nodes of METHOD_CORES_PER_NODE cores."""
        return self.core_hours / (nodes * METHOD_CORES_PER_NODE)


def estimate(workload: Workload, inflation: Inflation, factor: int) -> Estimate:
    images = workload.images(factor)
    core_hours = images / inflation.expected_images_per_s_per_core / SECONDS_PER_HOUR
    made = 0.0 if inflation.method == "copy" else core_hours
    return Estimate(images, round(images * inflation.mean_mb * MB), made)


def folder_suffix(inflation: Inflation | None, factor: int) -> str:
    """What tells the folder of a data set from that of the frames themselves; only what is not the default is named."""
    if inflation is None or factor == 1:
        return ""
    fields = Inflation.model_fields
    other = [
        str(getattr(inflation, key)) for key in ("method", "format") if getattr(inflation, key) != fields[key].default
    ]
    if inflation.seed != fields["seed"].default:
        other.append(f"seed{inflation.seed}")
    return "-".join(["", f"x{factor}", *other])


def variants(inflation: Inflation | None, factor: int) -> tuple[str, str]:
    """How the images of a data set are made that are not the frames themselves: ours, and the published way."""
    fields = Inflation.model_fields
    published = f"{fields['method'].default}, {fields['format'].default}"
    return (f"{inflation.method}, {inflation.format}" if inflation and factor > 1 else published), published


def settings_of(inflation: Inflation | None, factor: int) -> dict[str, Any]:
    """By what choices a data set was made, as results record it; null where there are no variants."""
    if inflation is None or factor == 1:
        return {"factor": factor, **dict.fromkeys(("method", "format", "mean_mb", "seed"))}
    return {
        "factor": factor,
        "method": inflation.method,
        "format": inflation.format,
        "mean_mb": inflation.mean_mb if inflation.has_mean_size else None,
        "seed": inflation.seed,
    }


def inflate_flags(inflation: Inflation, factor: int, source: str, out: str) -> list[str]:
    """The flags of its program; `source` is the data set of the frames themselves, both are absolute on the node."""
    return [
        "--source", source,
        "--out", out,
        "--factor", str(factor),
        "--method", inflation.method,
        "--format", inflation.format,
        *(["--mean-mb", f"{inflation.mean_mb:g}"] if inflation.has_mean_size else []),
        "--seed", str(inflation.seed),
    ]  # fmt: skip


def phase_flags(phase: Phase, node_rank: int = 0, nodes: int = 1) -> list[str]:
    """`make` is the phase of all nodes at once, each with its part."""
    return ["--phase", phase, *(["--node", str(node_rank), "--nodes", str(nodes)] if phase == "make" else [])]
