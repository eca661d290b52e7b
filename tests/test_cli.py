"""The command line: what is printed where, exit codes, files written whole or not at all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import fusehash
from fusehash import hashers
from fusehash.cli import app
from fusehash.console import Pace
from fusehash.datasets import load, make_paired
from fusehash.streams import NpyWriter
from refusals import wrong

Run = Callable[..., Result]
COMMANDS = ("demo", "fit", "encode", "evaluate")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small paired file in the layout of the benchmark files."""
    made = make_paired(150, n_classes=4, n_query=30, views={"image": 16, "text": 12})
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, **made.views, labels=made.labels, train_idx=made.train, test_idx=made.query)
    return path


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    path = data.parent / "model.safetensors"
    dataset = load(data)
    hashers.make("regression", n_bits=16, random_state=0).fit(dataset.views.rows(dataset.train)).save(path)
    return path


# ---- the whole


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: fusehash {command}" in result.stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"fusehash {fusehash.__version__}\n"


@pytest.mark.parametrize("words", [("nonsense",), ("fit",), ("fit", "x.npz", "--bits", "many"), ("demo", "--nonsense")])
def test_wrong_usage_is_exit_2(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage:" in result.stderr


def test_help_loads_nothing_heavy() -> None:
    program = "import sys, fusehash.cli; print(*sorted(set(sys.modules) & {'numpy', 'scipy', 'sklearn', 'numba'}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# ---- fit


def test_fit_writes_a_model_that_encodes(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    result = run("fit", data, "--method", "regression", "--bits", 16, "--seed", 3, "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["model"] == str(out)
    assert (printed["method"], printed["n_bits"], printed["seed"], printed["n_train"]) == ("regression", 16, 3, 120)
    assert printed["data_hash"] == load(data).fingerprint
    dataset = load(data)
    expected = hashers.make("regression", n_bits=16, random_state=3).fit(dataset.views.rows(dataset.train))
    np.testing.assert_array_equal(hashers.load(out).codes_, expected.codes_)
    assert list(tmp_path.iterdir()) == [out]


def test_fit_by_name_with_parameters(run: Run, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "wiki.npz").write_bytes(data.read_bytes())
    out = tmp_path / "m.safetensors"
    params = [word for param in ("max_iter=2", "anchors=random", "tol=1e-3") for word in ("--param", param)]
    words = ("--method", "agsfh", "--bits", 8, *params)
    result = run("fit", "wiki", "--data", folder, *words, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "from 120 pairs of wiki: image (16) + text (12)" in result.stdout
    assert f"Next: fusehash encode {out} wiki --data {folder} --view text" in result.stdout
    fitted = hashers.load(out)
    assert fitted.get_params()["max_iter"] == 2
    assert fitted.method == "agsfh"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nothing",), "must be one of wiki"),
        (("nothing.npz",), "None was found"),
        (("DATA", "--method", "magic"), "--method must be one of fusehash, agsfh, fsh, "),
        (("DATA", "--param", "preset=paper"), "'preset' parameter of FuseHash must be left out: use AGSFH"),
        (("DATA", "--method", "regression", "--bits", "12"), "multiple of 8, at most 4096. Got 12 instead."),
        (
            ("DATA", "--bits", "1000000"),
            "fusehash: --bits must be a positive multiple of 8, at most 4096. Got 1000000 instead.",
        ),
        (
            ("DATA", "--method", "random", "--param", "color=3"),
            "--param must name a parameter of random: n_threads, ridge. Got 'color' instead.",
        ),
        (("DATA", "--method", "agsfh", "--param", "max_iters=3"), "of agsfh: max_iter (an integer of at least"),
        (("DATA", "--out", "no/such/folder/m.safetensors"), "in a folder that exists"),
        (("DATA", "--out", "."), "must not be a folder"),
        (("DATA", "--n-train", "121"), "--n-train must be"),
    ],
)
def test_fit_wrong_input(run: Run, data: Path, tmp_path: Path, monkeypatch: Any, words: Any, sentence: str) -> None:
    monkeypatch.chdir(tmp_path)
    wrong(run("fit", *(data if word == "DATA" else word for word in words)), sentence)
    assert list(tmp_path.iterdir()) == []


def test_bits_that_are_no_number_are_shown(run: Run, data: Path) -> None:
    assert "must be a whole number. Got 'many' instead." in run("fit", data, "--bits", "many").stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("search", "c", "x", "-k", "0"), "'-k' / '--k': must be at least 1. Got '0' instead."),
        (("search", "c", "x", "-k", "many"), "'-k' / '--k': must be a whole number. Got 'many' instead."),
        (("search", "c", "x", "--min-confidence", "2"), "'--min-confidence': must be at most 1. Got '2' instead."),
        (("search", "c", "x", "--min-confidence", "high"), "must be a number. Got 'high' instead."),
        (("dedupe", "photos", "--radius", "far"), "'--radius': must be a whole number. Got 'far' instead."),
    ],
)
def test_values_of_options_are_named_in_plain_words(run: Run, words: Any, sentence: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert "Input should" not in result.stderr


@pytest.fixture
def bare(data: Path, tmp_path: Path) -> Path:
    """The small dataset without labels."""
    with np.load(data) as whole:
        np.savez(tmp_path / "bare.npz", **{name: whole[name] for name in whole if name != "labels"})
    return tmp_path / "bare.npz"


def test_fit_and_encode_need_no_labels(run: Run, data: Path, bare: Path, tmp_path: Path) -> None:
    out, codes, dataset = tmp_path / "m.safetensors", tmp_path / "codes.npy", load(data)
    result = run("fit", bare, "--method", "regression", "--bits", 16, "--out", out)
    assert result.exit_code == 0, result.stderr
    expected = hashers.make("regression", n_bits=16, random_state=0).fit(dataset.views.rows(dataset.train))
    np.testing.assert_array_equal(hashers.load(out).codes_, expected.codes_)
    assert run("encode", out, bare, "--view", "text", "--rows", "query", "--out", codes).exit_code == 0
    np.testing.assert_array_equal(np.load(codes), expected.encode(dataset.views["text"][dataset.query], view="text"))


def test_who_needs_labels_says_so(run: Run, bare: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    wrong(run("fit", bare, "--method", "scm", "--bits", 16, "--out", out), "SCM learns from labels")
    wrong(run("evaluate", bare, "--method", "regression"), "or pass files of views: image=a.npy text=b.npy --labels")
    assert not out.exists()


def test_one_view_has_items_and_not_pairs(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", np.random.default_rng(0).random((40, 6)))
    result = run("fit", tmp_path / "image.npy", "--method", "random", "--bits", 8, "--out", tmp_path / "m")
    assert "from 40 items of image: image (6)." in result.stdout


@pytest.mark.parametrize("param", ["max_iter", "=3", "max_iter=1 --param max_iter=2", "n_bits=8"])
def test_fit_wrong_param(run: Run, data: Path, param: str) -> None:
    result = run("fit", data, "--param", *param.split())
    assert result.exit_code == 2
    assert "--param" in result.stderr


# ---- encode


@pytest.mark.parametrize("rows", ["train", "query", "database", "all"])
def test_encode_one_view(run: Run, data: Path, model: Path, tmp_path: Path, rows: str) -> None:
    out = tmp_path / "codes.npy"
    result = run("encode", model, data, "--view", "text", "--rows", rows, "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    dataset = load(data)
    text = dataset.views["text"] if rows == "all" else dataset.views["text"][getattr(dataset, rows)]
    np.testing.assert_array_equal(np.load(out), hashers.load(model).encode(text, view="text"))
    assert json.loads(result.stdout)["n"] == len(text)
    assert list(tmp_path.iterdir()) == [out]


def test_encode_fused(run: Run, data: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    result = run("encode", model, data, "--fused", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "Wrote 150 codes of 16 bits, from all views together" in result.stdout
    np.testing.assert_array_equal(np.load(out), hashers.load(model).encode_fused(load(data).views))


def test_encode_a_plain_matrix(run: Run, data: Path, model: Path, tmp_path: Path) -> None:
    image = load(data).views["image"]
    np.save(tmp_path / "image.npy", image)
    result = run("encode", model, tmp_path / "image.npy", "--view", "image", "--out", tmp_path / "codes.npy")
    assert result.exit_code == 0, result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), hashers.load(model).encode(image, view="image"))


@pytest.mark.parametrize(
    "words",
    [
        ("DATA",),
        ("DATA", "--view", "text", "--fused"),
        ("m.npy", "--fused"),
        ("m.npy", "--view", "text", "--rows", "query"),
    ],
)
def test_encode_wrong_usage(run: Run, data: Path, model: Path, words: tuple[str, ...]) -> None:
    assert run("encode", model, *(data if word == "DATA" else word for word in words)).exit_code == 2


def test_encode_wrong_input(run: Run, data: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    np.save(tmp_path / "narrow.npy", np.ones((3, 2)))
    np.save(tmp_path / "line.npy", np.ones(3))
    np.save(tmp_path / "objects.npy", np.array([[{}]], dtype=object))
    (tmp_path / "foreign.npy").write_bytes(b"hello")
    for file, sentence in [
        ("narrow.npy", "12 features"),
        ("line.npy", "must be a matrix"),
        ("objects.npy", "Python objects"),
        ("foreign.npy", "intact .npy"),
        ("missing.npy", "there is no file"),
    ]:
        wrong(run("encode", model, tmp_path / file, "--view", "text", "--out", out), sentence)
    wrong(run("encode", model, data, "--view", "sound", "--out", out), "'image', 'text'")
    wrong(run("encode", data, data, "--view", "text", "--out", out), "small.npz")  # no model
    wrong(run("encode", tmp_path / "gone", data, "--view", "text", "--out", out), "gone")
    assert not out.exists()


def test_encode_leaves_the_old_file_when_writing_fails(
    run: Run, data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "codes.npy"
    out.write_bytes(b"old")

    def full(writer: NpyWriter, block: Any) -> None:
        writer._file.write(block[:1].tobytes())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NpyWriter, "write", full)
    wrong(run("encode", model, data, "--fused", "--out", out), "No space left on device")
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


# ---- evaluate


def test_evaluate_with_controls(run: Run, data: Path) -> None:
    words = ("--method", "regression", "--bits", 16, "--seeds", 2, "--protocols", "u,HN", "--k", "all")
    result = run("evaluate", data, *words, "--ties", "stable", "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert list(printed["results"]) == ["regression", "random"]
    card = printed["results"]["random"]["card"]
    assert (card["k"], card["ties"], card["seeds"]) == (None, "stable", [0, 1])
    assert card["data_hash"] == load(data).fingerprint
    scores = printed["results"]["regression"]["scores"]
    assert [(score["protocol"], score["direction"]) for score in scores] == [
        ("U", "image->text"), ("U", "text->image"), ("HN", "image->text"), ("HN", "text->image"),
    ]  # fmt: skip


def test_evaluate_table(run: Run, data: Path) -> None:
    result = run("evaluate", data, "--method", "regression", "--no-control", "--bits", 16, "--seeds", 1)
    assert result.exit_code == 0, result.stderr
    for part in ("MAP@50 on small, 16 bits", "image -> text", "text -> image", "regression", "FN", "Seeds: 0"):
        assert part in result.stdout
    assert "random" not in result.stdout


def test_evaluate_wrong_input(run: Run, data: Path) -> None:
    wrong(run("evaluate", data, "--protocols", "U,X", "--method", "regression"), "--protocols must be")
    wrong(run("evaluate", "gone.mat"), "None was found")
    assert run("evaluate", data, "--k", "0").exit_code == 2
    assert run("evaluate", data, "--ties", "none").exit_code == 2


# ---- files of views


@pytest.fixture(scope="module")
def files(data: Path, optional: Callable[[str], Any]) -> list[str]:
    """The views of the small dataset as one file each, and its labels."""
    zarr, pyarrow, parquet = (optional(package) for package in ("zarr", "pyarrow", "pyarrow.parquet"))
    dataset = load(data)
    text = np.asarray(dataset.views["text"])
    np.save(data.parent / "image.npy", dataset.views["image"])
    np.save(data.parent / "labels.npy", dataset.labels)
    zarr.create_array(str(data.parent / "text.zarr"), data=text)
    columns = {f"c{number}": column for number, column in enumerate(text.T)}
    parquet.write_table(pyarrow.table(columns), data.parent / "text.parquet")
    return [str(data.parent / "image.npy"), f"text={data.parent / 'text.parquet'}"]


def test_fit_from_files_of_views(run: Run, data: Path, files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    result = run("fit", *files, "--method", "regression", "--bits", 16, "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert (printed["dataset"], printed["n_train"], printed["data_hash"]) == ("image+text", 150, None)
    assert printed["views"] == {"image": 16, "text": 12}
    expected = hashers.make("regression", n_bits=16, random_state=0).fit(load(data).views)
    np.testing.assert_array_equal(hashers.load(out).codes_, expected.codes_)
    result = run("fit", *files, "--method", "regression", "--bits", 16, "--out", out, "--n-train", 100)
    assert "from 100 pairs of image+text" in result.stdout
    assert "--view text --out codes.npy" in result.stdout
    labels = data.parent / "labels.npy"
    result = run("fit", *files, "--method", "scm", "--bits", 8, "--out", out, "--labels", labels, "--n-train", 100)
    assert result.exit_code == 0, result.stderr


def test_encode_files_of_views(run: Run, data: Path, model: Path, files: list[str], tmp_path: Path) -> None:
    out, views, hasher = tmp_path / "codes.npy", load(data).views, hashers.load(model)
    result = run("encode", model, *files, "--fused", "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["n"] == 150
    np.testing.assert_array_equal(np.load(out), hasher.encode_fused(views))
    for file in ("text.zarr", "text.parquet"):
        result = run("encode", model, data.parent / file, "--view", "text", "--out", out)
        assert result.exit_code == 0, result.stderr
        np.testing.assert_array_equal(np.load(out), hasher.encode(views["text"], view="text"))
    assert list(tmp_path.iterdir()) == [out]


def test_evaluate_files_of_views(run: Run, data: Path, files: list[str]) -> None:
    words = ("--method", "regression", "--bits", 16, "--seeds", 1, "--protocols", "U,FN", "--no-control", "--json")
    result = run("evaluate", *files, "--labels", data.parent / "labels.npy", *words)
    assert result.exit_code == 0, result.stderr
    card = json.loads(result.stdout)["results"]["regression"]["card"]
    assert (card["n_query"], card["n_train"]) == (15, 135)


def test_wrong_files_of_views(run: Run, data: Path, model: Path, files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "codes.npy"
    wrong(run("encode", model, *files, "--view", "sound", "--out", out), "'image', 'text' in the files")
    for name in ("codes.csv", "codes.zarr", "codes.parquet"):
        wrong(run("encode", model, *files, "--fused", "--out", tmp_path / name), f"must end in .npy. Got '{name}'")
    wrong(run("encode", model, f"text={data.parent / 'image.npy'}", "--fused", "--out", out), "12 features")
    wrong(run("fit", "a=gone.npy", *files, "--out", out), "there is no file")
    np.save(tmp_path / "short.npy", np.ones((3, 2)))
    wrong(run("fit", f"a={tmp_path / 'short.npy'}", *files, "--out", out), "pair one to one")
    wrong(run("fit", *files, "--labels", tmp_path / "short.npy", "--out", out), "one row per item, 150. Got 3 instead.")
    wrong(
        run("fit", *files, "--labels", tmp_path / "gone.npy", "--out", out), "gone.npy could not be read: No such file"
    )
    wrong(run("fit", *files, "--n-train", 151, "--out", out), "at most the 150 rows")
    for words in (
        ("fit", *files, files[0]), ("fit", *files, data), ("fit", *files, "--data", tmp_path),
        ("fit", data, "--labels", "x.npy"), ("evaluate", *files),
        ("encode", model, *files, "--fused", "--rows", "query"),
    ):  # fmt: skip
        assert run(*words).exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["short.npy"]


# ---- Ctrl-C

# A job started in the background ignores SIGINT, and so do its children: the program asks for the usual Ctrl-C itself.
PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from fusehash.hashers.controls import RegressionHasher
def endless(self, views, y):
    sys.stderr.write("begun\\n"); sys.stderr.flush()
    time.sleep(60)
RegressionHasher._fit = endless
from fusehash.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_is_one_line_and_exit_130(data: Path, tmp_path: Path) -> None:
    words = ["fit", str(data), "--method", "regression", "--out", str(tmp_path / "m.safetensors")]
    command = [sys.executable, "-c", PROGRAM, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest == "fusehash: interrupted; no file is left half-written.\n"
    assert list(tmp_path.iterdir()) == []


def test_the_pace_of_a_task_is_that_of_the_current_task() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert pace(0, 1000, "encoding images") == ""
    now[0] = 4.0
    assert pace(200, 1000, "encoding images") == "50 per second, 16 s left"
    assert pace(0, 100, "encoding texts") == ""
    now[0] = 14.0
    assert pace(4, 100, "encoding texts") == "0.4 per second, 4 min left"
    assert pace(3, 5, "five steps") == ""
