"""Steps of training as one launch: on a GPU they are recorded once and replayed.

A step with batches of 32 rows starts a hundred small kernels. The GPU is done with each sooner than the host has
started the next, so that a fit takes as long as the host needs; a recorded step is started as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch

from fusehash.errors import first_line, warn

Tensor: TypeAlias = Any  # torch.Tensor
Step: TypeAlias = Callable[..., None]
FIRST_CALLS = 3  # run as they are: an optimizer makes its state in the first


class Recorder(Protocol):
    """What can run a function of tensors once, or record it."""

    def run(self, step: Step, inputs: Sequence[Tensor]) -> None: ...

    def record(self, step: Step, inputs: Sequence[Tensor]) -> Callable[[], None]:
        """What repeats step(*inputs) with the values that the inputs then have."""


class RecordedStep:
    """A function of tensors whose effect is on other tensors, in place.

    The first calls run as they are; then the function is recorded, and later calls replay it. A call with inputs of
    other shapes, such as the last batch of an epoch, runs as it is. What the function reads and writes must stay where
    it is: no number of the host that changes between calls, no new tensor in the place of an old one.
    """

    def __init__(self, step: Step, recorder: Recorder) -> None:
        self._step, self._recorder = step, recorder
        self._calls = 0
        self._inputs: list[Tensor] = []
        self._replay: Callable[[], None] | None = None

    def __call__(self, *inputs: Tensor) -> None:
        self._calls += 1
        if self._calls == FIRST_CALLS + 1:
            self._inputs = [x.clone() for x in inputs]
            self._replay = self._recorder.record(self._step, self._inputs)
        if self._replay is None or [x.shape for x in inputs] != [x.shape for x in self._inputs]:
            self._recorder.run(self._step, inputs)
            return
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._replay()


class Streams(threading.local):
    """One stream for each thread and device: PyTorch keeps 64 MiB of workspaces for every stream that was used."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def on(self, device: Any) -> Any:
        if str(device) not in self._made:
            self._made[str(device)] = torch.cuda.Stream(device)
        return self._made[str(device)]


_streams = Streams()


class CudaRecorder:
    """Records a function as a graph of CUDA, with the random numbers of a generator."""

    def __init__(self, device: Any, generator: Any) -> None:
        self._generator, self._stream = generator, _streams.on(device)

    def run(self, step: Step, inputs: Sequence[Tensor]) -> None:
        """On a stream of its own, as what is recorded later must be."""
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            step(*inputs)
        current.wait_stream(self._stream)

    def record(self, step: Step, inputs: Sequence[Tensor]) -> Callable[[], None]:
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._stream.device)
        graph.register_generator_state(self._generator)
        try:
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                step(*inputs)
        except RuntimeError as error:
            torch.cuda.set_stream(current)
            warn(
                f"Steps could not be recorded on the GPU, so training takes longer. PyTorch says: {first_line(error)}."
            )
            return lambda: self.run(step, inputs)
        return graph.replay
