"""Any image or text encoder in the ONNX format, from a local file, through onnxruntime.

All batches have the same shape (the last one is padded) and run on one thread each, several at a time, so that a row
does not depend on the other rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash import trust
from fusehash.encoders.base import PretrainedEncoder, Progress, Single, unit_rows
from fusehash.encoders.images import ImageEncoder
from fusehash.encoders.reading import MAX_PIXELS
from fusehash.encoders.texts import TextEncoder
from fusehash.errors import DataError, ParameterError, first_line
from fusehash.extras import require
from fusehash.parameters import Rule, flag, integer, optional, real, sequence, string

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def _path(what: str) -> Rule:
    return Rule(f"the path of {what}", lambda value: isinstance(value, str | Path))


def _per_color(number: Rule, what: str) -> Rule:
    return Rule(f"three finite {what}", lambda value: sequence(number, "").accepts(value) and len(value) == 3)


class OnnxEncoder(PretrainedEncoder):
    """What image and text encoders in the ONNX format share: the file, its session, its output."""

    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "path": _path("an ONNX file"), "output": optional(string()), "normalize": flag()
    }  # fmt: skip

    path: Any
    output: str | None
    normalize: bool
    batch_size: int
    n_jobs: int | None

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        self.digest_ = digest(Path(self.path))
        super()._fit(items, progress)

    def identity(self) -> str:
        return digest(Path(self.path))

    def _load(self) -> tuple[Any, ...]:
        path = Path(self.path)
        if hasattr(self, "digest_") and digest(path) != self.digest_:
            raise DataError(f"'{path}' must be the model that the encoder was made with. It has changed.")
        return (session(path),)

    def _session(self) -> Any:
        return self._loaded()[0]

    def _batch_rows(self) -> int:
        """Rows per batch: the number that the model fixes, or `batch_size` if it takes any."""
        fixed = self._session().get_inputs()[0].shape[0]
        return fixed if isinstance(fixed, int) and fixed > 0 else self.batch_size

    def _run(self, feed: dict[str, Any]) -> Single:
        """The output as one row per item: the mean over tokens or positions."""
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        names = [each.name for each in self._session().get_outputs()]
        name = names[0] if self.output is None else self.output
        if name not in names:
            raise ParameterError(type(self).__name__, "output", f"one of {', '.join(map(repr, names))}", self.output)
        try:
            (values,) = self._session().run([name], feed)
        except (state.Fail, state.InvalidArgument, state.RuntimeException) as error:
            rule = f"'{self.path}' must accept what {type(self).__name__} gives it."
            raise DataError(f"{rule} {first_line(error)[:200]}.") from error
        values = np.asarray(values, dtype=np.float32)
        if values.ndim == 3:
            mask = feed.get("attention_mask", np.ones(values.shape[:2]))[..., None].astype(np.float32)
            values = (values * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1.0)
        elif values.ndim == 4:
            values = values.mean(axis=(2, 3))
        if values.ndim != 2:
            raise DataError(f"Output '{name}' of '{self.path}' must have 2 to 4 dimensions. It has {values.ndim}.")
        return unit_rows(values) if self.normalize else values

    def _in_batches(self, columns: dict[str, Any]) -> Single:
        """Run any number of rows in batches of one size; the last batch is filled up with copies of its first row."""
        rows, total = self._batch_rows(), len(next(iter(columns.values())))
        parts = []
        for start in range(0, total, rows):
            count = min(rows, total - start)
            batch = [*range(start, start + count), *[start] * (rows - count)]
            parts.append(self._run({name: values[batch] for name, values in columns.items()})[:count])
        return np.concatenate(parts)


class OnnxImageEncoder(OnnxEncoder, ImageEncoder):
    """An image encoder in the ONNX format: one input (rows, 3, size, size), one vector per image.

    The shorter side is resized to `size`, the center is cropped, and values x in 0..1 become (x - mean) / std.

    Parameters
    ----------
    path : str or Path
        The ONNX file.
    size : int, default=224
        Side of the square that the model takes.
    mean, std : sequence of 3 floats
        Of red, green and blue; by default those of ImageNet.
    output : str or None, default=None
        Name of the output; None for the first.
    normalize : bool, default=True
        Scale every row to length 1.
    batch_size : int, default=8
        Images per batch, if the model does not fix it.
    max_pixels : int, default=64_000_000
        Larger images are not decoded.
    n_jobs : int or None, default=None
        Number of threads; None for all cores. The features do not depend on it.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("onnx", modality="image", path="model.onnx")
    OnnxImageEncoder(path='model.onnx')
    """

    name: ClassVar[str] = "onnx"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "size": integer(1),
        "mean": _per_color(real(-np.inf), "numbers"),
        "std": _per_color(real(strict=True), "positive numbers"),
    }

    def __init__(
        self, *, path: Any = None, size: int = 224, mean: Any = IMAGENET_MEAN, std: Any = IMAGENET_STD,
        output: str | None = None, normalize: bool = True, batch_size: int = 8, max_pixels: int = MAX_PIXELS,
        n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        self.path, self.size, self.mean, self.std, self.output = path, size, mean, std, output
        self.normalize, self.batch_size, self.max_pixels, self.n_jobs = normalize, batch_size, max_pixels, n_jobs

    def _feed(self, pixels: Single) -> dict[str, Any]:
        inputs = self._session().get_inputs()
        if len(inputs) != 1 or inputs[0].type not in FLOATS or len(inputs[0].shape) != 4:
            got = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise DataError(f"'{self.path}' must take one input of floats (rows, 3, height, width). Got {got}.")
        return {inputs[0].name: pixels.astype(FLOATS[inputs[0].type])}

    @property
    def _decode_side(self) -> int:
        return 2 * self.size

    def _features(self, image: Image) -> Single:
        return normalized_pixels(image, self.size, self.mean, self.std)

    def _rows(self, contents: list[Any]) -> Single:
        return self._in_batches(self._feed(np.stack(contents)))


class OnnxTextEncoder(OnnxEncoder, TextEncoder):
    """A text encoder in the ONNX format: token numbers in, one vector per text, or the mean of one per token.

    Parameters
    ----------
    path : str or Path
        The ONNX file; its inputs are among input_ids, attention_mask and token_type_ids.
    tokenizer : str or Path
        The tokenizer.json that belongs to it.
    max_length : int, default=64
        Texts are cut or padded to this many tokens.
    output, normalize, batch_size, n_jobs
        As in `OnnxImageEncoder`.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("onnx", modality="text", path="model.onnx", tokenizer="tokenizer.json")
    OnnxTextEncoder(path='model.onnx', tokenizer='tokenizer.json')
    """

    name: ClassVar[str] = "onnx"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"tokenizer": _path("a tokenizer.json"), "max_length": integer(1)}

    def __init__(
        self, *, path: Any = None, tokenizer: Any = None, max_length: int = 64, output: str | None = None,
        normalize: bool = True, batch_size: int = 8, n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        self.path, self.tokenizer, self.max_length, self.output = path, tokenizer, max_length, output
        self.normalize, self.batch_size, self.n_jobs = normalize, batch_size, n_jobs

    def _load(self) -> tuple[Any, ...]:
        return (*super()._load(), load_tokenizer(Path(self.tokenizer), self.max_length))

    def _rows(self, contents: list[str]) -> Single:
        return self._in_batches(self._feed(contents))

    def _feed(self, texts: list[str]) -> dict[str, Any]:
        session, tokenizer = self._loaded()
        try:
            encoded = tokenizer.encode_batch([text.encode("utf-8", "replace").decode() for text in texts])
        except Exception as error:  # the package raises nothing more special
            raise DataError(f"'{self.tokenizer}' must be a tokenizer of any text. It is not: {error}.") from error
        columns = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
            "token_type_ids": [each.type_ids for each in encoded],
        }
        inputs = {each.name: each.type for each in session.get_inputs()}
        if "input_ids" not in inputs or any(name not in columns for name in inputs):
            raise DataError(f"'{self.path}' must take inputs among {', '.join(columns)}. Got {', '.join(inputs)}.")
        return {name: np.array(columns[name], dtype=INTEGERS.get(kind, np.int64)) for name, kind in inputs.items()}


def normalized_pixels(image: Image, size: int, mean: Any, std: Any) -> Single:
    """(3, size, size), as `OnnxImageEncoder` describes."""
    from PIL.Image import Resampling

    # Crop the largest centered square, then resize: same pixels as the other order, and thin images stay small.
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    square = image.resize((size, size), Resampling.BICUBIC, box=(left, top, left + side, top + side))
    values = np.asarray(square, dtype=np.float32) / np.float32(255.0)
    centered = (values - np.asarray(mean, dtype=np.float32)) / np.asarray(std, dtype=np.float32)
    return np.ascontiguousarray(centered.transpose(2, 0, 1))


def session(source: Path | bytes) -> Any:
    """An onnxruntime session on the CPU with one thread per run, of a file or of the content of one."""
    onnxruntime = require("onnxruntime", "The encoder 'onnx'")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        model = onnxruntime.InferenceSession(
            source if isinstance(source, bytes) else str(source), options, providers=["CPUExecutionProvider"]
        )
        _ = [(each.name, each.shape) for each in (*model.get_inputs(), *model.get_outputs())]  # names may be no text
        return model
    except Exception as error:  # one class per kind of damage
        name = "A graph" if isinstance(source, bytes) else repr(str(source))
        raise DataError(f"{name} must be an ONNX model. {first_line(error)[:200]}.") from error


def load_tokenizer(path: Path, max_length: int) -> Any:
    """The tokenizer of a tokenizer.json; cuts or pads every text to `max_length` tokens."""
    tokenizers = require("tokenizers", "The encoder 'onnx' for texts")
    if not os.path.isfile(path):  # noqa: PTH113 (also for names that are too long)
        raise DataError(f"'{path}' must be a tokenizer.json. There is no such file.")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception
        raise DataError(f"'{path}' must be a tokenizer.json. {first_line(error)[:200]}.") from error
    padding = tokenizer.padding or {}
    pad = padding.get("pad_token") or next((t for t in ("[PAD]", "<pad>") if tokenizer.token_to_id(t) is not None), "")
    number = padding.get("pad_id", tokenizer.token_to_id(pad) or 0)
    tokenizer.enable_padding(pad_id=number, pad_token=pad or "[PAD]", length=max_length)
    tokenizer.enable_truncation(max_length)
    return tokenizer


def digest(path: Path) -> str:
    """SHA-256 of a file, to notice that another model has taken its name."""
    if not path.is_file():
        raise DataError(f"'{path}' must be an ONNX model. There is no such file.")
    with path.open("rb") as file:
        return trust.sha256_of(file)
