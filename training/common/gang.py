"""The process group of a trial: who this rank is, and the few ways in which ranks talk outside the gradients."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from training.common.binding import local_world_size
from training.common.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Gang:
    """This rank's place. `backend` is None for a single process, which needs no group.

    `machine_ranks` are those on this rank's machine, also where that stands for several nodes; None: only itself.
    """

    rank: int
    local_rank: int
    world_size: int
    node_rank: int
    device: torch.device
    backend: str | None
    machine_ranks: tuple[int, ...] | None = None

    @classmethod
    def join(cls, local_rank: int, cuda: bool, backend: str) -> Gang:
        """Joins the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe; alone where they are not set.

        `backend` auto: NCCL on GPU, gloo on CPU. Over gloo ranks of a node may share its GPUs; NCCL wants one for each.
        Raises UserError where the node lacks this rank's GPU.
        """
        rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        node_rank = int(os.environ.get("GROUP_RANK", str(rank // local_world_size())))
        device = _device(local_rank, cuda, backend)
        if backend == "auto":
            backend = "nccl" if device.type == "cuda" else "gloo"
        if backend == "nccl" and device.type == "cpu":
            raise UserError("--backend nccl needs a GPU; this process trains on the CPU, where --backend gloo works")
        if world_size == 1:
            return cls(rank, local_rank, world_size, node_rank, device, None)
        dist.init_process_group(backend, device_id=device if backend == "nccl" else None)
        alone = cls(rank, local_rank, world_size, node_rank, device, backend)
        boots: list[object] = [None] * world_size
        dist.all_gather_object(boots, boot_id() or f"node {node_rank}")
        mine = tuple(peer for peer, boot in enumerate(boots) if boot == boots[rank])
        return dataclasses.replace(alone, machine_ranks=mine)

    def agree(self, failed: bool, proposal: int) -> tuple[bool, int]:
        """A barrier that also carries whether any rank failed, and rank 0's proposal. Waits for the GPU first."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.backend is None:
            return failed, proposal
        talk = torch.tensor([int(failed), proposal if self.rank == 0 else 0], device=self._talk_device)
        dist.all_reduce(talk)
        failures, agreed = talk.tolist()
        return failures > 0, agreed

    def barrier(self) -> None:
        """Returns when every rank has come here and its GPU has nothing left to do."""
        self.agree(False, 0)

    def total(self, value: int) -> int:
        """The sum of every rank's `value`."""
        if self.backend is None:
            return value
        talk = torch.tensor([value], dtype=torch.int64, device=self._talk_device)
        dist.all_reduce(talk)
        return int(talk.item())

    def share(self, make: Callable[[], T]) -> T:
        """Rank 0 makes a value and every rank gets it, or the UserError that making it raised."""
        if self.backend is None:
            return make()
        answer: list[object] = [None, None]
        if self.rank == 0:
            try:
                answer = [make(), None]
            except UserError as error:
                answer = [None, str(error)]
        dist.broadcast_object_list(answer, src=0, device=self._talk_device)
        value, problem = answer
        if problem is not None:
            raise UserError(str(problem))
        return value  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank, on rank 0; elsewhere nothing."""
        if self.backend is None:
            return [value]
        values: list[T] | None = [value] * self.world_size if self.rank == 0 else None
        dist.gather_object(value, values)
        return values or []

    def leave(self) -> None:
        """Ends the group. Only for a run that went well: after a failure the peers may be gone."""
        if self.backend is not None:
            dist.destroy_process_group()

    @property
    def _talk_device(self) -> torch.device:
        return self.device if self.backend == "nccl" else torch.device("cpu")


def boot_id() -> str | None:
    """The kernel's id of this boot: processes that share it share a machine. None outside Linux."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else None


def _device(local_rank: int, cuda: bool, backend: str) -> torch.device:
    if not (cuda and torch.cuda.is_available()):
        return torch.device("cpu")
    gpus = torch.cuda.device_count()
    if local_rank >= gpus and backend != "gloo":
        raise UserError(
            f"local rank {local_rank} has no GPU: this node shows {gpus}; start at most one process per GPU "
            "(--nproc_per_node), or give --backend gloo, over which processes may share one"
        )
    device = torch.device("cuda", local_rank % gpus)
    use_gpu(device)
    return device


def use_gpu(device: torch.device) -> None:
    """From now on this thread works on `device`, in a stream of its own.

    The default stream waits for every stream that does not ask to be left out, and is waited for by them ("CUDA Runtime API:
    stream synchronization behavior"). Those in which NVIDIA's library decodes JPEG do not ask: a training in the default
    stream and its input took turns.
    """
    torch.cuda.set_device(device)
    torch.cuda.set_stream(torch.cuda.Stream(device))
