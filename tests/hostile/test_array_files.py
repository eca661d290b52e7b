"""Dataset files that somebody made to do harm: .npz, .mat and HDF5."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from fusehash import datasets, trust
from fusehash.datasets.arrays import open_arrays
from fusehash.errors import DataError
from hostile import array_rounds
from hostile.scale import cases

ROWS = np.arange(40.0).reshape(20, 2)


# ---- damaged files


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npz", "mat", "hdf5"])
def test_a_damaged_file_is_loaded_or_refused_and_the_process_lives(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    command = [sys.executable, array_rounds.__file__, kind, "0", str(cases(400, 5000)), str(tmp_path)]
    worker = subprocess.run(command, capture_output=True, text=True, check=False)
    assert worker.returncode == 0, f"{worker.returncode}: {worker.stderr[-2000:]}"
    outcome = json.loads(worker.stdout)
    assert outcome.pop("memory") < 1 << 20  # KiB
    assert outcome.pop("loaded") > 0
    assert outcome.pop("refused") > 0
    assert outcome == {}


# ---- .mat up to version 7


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_numbers_are_read_as_scipy_reads_them(tmp_path: Path, dtype: str, is_compressed: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (1, 1), (0, 3), (5, 1), (2, 3, 4), (40, 30)]
    arrays: dict[str, Any] = {f"a{i}": (50 * rng.random(shape)).astype(dtype) for i, shape in enumerate(shapes)}
    arrays["sparse"] = sp.random(50, 30, 0.1, random_state=0, format="csc")
    arrays["empty"] = sp.csc_array((5, 4))
    path = tmp_path / "data.mat"
    scipy.io.savemat(path, arrays, do_compression=is_compressed)
    expected, file = scipy.io.loadmat(path), open_arrays(path)
    assert file.shapes == {name: shape for name, shape, _ in scipy.io.whosmat(path)}
    for name in arrays:
        got = file.read(name)
        assert got.dtype == expected[name].dtype
        as_dense = (got.toarray(), expected[name].toarray()) if sp.issparse(got) else (got, expected[name])
        np.testing.assert_array_equal(*as_dense)


def test_files_that_matlab_wrote_are_read_as_scipy_reads_them() -> None:
    """scipy's own test data, written by MATLAB 5.3 to 7.4 on machines of both byte orders."""
    folder = Path(scipy.io.matlab.__file__).parent / "tests" / "data"
    names = ["testdouble_6.1_SOL2", "testmatrix_7.4_GLNX86", "testsparse_6.1_SOL2", "testsparse_7.4_GLNX86"]
    names += ["big_endian", "logical_sparse", "testbool_8_WIN64", "test3dmatrix_7.1_GLNX86", "miutf8_array_name"]
    for path in (folder / f"{name}.mat" for name in names):
        if not path.exists():
            pytest.skip("scipy comes without its tests here")
        file, expected = open_arrays(path), scipy.io.loadmat(path)
        for name in file.shapes:
            if name != "strings":
                got, array = file.read(name), expected[name]
                assert (got != array).nnz == 0 if sp.issparse(array) else np.array_equal(got, array)


@pytest.mark.parametrize("content", ["text", np.array([1j]), {"field": 1}, np.array([1, "a"], dtype=object)])
def test_a_variable_that_is_no_matrix_of_numbers_is_refused(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "data.mat"
    scipy.io.savemat(path, {"x": content})
    with pytest.raises(DataError, match="The variable x must be a matrix of real numbers"):
        open_arrays(path).read("x")


def test_a_compressed_variable_cannot_claim_more_than_its_bytes_can_become(tmp_path: Path) -> None:
    path = tmp_path / "data.mat"
    scipy.io.savemat(path, {"x": np.zeros((1000, 1000))}, do_compression=True)
    assert open_arrays(path).read("x").shape == (1000, 1000)  # 8 MB in 8 kB is possible
    content = path.read_bytes()
    inner = bytearray(zlib.decompress(content[136:]))
    inner[4:8] = (1 << 30).to_bytes(4, "little")
    packed = zlib.compress(bytes(inner[:4000]))
    path.write_bytes(content[:132] + len(packed).to_bytes(4, "little") + packed)
    with pytest.raises(DataError, match=r"claims 1,073,741,824 bytes"):
        open_arrays(path).read("x")


# ---- .mat v7.3


@pytest.fixture
def hdf5(tmp_path: Path) -> Any:
    """A file with an honest array, next to a secret that is not part of it."""
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret.bin").write_bytes(ROWS.tobytes())
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["secret"] = ROWS
    with h5py.File(tmp_path / "data.mat", "w") as file:
        file["honest"] = ROWS
        file.create_dataset("packed", data=ROWS, compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("external", (20, 2), "f8", external=[(str(tmp_path / "secret.bin"), 0, 320)])
        file["link"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "secret")
        file["soft"] = h5py.SoftLink("/link")
        layout = h5py.VirtualLayout((20, 2), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "secret", (20, 2))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("absurd", (1 << 40, 2), "f8", chunks=(100, 2))
        file.create_dataset("scaled", data=ROWS.astype("i4"), scaleoffset=0)
        file.create_dataset("chunk", data=ROWS, chunks=(5000, 5000), maxshape=(None, None), compression="gzip")
        twice = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        twice.set_chunk((20, 2))
        twice.set_deflate(1)
        twice.set_deflate(9)
        space = h5py.h5s.create_simple((20, 2))
        h5py.h5d.create(file.id, b"twice", h5py.h5t.IEEE_F64LE, space, twice).write(space, space, ROWS)
    return h5py


@pytest.mark.parametrize("name", ["external", "link", "soft", "virtual", "absurd", "scaled", "chunk", "twice"])
def test_hdf5_stays_in_its_file(hdf5: Any, tmp_path: Path, name: str) -> None:
    with hdf5.File(tmp_path / "data.mat") as file:
        with pytest.raises(DataError, match=r"must be in its own file|must be stored in|must be compressed|claims"):
            trust.open_hdf5(file, name)
        np.testing.assert_array_equal(trust.open_hdf5(file, "honest"), ROWS)
        np.testing.assert_array_equal(trust.open_hdf5(file, "packed"), ROWS)


@pytest.mark.parametrize("name", ["external", "link", "soft", "virtual"])
def test_a_v73_file_reads_no_other_file(hdf5: Any, tmp_path: Path, name: str) -> None:
    with hdf5.File(tmp_path / "data.mat", "r+") as file:
        for key in ("honest", "packed", "external", "link", "soft", "virtual", "absurd", "scaled"):
            if key != name:
                del file[key]
        file.move(name, "YAll")
        file["XAll"], file["LAll"] = ROWS, np.ones((1, 2))
    with pytest.raises(DataError, match=r"Array YAll of data\.mat must be (in|stored in) its own file"):
        datasets.load(tmp_path / "data.mat")


# ---- .npz


def write_archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(shape: tuple[int, ...], dtype: str, content: bytes = b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (npy((1 << 40, 4), "<f8"), "claims 35,184,372,088,832 bytes of content"),
        (npy((1 << 62, 1 << 62), "<f8"), "claims"),
        (npy((1 << 40,), "|S0"), "nothing is unpickled"),
        (npy((-1, 4), "<f8"), "shape"),
        (npy((2, 2), "|O", b"cos\nsystem\n"), "nothing is unpickled"),
        (npy((2, 2), "<f8", bytes(40)), "there is more than the array"),
    ],
)
def test_an_array_is_no_larger_than_its_file(tmp_path: Path, image: bytes, sentence: str) -> None:
    path = tmp_path / "data.npz"
    write_archive(path, {"image.npy": image, "text.npy": npy((2, 2), "<f8", bytes(32))})
    with pytest.raises(DataError, match=sentence):
        datasets.load(path)


def changed(path: Path, at: bytes, offset: int, new: bytes) -> None:
    """Write bytes into the first record of an archive that begins with a signature."""
    content = bytearray(path.read_bytes())
    start = content.index(at) + offset
    content[start : start + len(new)] = new
    path.write_bytes(content)


CENTRAL = b"PK\x01\x02"


@pytest.mark.parametrize(
    ("offset", "value", "sentence"),
    [
        (8, b"\x01", "is encrypted"),
        (10, b"\x0e", "compressed otherwise"),
        (20, b"\xff\xff\xff\x7f", "overlaps"),
        (24, b"\xff\xff\xff\x7f", "claims 2,147,483,647 bytes"),
        (40, b"\xff\xa1", "leads out of it"),
        (42, b"\x01", "overlaps"),
        (46, b"/", "leads out of it"),
    ],
)
def test_a_record_of_an_archive_is_checked(tmp_path: Path, offset: int, value: bytes, sentence: str) -> None:
    path = tmp_path / "archive.zip"
    write_archive(path, {"aaa": bytes(1000), "bbb": bytes(1000)})
    trust.check_archive(path, "The archive")
    changed(path, CENTRAL, offset, value)
    with pytest.raises(DataError, match=sentence):
        trust.check_archive(path, "The archive")


def test_files_of_an_archive_do_not_share_their_bytes(tmp_path: Path) -> None:
    """As in bombs that become petabytes: every record names the same deflated bytes."""
    path = tmp_path / "archive.zip"
    write_archive(path, {"aaa": bytes(100_000), "bbb": bytes(100_000)}, zipfile.ZIP_DEFLATED)
    content = path.read_bytes()
    last = content.rindex(CENTRAL)
    path.write_bytes(content[: last + 42] + bytes(4) + content[last + 46 :])
    with pytest.raises(DataError, match="overlaps"):
        trust.check_archive(path, "The archive")


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a\\b"])
def test_names_in_an_archive_stay_in_it(tmp_path: Path, name: str) -> None:
    write_archive(tmp_path / "archive.zip", {name: b"x"})
    with pytest.raises(DataError, match="leads out of it"):
        trust.check_archive(tmp_path / "archive.zip", "The archive")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_is_used_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("a", "x")
        archive.writestr("a", "y")
    with pytest.raises(DataError, match="used twice"):
        trust.check_archive(tmp_path / "archive.zip", "The archive")


def test_an_object_array_that_is_not_needed_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, image=ROWS, text=ROWS, labels=np.arange(20) % 3, notes=np.array([{}], dtype=object))
    assert datasets.load(path, n_query=5).views.n_rows == 20


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data.npz")
    with pytest.raises(DataError, match="regular file"):
        open_arrays(tmp_path / "data.npz")


def test_the_header_of_an_array_is_not_read_whole_if_it_is_long(tmp_path: Path) -> None:
    head = b"\x93NUMPY\x02\x00" + (1 << 29).to_bytes(4, "little") + b" " * (1 << 24)
    write_archive(tmp_path / "data.npz", {"image.npy": head, "text.npy": npy((2, 2), "<f8", bytes(32))}, 8)
    tracemalloc.start()
    with pytest.raises(DataError):
        datasets.load(tmp_path / "data.npz")
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_values_of_any_length_are_no_numbers(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.mat", "w") as file:
        file["text"] = ROWS
        file.create_dataset("image", data=["a", "b"] * 10, dtype=h5py.string_dtype())
    with pytest.raises(DataError):
        datasets.load(tmp_path / "data.mat")
