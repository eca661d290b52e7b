"""What training needs of PyTorch: heads, rows as tensors, batches, steps of optimizers, losses and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import torch

from fusehash.errors import DataError
from fusehash.hashers.deep.pixels import Shape, convolution_widths, convolved, flat_width
from fusehash.hashers.deep.recording import CudaRecorder, RecordedStep, Step
from fusehash.numerics.arrays import host, is_foreign
from fusehash.parameters import Progress, rng_for
from fusehash.views import Floats, PairedViews

Tensor: TypeAlias = Any  # torch.Tensor
Optimizer: TypeAlias = Any  # torch.optim.Optimizer
Rows: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]
SAMPLE_ROWS = 1000  # rows over which outputs start with mean zero
KEEP_BYTES = 2**29  # prepared rows up to this size stay in memory between batches
RELU_GAIN = 6.0**0.5  # keeps the size of activations over layers with ReLU
RECORD = True  # steps on a GPU
KEEP_SHARE = 0.5  # of the free memory of a GPU may be taken by prepared rows


class Training:
    """One training run: rows of the views as tensors, seeded batches, and a record of the losses.

    Attributes
    ----------
    losses : list of float
        Mean loss of every epoch so far.
    """

    def __init__(
        self,
        views: PairedViews,
        prepare: Callable[[Floats, str], Floats],
        seed: int,
        device: str | None,
        report: Progress,
    ) -> None:
        self.views, self._prepare, self._seed, self._report = views, prepare, seed, report
        self.device = torch.device(device or "cpu")
        self.n_rows = views.n_rows
        self.image, self.text = views.names
        self.losses: list[float] = []
        self._total, self._n_steps = torch.zeros(2, dtype=torch.float64, device=self.device)  # of losses; of an epoch
        self._rng = rng_for(seed, "batches")
        self.generator = torch.Generator(self.device).manual_seed(seed % 2**63)
        self._kept: dict[str, Tensor] = {}

    def __enter__(self) -> Training:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums over threads differ in their last bits
        n_bytes = 4 * self.n_rows * sum(self.views.n_features.values())
        if self.views.in_memory and n_bytes <= self._most_kept():
            for name in self.views:
                self._kept[name] = kept = torch.empty(self.n_rows, self.views.n_features[name], device=self.device)
                for rows in self.views.blocks():
                    kept[rows] = self._read(name, rows)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kept.clear()
        torch.set_num_threads(self._threads)

    def _most_kept(self) -> int:
        if self.device.type != "cuda":
            return KEEP_BYTES
        return int(KEEP_SHARE * torch.cuda.mem_get_info(self.device)[0])

    # -- rows ----------------------------------------------------------------------------------------------------

    def rows(self, name: str, rows: Any) -> Tensor:
        """Some prepared rows of a view on the device."""
        if name in self._kept:
            return self._kept[name][rows if isinstance(rows, slice) else self.index(rows)]
        return self._read(name, rows)

    def _read(self, name: str, rows: Any) -> Tensor:
        if self.device.type != "cpu":
            return self._read_there(name, rows)
        return self.tensor(self._prepare(self.views.block(name, rows), name))

    def _read_there(self, name: str, rows: Any) -> Tensor:
        """Rows that are prepared on the device, which is quicker than on the host."""
        block = self.views.dense(name, rows)
        block = torch.as_tensor(host(block) if is_foreign(block) else block, device=self.device)
        prepared: Tensor = self._prepare(block.double(), name)
        return prepared.float()

    def pair(self, rows: Any) -> tuple[Tensor, Tensor]:
        """Some prepared rows of both views."""
        return self.rows(self.image, rows), self.rows(self.text, rows)

    def blocks(self) -> Iterator[slice]:
        """Row slices that cover the training rows."""
        return self.views.blocks()

    def tensor(self, array: Any) -> Tensor:
        """An array in single precision on the device."""
        return torch.as_tensor(np.ascontiguousarray(array, dtype=np.float32), device=self.device)

    def index(self, rows: Rows | Tensor) -> Tensor:
        """Row numbers on the device."""
        return torch.as_tensor(rows, device=self.device)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.device)

    def normal(self, *shape: int) -> Tensor:
        """N(0, 1), seeded, the same on every device."""
        return self.tensor(self._rng.standard_normal(shape))

    # -- parts of networks ---------------------------------------------------------------------------------------

    def heads(
        self,
        layers: tuple[Sequence[int], Sequence[int]],
        n_bits: int,
        dropout: float = 0.0,
        output_std: float | None = None,
        image_shape: Shape | None = None,
    ) -> tuple[Head, Head]:
        """A new head for the image and one for the text, whose outputs have mean zero over a sample of the rows.

        With `image_shape` the image is rows of pixels, and its head has convolutions first.

        Deep features are far from the origin, so that random outputs are nearly the same for all rows; without the
        shift, some seeds stay for dozens of epochs where all rows have one code.
        """
        n_features = self.views.n_features
        text = Head(self, f"{self.text} head", [n_features[self.text], *layers[1], n_bits], dropout)
        if image_shape is None:
            image = Head(self, f"{self.image} head", [n_features[self.image], *layers[0], n_bits], dropout)
        else:
            image = PixelHead(self, f"{self.image} head", image_shape, [*layers[0], n_bits])
        if output_std is not None:
            text.weights[-2].data = output_std * self.normal(*text.weights[-2].shape)
        sample = np.sort(rng_for(self._seed, "sample").permutation(self.n_rows)[:SAMPLE_ROWS])
        for name, head in ((self.image, image), (self.text, text)):
            with torch.no_grad():
                head.weights[-1] -= head(self.rows(name, sample), learning=False).mean(0)
        return image, text

    def decoders(self, layers: tuple[Sequence[int], Sequence[int]], n_bits: int) -> tuple[Head, Head]:
        """Networks from codes to the rows of both views, with the hidden layers of heads in reverse."""
        image, text = (
            Head(self, f"{name} decoder", [n_bits, *reversed(widths), self.views.n_features[name]])
            for name, widths in zip((self.image, self.text), layers, strict=True)
        )
        return image, text

    def linear(self, name: str, n_inputs: int, n_outputs: int, gain: float = 1.0) -> tuple[Tensor, Tensor]:
        """Weights and biases of a linear layer, from the uniform distribution that PyTorch starts with."""
        bound = gain * n_inputs**-0.5
        rng = rng_for(self._seed, name)
        W = self.tensor(rng.uniform(-bound, bound, (n_inputs, n_outputs)))
        b = self.tensor(rng.uniform(-bound, bound, n_outputs))
        return W.requires_grad_(), b.requires_grad_()

    def parameter(self, value: Tensor) -> Tensor:
        """A tensor that is learned."""
        return value.requires_grad_()

    def drop(self, X: Tensor, share: float) -> Tensor:
        """Dropout: zeros in a random share of the entries, the others scaled up."""
        kept = torch.rand(X.shape, generator=self.generator, device=self.device) >= share
        return X * kept / (1.0 - share)

    # -- steps ---------------------------------------------------------------------------------------------------

    def sgd(self, weights: Sequence[Tensor], rate: float, **settings: Any) -> Optimizer:
        """Its rate is a tensor if steps are recorded, so that these see a new one."""
        lr = torch.tensor(rate, device=self.device) if self._records else rate
        return torch.optim.SGD(weights, lr, fused=True, **settings)

    def adam(self, weights: Sequence[Tensor], rate: float, **settings: Any) -> Optimizer:
        return torch.optim.Adam(weights, rate, fused=True, capturable=self._records, **settings)

    def recorded(self, step: Step) -> Step:
        """A function of tensors that makes steps; on a GPU it is recorded and replayed (see `recording`)."""
        return RecordedStep(step, CudaRecorder(self.device, self.generator)) if self._records else step

    @property
    def _records(self) -> bool:
        return RECORD and self.device.type == "cuda"

    def epochs(self, count: int, first: int = 0, total: int | None = None) -> Iterator[int]:
        """`count` numbers from `first`; after each the mean loss of its steps is recorded and reported."""
        total = count if total is None else total
        for epoch in range(first, first + count):
            yield epoch
            loss = float(self._total) / max(float(self._n_steps), 1.0)
            self._total.zero_()
            self._n_steps.zero_()
            if not np.isfinite(loss):
                raise DataError("Training must converge. Its loss is no finite number; try a smaller learning_rate.")
            self.losses.append(loss)
            self._report(epoch + 1, total, f"epoch {epoch + 1}, loss {loss:.6g}")

    def batches(self, size: int, *, drop_last: bool = True) -> Iterator[Rows | Tensor]:
        """All rows in random order, in batches. With `drop_last` (or a rest of one row) the rest is left out.

        Row numbers are on the device if the rows are, so that no step waits for a copy.
        """
        size = min(size, self.n_rows)
        order = self._rng.permutation(self.n_rows)
        order = self.index(order) if self._kept else order
        for start in range(0, self.n_rows, size):
            rows = order[start : start + size]
            if len(rows) == size or (not drop_last and len(rows) > 1):
                yield rows

    def draw(self, count: int, size: int) -> Iterator[Rows]:
        """`count` batches of different rows, each drawn from all."""
        for _ in range(count):
            yield self._rng.choice(self.n_rows, min(size, self.n_rows), replace=False)

    def numbers(self, high: int, shape: tuple[int, ...]) -> Tensor:
        """Random integers below `high`, made on the device."""
        return torch.randint(high, shape, generator=self.generator, device=self.device)

    def step(self, loss: Tensor, *optimizers: Optimizer, clip: float | None = None) -> None:
        """One step down the gradient of the loss."""
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(
                [w for o in optimizers for group in o.param_groups for w in group["params"]], clip
            )
        for optimizer in optimizers:
            optimizer.step()
        self._note(loss)

    def step_along(self, output: Tensor, gradient: Tensor, loss: Tensor, optimizer: Optimizer) -> None:
        """One step along a gradient with respect to an output that is known in closed form."""
        optimizer.zero_grad()
        output.backward(gradient)
        optimizer.step()
        self._note(loss)

    @staticmethod
    def set_rate(optimizer: Optimizer, rate: float) -> None:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = float(rate)

    def _note(self, loss: Tensor) -> None:
        self._total += loss.detach()
        self._n_steps += 1.0

    def mixed(self, enabled: bool) -> Any:
        """A context in which products are in bfloat16."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def no_grad(self) -> Any:
        return torch.no_grad()


class Head:
    """Linear - ReLU - (dropout) - ... - Linear; `weights` are W_1, b_1, W_2, b_2, ...

    Inputs are multiplied by the root of their width, so that the entries of a row of unit length are about 1, as those
    of the networks that the authors take features from. Rows of unit length as they are learn five times as slowly, and
    some seeds stay for dozens of epochs where all rows have one code. The factor becomes part of the stored weights.
    """

    def __init__(self, training: Training, name: str, widths: Sequence[int], dropout: float = 0.0) -> None:
        self.weights: list[Tensor] = []
        self._training, self._dropout, self._scale = training, dropout, widths[0] ** 0.5
        for i in range(len(widths) - 1):
            self.weights += training.linear(f"{name} {i}", widths[i], widths[i + 1])

    def __call__(self, X: Tensor, *, learning: bool = True) -> Tensor:
        """The outputs, one per bit; with dropout while learning."""
        X = self._scale * X
        for i in range(0, len(self.weights), 2):
            if i:
                X = torch.relu(X)
                X = self._training.drop(X, self._dropout) if self._dropout and learning else X
            X = torch.addmm(self.weights[i + 1], X, self.weights[i])
        return X

    def scale_outputs(self, factors: Tensor) -> None:
        """Multiply every output by a number."""
        with torch.no_grad():
            self.weights[-2], self.weights[-1] = self.weights[-2] * factors, self.weights[-1] * factors

    def arrays(self) -> list[Floats]:
        """The weights as they are stored, in single precision."""
        stored: list[Any] = [np.array(host(weight), dtype=np.float32) for weight in self.weights]
        stored[0] *= np.float32(self._scale)
        return stored


class PixelHead(Head):
    """Convolutions with ReLU, then linear layers: a head on rows of pixels."""

    def __init__(self, training: Training, name: str, shape: Shape, widths: Sequence[int]) -> None:
        self._shape = shape
        kernels: list[Tensor] = []
        for i, (n_inputs, n_outputs) in enumerate(convolution_widths(shape)):
            kernels += training.linear(f"{name} convolution {i}", n_inputs, n_outputs, RELU_GAIN)
        super().__init__(training, name, [flat_width(shape), *widths])
        self._n_kernels, self._scale = len(kernels), float(np.prod(shape)) ** 0.5
        self.weights = [*kernels, *self.weights]

    def __call__(self, X: Tensor, *, learning: bool = True) -> Tensor:
        X = convolved(self._scale * X, self.weights[: self._n_kernels], self._shape)
        for i in range(self._n_kernels, len(self.weights), 2):
            X = torch.relu(X) if i > self._n_kernels else X
            X = torch.addmm(self.weights[i + 1], X, self.weights[i])
        return X
