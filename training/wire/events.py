"""The event log of a rank: one JSON object per line, appended, in the order in which things happened.

Every line has `v` (the wire's version), `kind`, `rank`, `t_wall_s` (Unix time) and `t_mono_s` (monotonic clock of the
process). The classes below are the rest of a line, one class per kind. This is the only list of event keys.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal

from training.wire import VERSION
from training.wire.schema import WireError, from_dict, to_dict


@dataclass(frozen=True)
class Dataset:
    """The training split as the rank sees it. `shard_images` is this rank's share of one epoch, padding included."""

    root: str
    images: int
    image_bytes: int
    label_bytes: int
    mean_image_bytes: float
    manifest_sha256: str | None
    shard_images: int
    sharding: str


@dataclass(frozen=True)
class RunStart:
    """The first event: who runs what. `argv` is the program's own command line.

    `first_epoch` is more than 0 where a checkpoint is resumed; `binding` says why the rank runs on its `affinity`,
    `step` whether its steps are compiled, and how they are launched. `gpu_index` is the rank's GPU as nvidia-smi counts
    those of the machine, null on CPUs and where NVML does not tell.
    """

    kind: ClassVar[str] = "run_start"
    program: str
    argv: list[str]
    run_id: str | None
    node: str
    hostname: str
    boot_id: str | None
    pid: int
    node_rank: int
    local_rank: int
    world_size: int
    device: str
    device_name: str
    backend: str | None
    ddp: str
    precision: str
    loader: str
    seed: int
    model: str
    classes: list[str]
    parameters: int
    batch_per_gpu: int
    global_batch: int
    num_workers: int
    learning_rate: float
    length: dict[str, float]
    dataset: Dataset | None
    affinity: list[int]
    network_interface: str | None
    versions: dict[str, str]
    first_epoch: int = 0
    binding: str | None = None
    step: str | None = None
    gpu_index: int | None = None


@dataclass(frozen=True)
class Synthetic:
    """Compute on synthetic batches, before the loader opens a file.

    `warmup_steps` ran first, untimed; then `steps` between two barriers took `seconds` and this rank consumed `images`.
    """

    kind: ClassVar[str] = "synthetic"
    warmup_steps: int
    warmup_s: float
    steps: int
    images: int
    seconds: float


@dataclass(frozen=True)
class ClockStart:
    """After the barrier that starts the clock. Weights, optimiser and random states are those from before the warm-up.

    `read_bytes` is the process's counter of bytes fetched from storage (/proc/self/io), null where it cannot be read.
    """

    kind: ClassVar[str] = "clock_start"
    read_bytes: int | None


@dataclass(frozen=True)
class FirstBatch:
    """`seconds` from the start of the clock until this rank held its first batch of real data."""

    kind: ClassVar[str] = "first_batch"
    seconds: float


@dataclass(frozen=True)
class Window:
    """Steps `step_first` … `step_first + steps - 1` (from 0) between two barriers; a window never spans two passes.

    `pass_index` 0 is the first pass over the data since the clock started. `images` are this rank's, padding included.
    `data_wait_s` is host time waiting for batches; `gpu_idle_s` comes from CUDA events, null without a GPU. `loss` is
    the mean over the window's steps.
    """

    kind: ClassVar[str] = "window"
    pass_index: int
    epoch: int
    step_first: int
    steps: int
    images: int
    seconds: float
    data_wait_s: float
    gpu_idle_s: float | None
    loss: float
    learning_rate: float
    host_memory_bytes: int
    gpu_memory_bytes: int | None

    @property
    def waiting_s(self) -> float:
        """Of `seconds`, those without a batch to compute with. The host of a GPU waits for that too: there the GPU's gaps."""
        return self.data_wait_s if self.gpu_idle_s is None else self.gpu_idle_s


@dataclass(frozen=True)
class EpochEnd:
    """The end of a pass over the data, or of the part of it that the trial's length allowed (`complete` false).

    `read_bytes` is the counter of ClockStart as it stood when the pass's last window closed.
    """

    kind: ClassVar[str] = "epoch_end"
    epoch: int
    pass_index: int
    complete: bool
    images: int
    padded_images: int
    seconds: float
    read_bytes: int | None


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint is on disk, after `epoch` completed epochs. All ranks waited `seconds` for its `bytes`."""

    kind: ClassVar[str] = "checkpoint"
    epoch: int
    path: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class ClockStop:
    """After the last step's barrier. `distinct_*` count the files that this rank consumed, `first_pass_distinct_bytes`
    those of the first pass: each once on its machine (boot id), for the first of its ranks that consumes it.

    `read_bytes` is the same counter as at the start of the clock; read-ahead and prefetched batches are in it.
    `file_wait_s` is the part of the windows' `data_wait_s` in which files were not read yet, null where the loader cannot
    tell.
    """

    kind: ClassVar[str] = "clock_stop"
    steps: int
    images: int
    seconds: float
    distinct_files: int
    distinct_bytes: int
    first_pass_distinct_bytes: int
    prefetched_images: int
    read_bytes: int | None
    file_wait_s: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """The figures on the whole validation set after `epoch`, the same on every rank.

    `metrics` by COCO's names (AP, AP50, …), or mIoU, pixel_accuracy and loss; null where nothing defines them.
    `per_class` is AP, or IoU. `images` and `detections` count those of all ranks; `detections` is null where none are made.
    """

    kind: ClassVar[str] = "evaluation"
    epoch: int
    images: int
    detections: int | None
    seconds: float
    metrics: dict[str, float | None]
    per_class: dict[str, float | None]


@dataclass(frozen=True)
class RunEnd:
    """The last event. `error` is one line, null when `status` is "succeeded"."""

    kind: ClassVar[str] = "run_end"
    status: Literal["succeeded", "failed"]
    error: str | None


Body = (
    RunStart
    | Synthetic
    | ClockStart
    | FirstBatch
    | Window
    | EpochEnd
    | CheckpointSaved
    | ClockStop
    | Evaluation
    | RunEnd
)
KINDS: dict[str, type[Body]] = {
    c.kind: c
    for c in (
        RunStart,
        Synthetic,
        ClockStart,
        FirstBatch,
        Window,
        EpochEnd,
        CheckpointSaved,
        ClockStop,
        Evaluation,
        RunEnd,
    )
}


@dataclass(frozen=True)
class Stamp:
    """What every line begins with, after its version and its kind."""

    rank: int
    t_wall_s: float
    t_mono_s: float


@dataclass(frozen=True)
class Event:
    """One line of the log: its stamp and its body (one of the classes above)."""

    rank: int
    t_wall_s: float
    t_mono_s: float
    body: Body


class EventLog:
    """Appends events to a file, each line whole and handed to the operating system at once."""

    def __init__(self, path: Path, rank: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._rank = rank

    def write(self, body: Body) -> None:
        line = {
            "v": VERSION,
            "kind": body.kind,
            "rank": self._rank,
            "t_wall_s": time.time(),
            "t_mono_s": time.monotonic(),
            **to_dict(body),
        }
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def beat(self) -> None:
        """Touches the file: the rank makes progress, though no event is due."""
        os.utime(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file. A last line without its newline (the writer was killed) is left out. Raises WireError."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            yield _parse(line, f"{path}:{number}")


def _parse(line: bytes, where: str) -> Event:
    try:
        document: dict[str, Any] = json.loads(line.decode())
        version, kind = document.pop("v"), document.pop("kind")
        stamp = {key: document.pop(key) for key in ("rank", "t_wall_s", "t_mono_s")}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise WireError(f"{where}: not an event: {error!r}") from error
    if version != VERSION:
        raise WireError(f"{where}: written by version {version} of the wire; this reader knows {VERSION}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise WireError(f"{where}: unknown kind of event {kind!r}")
    found = from_dict(Stamp, stamp, where)
    return Event(found.rank, found.t_wall_s, found.t_mono_s, from_dict(KINDS[kind], document, where))
