"""Any image or text encoder in the ONNX format, from a local file, through onnxruntime.

Batches always have the same shape (the last one is padded) and run on one thread each, several side by side, so that a
row comes out the same whatever stands beside it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash.encoders.base import Batch, Encoder, Progress, Single, check_jobs
from fusehash.encoders.images import ImageEncoder
from fusehash.encoders.onnx_files import digest, load_tokenizer, session
from fusehash.encoders.pixels import check_three, normalized_pixels, unit_rows
from fusehash.encoders.reading import MAX_PIXELS
from fusehash.encoders.texts import TextEncoder
from fusehash.errors import DataError, ParameterError
from fusehash.parameters import check_integer

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


class OnnxEncoder(Encoder):
    """What image and text encoders in the ONNX format share: the file, its session, its output."""

    path: Any
    output: str | None
    normalize: bool
    batch_size: int
    n_jobs: int | None
    digest_: str

    def _check_params(self) -> None:
        owner = type(self).__name__
        if not isinstance(self.path, str | Path):
            raise ParameterError(owner, "path", "the path of an ONNX file", self.path)
        check_integer(owner, "batch_size", self.batch_size, low=1)
        check_jobs(owner, self.n_jobs)

    def check_usable(self) -> None:
        """As nothing is learned, to fit is to load the model and to try it."""
        self.fit([])

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        """Nothing is learned: the file is opened and tried."""
        self.__dict__.pop("_runtime", None)
        self.problems_ = {}
        progress(0, 1, "loading the model")
        self.digest_ = digest(Path(self.path))
        self.n_features_ = int(self._run(self._blank()).shape[1])
        progress(1, 1, "done")

    @abstractmethod
    def _blank(self) -> dict[str, Any]:
        """A batch of nothing, to see what comes out."""

    def _session(self) -> Any:
        if not hasattr(self, "_runtime"):
            path = Path(self.path)
            if hasattr(self, "digest_") and digest(path) != self.digest_:
                raise DataError(f"'{path}' must be the model that the encoder was made with. It has changed.")
            self._runtime = session(path)
        return self._runtime

    def _ready(self) -> None:
        self._session()

    def _batch_rows(self) -> int:
        return self._rows()

    def _rows(self) -> int:
        """Rows of a batch: what the model was made for, or `batch_size` where it takes any number."""
        fixed = self._session().get_inputs()[0].shape[0]
        return fixed if isinstance(fixed, int) and fixed > 0 else self.batch_size

    def _run(self, feed: dict[str, Any]) -> Single:
        """The output as one row an item: tokens or places are averaged."""
        from onnxruntime.capi import onnxruntime_pybind11_state as state

        known = [each.name for each in self._session().get_outputs()]
        name = known[0] if self.output is None else self.output
        if name not in known:
            raise ParameterError(type(self).__name__, "output", f"one of {', '.join(map(repr, known))}", self.output)
        try:
            (found,) = self._session().run([name], feed)
        except (state.Fail, state.InvalidArgument, state.RuntimeException) as error:
            reason = str(error).splitlines()[0][:200]
            raise DataError(f"'{self.path}' must accept what {type(self).__name__} gives it. {reason}") from error
        found = np.asarray(found, dtype=np.float32)
        if found.ndim == 3:
            mask = feed.get("attention_mask", np.ones(found.shape[:2]))[..., None].astype(np.float32)
            found = (found * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1.0)
        elif found.ndim == 4:
            found = found.mean(axis=(2, 3))
        if found.ndim != 2:
            raise DataError(f"Output '{name}' of '{self.path}' must have 2 to 4 dimensions. It has {found.ndim}.")
        return unit_rows(found) if self.normalize else found

    def _in_batches(self, columns: dict[str, Any]) -> Single:
        """Run any number of rows, always in batches of the same size."""
        rows, total = self._rows(), len(next(iter(columns.values())))
        parts = []
        for start in range(0, total, rows):
            some = {name: values[start : start + rows] for name, values in columns.items()}
            count = min(rows, total - start)
            feed = {
                name: np.concatenate([values, np.repeat(values[:1], rows - count, axis=0)])
                for name, values in some.items()
            }
            parts.append(self._run(feed)[:count])
        return np.concatenate(parts)


class OnnxImageEncoder(OnnxEncoder, ImageEncoder):
    """An image encoder in the ONNX format: one input (rows, 3, size, size), one vector an image.

    The shorter side is brought to `size`, the middle is cut out, values in 0..1 become (x - mean) / std.

    Parameters
    ----------
    path : the ONNX file.
    size : side of the square that the model takes.
    mean, std : of red, green and blue; those of ImageNet unless told.
    output : name of the output; None for the first.
    normalize : scale every row to length 1.
    batch_size : images at once, where the model does not fix it.
    max_pixels : larger images are not decoded.
    n_jobs : threads; None for all cores. The features do not depend on it.
    """

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "an image encoder from a local ONNX file"

    def __init__(
        self,
        *,
        path: Any = None,
        size: int = 224,
        mean: Any = IMAGENET_MEAN,
        std: Any = IMAGENET_STD,
        output: str | None = None,
        normalize: bool = True,
        batch_size: int = 8,
        max_pixels: int = MAX_PIXELS,
        n_jobs: int | None = None,
    ) -> None:
        self.path = path
        self.size = size
        self.mean = mean
        self.std = std
        self.output = output
        self.normalize = normalize
        self.batch_size = batch_size
        self.max_pixels = max_pixels
        self.n_jobs = n_jobs

    def _check_params(self) -> None:
        OnnxEncoder._check_params(self)
        ImageEncoder._check_params(self)
        check_integer(type(self).__name__, "size", self.size, low=1)
        check_three(type(self).__name__, "mean", self.mean)
        check_three(type(self).__name__, "std", self.std, positive=True)

    def _blank(self) -> dict[str, Any]:
        return self._feed(np.zeros((self._rows(), 3, self.size, self.size), dtype=np.float32))

    def _feed(self, pixels: Single) -> dict[str, Any]:
        inputs = self._session().get_inputs()
        if len(inputs) != 1 or inputs[0].type not in FLOATS or len(inputs[0].shape) != 4:
            found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)
            raise DataError(f"'{self.path}' must take one input of floats (rows, 3, height, width). Got {found}.")
        return {inputs[0].name: pixels.astype(FLOATS[inputs[0].type])}

    def _encode(self, items: Sequence[Any]) -> Batch:
        opened, problems = self._each(items, self._features)
        rows = np.full((len(items), self.n_features_), np.nan, dtype=np.float32)
        good = [place for place, pixels in enumerate(opened) if pixels is not None]
        if good:
            rows[good] = self._in_batches(self._feed(np.stack([opened[place] for place in good])))
        return rows, problems

    @property
    def _decode_side(self) -> int:
        return 2 * self.size

    def _features(self, image: Image) -> Single:
        return normalized_pixels(image, self.size, self.mean, self.std)


class OnnxTextEncoder(OnnxEncoder, TextEncoder):
    """A text encoder in the ONNX format: token numbers in, one vector a text (or one a token, which are averaged).

    Parameters
    ----------
    path : the ONNX file; its inputs are among input_ids, attention_mask and token_type_ids.
    tokenizer : the tokenizer.json that belongs to it.
    max_length : texts are cut and padded to as many tokens.
    output : name of the output; None for the first.
    normalize : scale every row to length 1.
    batch_size : texts at once, where the model does not fix it.
    n_jobs : threads; None for all cores. The features do not depend on it.
    """

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "a text encoder from a local ONNX file and its tokenizer.json"

    def __init__(
        self,
        *,
        path: Any = None,
        tokenizer: Any = None,
        max_length: int = 64,
        output: str | None = None,
        normalize: bool = True,
        batch_size: int = 8,
        n_jobs: int | None = None,
    ) -> None:
        self.path = path
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.output = output
        self.normalize = normalize
        self.batch_size = batch_size
        self.n_jobs = n_jobs

    def _check_params(self) -> None:
        super()._check_params()
        if not isinstance(self.tokenizer, str | Path):
            raise ParameterError(type(self).__name__, "tokenizer", "the path of a tokenizer.json", self.tokenizer)
        check_integer(type(self).__name__, "max_length", self.max_length, low=1)

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        self.__dict__.pop("_tokens", None)
        super()._fit(items, progress)

    def _ready(self) -> None:
        super()._ready()
        self._tokenizer()

    def _blank(self) -> dict[str, Any]:
        return self._feed(["a"] * self._rows())

    def _features(self, texts: list[str]) -> Single:
        return self._in_batches(self._feed(texts))

    def _feed(self, texts: list[str]) -> dict[str, Any]:
        encoded = self._tokenizer().encode_batch([text.encode("utf-8", "replace").decode() for text in texts])
        columns = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
            "token_type_ids": [each.type_ids for each in encoded],
        }
        inputs = {each.name: each.type for each in self._session().get_inputs()}
        if "input_ids" not in inputs or any(name not in columns for name in inputs):
            found = ", ".join(inputs)
            raise DataError(f"'{self.path}' must take inputs among {', '.join(TEXT_INPUTS)}. Got {found}.")
        return {name: np.array(columns[name], dtype=INTEGERS.get(kind, np.int64)) for name, kind in inputs.items()}

    def _tokenizer(self) -> Any:
        if not hasattr(self, "_tokens"):
            self._tokens = load_tokenizer(Path(self.tokenizer), self.max_length)
        return self._tokens

    def __getstate__(self) -> dict[str, Any]:
        """See Encoder: the tokenizer is loaded again, too."""
        state = super().__getstate__()
        state.pop("_tokens", None)
        return state
