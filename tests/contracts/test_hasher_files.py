"""Model files: what is saved comes back to the last bit, and what is no model is refused with one sentence."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import fusehash
from fusehash import datasets
from fusehash.errors import DataError, ModelFileError
from fusehash.files import atomic
from fusehash.hashers.base import MODEL_FILE
from sealing import parts, seal

DATA = datasets.make_paired(90, views={"image": 24, "text": 19}, n_classes=3, random_state=2)
TRAIN, NEW = DATA.views.rows(DATA.train), DATA.views.rows(DATA.query)
DAMAGED = "must be an intact fusehash model. It is truncated, damaged or foreign."


@pytest.fixture
def fitted(trained):
    return trained(TRAIN)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    return path


def rewrite(path: Path, **changes: str | None) -> None:
    """The same file with other metadata; None removes an entry."""
    arrays, metadata = parts(path)
    metadata = {name: value for name, value in {**metadata, **changes}.items() if value is not None}
    seal(path, arrays, metadata)


def refuses(sentence: str = DAMAGED):
    return pytest.raises(ModelFileError, match=f"{sentence}$")


# -- round trip ------------------------------------------------------------------------------------------------------


def test_a_loaded_model_is_the_saved_one_to_the_last_bit(fitted, saved, same, learned):
    model = fusehash.load(saved)
    assert type(model) is type(fitted)
    assert model.get_params() == fitted.get_params()
    assert same(learned(model), learned(fitted))
    for name in NEW:
        assert np.array_equal(model.project(NEW[name], view=name), fitted.project(NEW[name], view=name))
    assert np.array_equal(model.project_fused(NEW), fitted.project_fused(NEW))


@pytest.mark.base_class
def test_a_loaded_model_can_be_fitted_and_saved_again(fitted, saved, tmp_path, same, learned, fit):
    model = fusehash.load(str(saved))
    assert same(learned(fit(model, TRAIN)), learned(fitted))
    model.save(tmp_path / "again.safetensors")
    assert same(learned(fusehash.load(tmp_path / "again.safetensors")), learned(fitted))


@pytest.mark.base_class
def test_settings_travel_but_threads_and_callbacks_do_not(build, tmp_path, fit):
    params = {"n_bits": 24, "random_state": 7}
    defaults = build().get_params()
    params |= {name: value for name, value in {"ridge": 0.125, "n_threads": 1}.items() if name in defaults}
    model = fit(build(**params, callback=lambda *call: None), TRAIN)
    model.save(tmp_path / "m")
    not_saved = {name: defaults[name] for name in ("callback", "n_threads") if name in defaults}
    expected = {**model.get_params(), **not_saved}
    assert fusehash.load(tmp_path / "m").get_params() == expected


@pytest.mark.base_class
@pytest.mark.parametrize(
    ("seed", "stored"),
    [(None, None), (3, 3), (np.int64(3), 3), (2**40, 2**40), (np.random.default_rng(0), None)],
)
def test_seeds_are_stored_and_generators_are_not(build, tmp_path, seed, stored, fit):
    fit(build(random_state=seed), TRAIN).save(tmp_path / "m")
    assert fusehash.load(tmp_path / "m").random_state == stored


@pytest.mark.base_class
@pytest.mark.parametrize("names", [["a b", "ü/..\\"], ["a.b", "a"]], ids=str)
def test_odd_view_names_travel(build, tmp_path, names, same, learned, fit):
    model = fit(build(), dict(zip(names, TRAIN.values(), strict=True)))
    model.save(tmp_path / "m")
    again = fusehash.load(tmp_path / "m")
    assert again.view_names_ == sorted(names)
    assert same(learned(again), learned(model))


@pytest.mark.base_class
def test_the_file_says_what_it_is(fitted, saved):
    arrays, metadata = parts(saved)
    assert metadata["format"] == "fusehash-model"
    assert int(metadata["version"]) == MODEL_FILE.version
    assert json.loads(metadata["method"]) == fitted.method
    assert all(array.dtype != object for array in arrays.values())
    assert any(np.array_equal(array, fitted.codes_) for array in arrays.values())


@pytest.mark.base_class
def test_a_new_file_has_ordinary_permissions(saved):
    mask = os.umask(0)
    os.umask(mask)
    assert saved.stat().st_mode & 0o777 == 0o666 & ~mask


# -- files that are no models ----------------------------------------------------------------------------------------


@pytest.mark.base_class
def test_a_truncated_file_is_refused_wherever_it_ends(saved):
    content = saved.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    ends = {0, 1, 7, 8, 9, 100, header // 2, header - 1, header, header + 1, len(content) // 2, len(content) - 1}
    for end in sorted(ends):
        saved.write_bytes(content[:end])
        with refuses():
            fusehash.load(saved)


@pytest.mark.base_class
def test_a_file_with_something_behind_it_is_refused(saved):
    saved.write_bytes(saved.read_bytes() + b"0")
    with refuses():
        fusehash.load(saved)


@pytest.mark.base_class
@pytest.mark.parametrize("content", [b"{}", b"hello", b"\0" * 64, b"\xff" * 64, b"PK\x03\x04" + b"\0" * 60])
def test_a_file_of_another_format_is_refused(saved, content):
    saved.write_bytes(content)
    with refuses():
        fusehash.load(saved)


def test_a_safetensors_file_of_another_kind_is_refused(tmp_path):
    for metadata in (None, {"format": "pt"}, {"format": "fusehash-index", "version": "1"}):
        save_file({"x": np.zeros(3)}, tmp_path / "other", metadata=metadata)
        with refuses("must be a fusehash model. It is a safetensors file of another kind."):
            fusehash.load(tmp_path / "other")


@pytest.mark.base_class
def test_a_newer_file_is_refused_with_both_versions(saved):
    rewrite(saved, version="99")
    with refuses(r"was written by a newer fusehash \(format 99\); this one reads formats up to 4\."):
        fusehash.load(saved)


@pytest.mark.base_class
def test_an_unknown_method_is_refused_by_name(saved):
    rewrite(saved, method="magic")
    with refuses("holds the method 'magic', which neither this fusehash nor an installed package knows."):
        fusehash.load(saved)


@pytest.mark.base_class
@pytest.mark.parametrize(
    "changes",
    [
        {"version": "one"},
        {"version": None},
        {"method": None},
        {"params": None},
        {"state": None},
        {"params": "{"},
        {"params": "[]"},
        {"params": "3"},
        {"params": '{"$dict": [["color", 3]]}'},
        {"state": "[]"},
        {"state": "null"},
        {"state": '{"$array": "nothing"}'},
        {"state": '{"$class": "os", "fields": {}}'},
        {"state": '{"$dict": [[1]]}'},
        {"state": '{"$dict": 3}'},
        {"state": '{"$dict": []}'},
        {"state": '{"$dict": [["codes_", 3]]}'},
        {"state": '{"$dict": [["fit", 3]]}'},
        {"state": "[" * 100000},
    ],
    ids=str,
)
def test_damaged_metadata_is_refused(saved, changes):
    rewrite(saved, **changes)
    with refuses():
        fusehash.load(saved)


def test_a_model_whose_arrays_are_gone_is_refused(saved):
    arrays, metadata = parts(saved)
    for lost in arrays:
        seal(saved, {name: array for name, array in arrays.items() if name != lost}, metadata)
        with refuses():
            fusehash.load(saved)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with refuses("must be a model file. There is no such file."):
        fusehash.load(tmp_path / "nothing")
    with refuses("must be a model file. It must be a regular file. It is a folder, a pipe or a device."):
        fusehash.load(tmp_path)


def test_a_file_that_cannot_be_opened_is_not_said_to_be_missing(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, reason in ((loop, "Too many levels of symbolic links"), (tmp_path / "\0", "embedded null byte")):
        with refuses(f"must be a model file. It could not be read: {reason}."):
            fusehash.load(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_read_permission_is_not_said_to_be_missing(tmp_path):
    (tmp_path / "m").touch(mode=0)
    with refuses("must be a model file. It cannot be read: Permission denied."):
        fusehash.load(tmp_path / "m")


def test_the_error_names_the_file(tmp_path):
    with pytest.raises(ModelFileError, match=str(tmp_path / "nothing")):
        fusehash.load(tmp_path / "nothing")


@pytest.mark.base_class
def test_nothing_but_numbers_strings_and_arrays_is_saved(fitted, tmp_path):
    fitted.extra_ = {"thing": object()}
    with pytest.raises(DataError, match=r"'state\.extra_\.thing' must be made of numbers, strings and arrays"):
        fitted.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


# -- interrupted saves -----------------------------------------------------------------------------------------------


class FullDisk:
    """A file that takes half of what it is given."""

    def __init__(self, file):
        self.file, self.name = file, file.name

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk_at_write(monkeypatch):
    real = atomic.create_draft
    monkeypatch.setattr(atomic, "create_draft", lambda path: FullDisk(real(path)))


def full_disk_at_flush(monkeypatch):
    def fail(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", fail)


def no_permission_at_rename(monkeypatch):
    def fail(self, target):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "replace", fail)


def interrupt_at_flush(monkeypatch):
    def fail(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", fail)


@pytest.mark.base_class
@pytest.mark.parametrize(
    ("break_it", "error", "sentence"),
    [
        (full_disk_at_write, DataError, r"could not be written \(No space left on device\); nothing was changed\.$"),
        (full_disk_at_flush, DataError, r"could not be written \(No space left on device\); nothing was changed\.$"),
        (no_permission_at_rename, DataError, r"could not be written \(Permission denied\); nothing was changed\.$"),
        (interrupt_at_flush, KeyboardInterrupt, None),
    ],
)
def test_an_interrupted_save_leaves_the_old_file_and_nothing_else(
    trained, saved, monkeypatch, break_it, error, sentence, same, learned
):
    before = saved.read_bytes()
    other = trained(TRAIN, random_state=1)
    with monkeypatch.context() as broken:
        break_it(broken)
        with pytest.raises(error, match=sentence):
            other.save(saved)
        with pytest.raises(error, match=sentence):
            other.save(saved.with_name("new"))
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
    other.save(saved)
    assert same(learned(fusehash.load(saved)), learned(other))


@pytest.mark.base_class
def test_a_folder_that_does_not_exist_is_named(fitted, tmp_path):
    with pytest.raises(DataError, match=r"^The folder of '.*' must exist\. '.*nowhere' does not\.$"):
        fitted.save(tmp_path / "nowhere" / "m")


@pytest.mark.base_class
def test_a_folder_is_not_overwritten_by_a_model(fitted, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="could not be written"):
        fitted.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.base_class
def test_metadata_is_plain_json(saved):
    _, metadata = parts(saved)
    assert json.loads(metadata["params"])
    assert json.loads(metadata["state"])
    assert DATA.name not in metadata  # nothing of the data but its codes
