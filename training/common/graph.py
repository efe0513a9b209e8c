"""A training step as one CUDA graph, which the host launches at once however many kernels it has."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from training.common.errors import TrainingError

_STEPS_BEFORE = 11  # DDP measures itself in its first ten iterations, which a capture cannot hold ("CUDA semantics")
_MAX_PROBLEM = 200


class StepGraph:
    """What is captured must keep its place: state is put back by copying into it, and rates are tensors.

    The model is to be wrapped within `stream`: where DDP's hooks run is decided there.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def captured(self) -> bool:
        return self._graph is not None

    def capture(self, step: Callable[[tuple[Tensor, ...]], Tensor], inputs: tuple[Tensor, ...]) -> None:
        """Makes a few steps as they are, then captures one on a batch of these shapes. Raises TrainingError."""
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(_STEPS_BEFORE):
                step(self._inputs)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()  # replays allocate nothing: the peak is that of the capture
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                self._loss = step(self._inputs)
        except RuntimeError as error:
            problem = " ".join(str(error).split())[:_MAX_PROBLEM]
            raise TrainingError(
                f"the step cannot be captured as a CUDA graph ({problem}); give --no-cuda-graph"
            ) from error
        self._graph = graph

    def replay(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The step on another batch of the same shapes; returns its loss."""
        assert self._graph is not None
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._loss.clone()

    def release(self) -> None:
        """Frees the graph, whose last replay is over. NCCL does not end a group while a graph holds exchanges over it."""
        if self._graph is not None:
            self._graph.reset()
            self._graph = None
