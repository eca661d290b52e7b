"""Image features: each block against slow loops, rows that depend on their image alone, and what cannot be read."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fusehash import encoders, parameters
from fusehash.encoders import histograms
from fusehash.errors import DataError, MissingPackageError, ParameterError

PIL = pytest.importorskip("PIL.Image")
BROKEN = [None, b"", b"nothing", "no/such/file.jpg", 7]


@pytest.fixture(scope="module")
def pictures(picture):
    return [picture(seed, 60 + 7 * seed, 90 - 5 * seed) for seed in range(10)]


@pytest.fixture(scope="module")
def fitted(pictures, optional):
    optional("cv2")
    made = {}
    for name in ("classical", "sift"):
        made[name] = encoders.make(name, n_words=12, side=96, n_jobs=1).fit(pictures)
    return made


# -- blocks ----------------------------------------------------------------------------------------------------------


def test_color_against_a_loop_over_pixels(picture):
    image = picture(0, 20, 13)
    hsv = np.asarray(image.convert("HSV")).astype(int)
    slow = {n: np.zeros((n * n, histograms.COLORS)) for n in histograms.COLOR_GRIDS}
    for y in range(13):
        for x in range(20):
            hue, saturation, value = hsv[y, x]
            if saturation < histograms.FAINT:
                place = value // 32
            else:
                place = 8 + (hue // 32) * 6 + (3 if saturation >= histograms.STRONG else 0) + value * 3 // 256
            for n, table in slow.items():
                table[(y * n // 13) * n + x * n // 20, place] += 1
    expected = np.concatenate([table.ravel() / 260 for table in slow.values()]) / 2
    assert np.allclose(histograms.color(image), expected)


def test_gradient_against_a_loop_over_pixels(picture, monkeypatch):
    monkeypatch.setattr(histograms, "GRADIENT_SCALES", (1,))
    gray = picture(1, 17, 12).convert("L")
    x = np.asarray(gray, dtype=float)
    slow = np.zeros((16, 9))
    for i in range(12):
        for j in range(17):
            up, down, left, right = max(i - 1, 0), min(i + 1, 11), max(j - 1, 0), min(j + 1, 16)
            dy, dx = (x[down, j] - x[up, j]) / (down - up), (x[i, right] - x[i, left]) / (right - left)
            angle = (np.arctan2(dy, dx) % np.pi) / np.pi * 9
            lower, cell = int(angle), (i * 4 // 12) * 4 + j * 4 // 17
            slow[cell, lower % 9] += np.hypot(dy, dx) * (1 - angle + lower)
            slow[cell, (lower + 1) % 9] += np.hypot(dy, dx) * (angle - lower)
    assert np.allclose(histograms.gradient(gray), slow.ravel() / slow.sum())


def test_texture_against_a_loop_over_pixels(picture, monkeypatch):
    monkeypatch.setattr(histograms, "TEXTURE_SCALES", (1,))
    gray = picture(2, 11, 9).convert("L")
    x = np.asarray(gray).astype(int)
    slow = np.zeros((4, 59))
    for i in range(9):
        for j in range(11):
            circle = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))
            around = [x[min(max(i + a, 0), 8), min(max(j + b, 0), 10)] > x[i, j] + 3 for a, b in circle]
            pattern = sum(1 << k for k, bright in enumerate(around) if bright)
            changes = sum(around[k] != around[k - 1] for k in range(8))
            uniform = [p for p in range(256) if sum((p >> k & 1) != (p >> (k - 1) % 8 & 1) for k in range(8)) <= 2]
            slow[(i * 2 // 9) * 2 + j * 2 // 11, uniform.index(pattern) if changes <= 2 else 58] += 1
    assert np.allclose(histograms.texture(gray), slow.ravel() / 99)


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (40, 1), (16, 16), (3, 2)])
def test_blocks_of_tiny_images_sum_to_one(size, picture):
    image = picture(3, *size)
    gray = image.convert("L")
    for block in (histograms.color(image), histograms.gradient(gray), histograms.texture(gray)):
        assert block.min() >= 0
        assert np.isclose(block.sum(), 1.0)


def test_words_are_counted_for_the_nearest():
    rng = np.random.default_rng(0)
    words, found = rng.random((7, 128)).astype("f4"), rng.random((40, 128)).astype("f4")
    nearest = [int(np.argmin(((words - each) ** 2).sum(axis=1))) for each in found]
    assert np.allclose(histograms.word_counts(found, words), np.bincount(nearest, minlength=7) / 40)
    assert np.allclose(histograms.word_counts(found[:0], words), 1 / 7)


def test_descriptors_are_opencv_s_as_square_roots(picture, optional):
    cv2 = optional("cv2")
    gray = picture(4, 120, 100).convert("L")
    _, expected = cv2.SIFT_create(nfeatures=50).detectAndCompute(np.asarray(gray), None)
    found = histograms.descriptors(gray, 50)
    assert np.allclose(found**2, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


def test_few_descriptors_are_words_themselves():
    few = np.random.default_rng(0).random((5, 128)).astype("f4")
    assert np.array_equal(histograms.learn_words(np.vstack([few, few]), 8, 0), np.unique(few, axis=0))
    assert histograms.learn_words(np.vstack([few, few]), 3, 0).shape == (3, 128)


# -- encoders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classical", "sift"])
def test_rows_are_what_they_claim(name, fitted, pictures):
    rows = fitted[name].transform(pictures)
    assert rows.dtype == np.float32
    assert rows.shape == (10, fitted[name].n_features_)
    assert rows.min() >= 0
    mass = (rows**2).sum(axis=1) if name == "classical" else rows.sum(axis=1)
    assert np.allclose(mass, 1.0, atol=1e-5)
    assert len(np.unique(rows, axis=0)) == 10
    assert fitted[name].problems_ == {}


def test_the_size_of_classical_features():
    assert histograms.N_COLOR + histograms.N_GRADIENT + histograms.N_TEXTURE + 256 == 1296


@pytest.mark.parametrize("name", ["classical", "sift"])
def test_a_row_depends_on_its_image_alone(name, fitted, pictures):
    model = fitted[name]
    rows = model.transform(pictures)
    for n_jobs in (1, 2, 5):
        model.n_jobs = n_jobs
        assert np.array_equal(model.transform(pictures), rows)
    model.n_jobs = 1
    assert np.array_equal(model.transform(pictures[::-1])[::-1], rows)
    for place in (0, 7):
        assert np.array_equal(model.transform([pictures[place]])[0], rows[place])
    assert np.array_equal(model.transform(iter(pictures)), rows)


@pytest.mark.parametrize("name", ["classical", "sift"])
def test_fits_are_equal_whatever_the_number_of_threads(name, pictures, fitted):
    for n_jobs in (2, 3):
        again = clone(fitted[name]).set_params(n_jobs=n_jobs).fit(pictures)
        assert np.array_equal(again.words_, fitted[name].words_)
    other = clone(fitted[name]).set_params(random_state=1).fit(pictures)
    assert not np.array_equal(other.words_, fitted[name].words_)


def test_an_image_turned_by_exif_has_the_features_of_the_upright_one(fitted, pictures, as_file):
    upright = pictures[2]
    exif = PIL.Exif()
    for orientation, turn in (
        (3, PIL.Transpose.ROTATE_180),
        (6, PIL.Transpose.ROTATE_90),
        (5, PIL.Transpose.TRANSPOSE),
    ):
        exif[0x0112] = orientation
        stored = as_file(upright.transpose(turn), "PNG", exif=exif)
        for model in fitted.values():
            rows = model.transform([upright, stored, upright.transpose(turn)])
            assert np.array_equal(rows[0], rows[1])
            assert not np.array_equal(rows[0], rows[2])


def test_paths_bytes_and_images_give_the_same(fitted, pictures, as_file, tmp_path):
    data = as_file(pictures[0], "PNG")
    (tmp_path / "a.png").write_bytes(data)
    rows = fitted["classical"].transform([pictures[0], data, tmp_path / "a.png", str(tmp_path / "a.png")])
    assert (rows == rows[0]).all()


@pytest.mark.parametrize("name", ["classical", "sift"])
def test_what_cannot_be_read_is_nan_and_told(name, fitted, pictures):
    good = fitted[name].transform(pictures)
    mixed = [each for pair in zip(BROKEN, pictures, strict=False) for each in pair]
    rows = fitted[name].transform(mixed)
    assert np.array_equal(rows[1::2], good[:5])
    assert np.isnan(rows[::2]).all()
    assert sorted(fitted[name].problems_) == [0, 2, 4, 6, 8]
    assert all(told.endswith(".") for told in fitted[name].problems_.values())
    fitted[name].transform(pictures)
    assert fitted[name].problems_ == {}


def test_broken_images_do_not_disturb_a_fit(fitted, pictures):
    again = clone(fitted["classical"]).fit([*BROKEN, *pictures])
    assert np.array_equal(again.words_, fitted["classical"].words_)
    assert sorted(again.problems_) == [0, 1, 2, 3, 4]


def test_running_out_of_memory_is_told(fitted, pictures, monkeypatch):
    def open_image(item, **_):
        raise MemoryError

    monkeypatch.setattr("fusehash.encoders.images.open_image", open_image)
    assert np.isnan(fitted["sift"].transform(pictures[:1])).all()
    assert "memory" in fitted["sift"].problems_[0]


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (5, 5), (2000, 1500)])
def test_images_of_any_size(size, fitted):
    for model in fitted.values():
        assert np.isfinite(model.transform([PIL.new("RGB", size, (10, 200, 30))])).all()


def test_images_without_keypoints(optional):
    optional("cv2")
    flat = [PIL.new("RGB", (40, 40), (shade, 20, 20)) for shade in (0, 120, 240)]
    model = encoders.make("classical", n_jobs=1).fit(flat)
    rows = model.transform(flat)
    assert rows.shape == (3, 1040)
    assert np.allclose((rows**2).sum(axis=1), 1.0, atol=1e-5)
    with pytest.raises(DataError, match="SIFT keypoint"):
        encoders.make("sift", n_jobs=1).fit(flat)


def test_more_images_than_are_learned_from(pictures, fitted, monkeypatch):
    monkeypatch.setattr("fusehash.encoders.images.FIT_IMAGES", 4)
    models = [clone(fitted["sift"]).set_params(n_words=5).fit(pictures) for _ in range(2)]
    assert np.array_equal(models[0].words_, models[1].words_)


def test_progress_and_interruption(fitted, pictures):
    seen = []
    fitted["sift"].transform(pictures, progress=lambda *step: seen.append(step))
    assert seen[0] == (0, 10, "encoding images")
    assert seen[-1] == (10, 10, "encoding images")

    def stop(step, total, message):
        raise KeyboardInterrupt

    before = fitted["sift"].words_
    with pytest.raises(KeyboardInterrupt):
        fitted["sift"].fit(pictures[:3], progress=stop)
    assert fitted["sift"].words_ is before


# -- rules of all encoders -------------------------------------------------------------------------------------------


def test_names():
    assert encoders.names() == [
        "efficientnet-lite0", "minilm", "classical", "sift", "tfidf", "lda", "clip", "sentence-transformers", "onnx",
    ]  # fmt: skip
    assert encoders.names("image") == [
        "efficientnet-lite0",
        "classical",
        "sift",
        "clip",
        "sentence-transformers",
        "onnx",
    ]
    assert encoders.names("text") == ["minilm", "tfidf", "lda", "clip", "sentence-transformers", "onnx"]
    for name, modality in encoders.ENCODERS:
        cls = encoders.get(name, modality)
        assert (cls.name, cls.modality) == (name, modality)
        for param in cls._get_param_names():
            assert param in cls.__doc__
        rules = parameters.rules_of(cls)
        for param, value in cls().get_params().items():
            if param not in ("path", "tokenizer"):  # have no default
                assert rules[param].accepts(value), param
            assert not rules[param].accepts(object()), param


def test_unknown_names_and_parameters():
    for call in (lambda: encoders.make("gist"), lambda: encoders.make("tfidf", modality="image"),
                 lambda: encoders.make("clip"), lambda: encoders.names("sound"),
                 lambda: encoders.make("sift", words=3)):  # fmt: skip
        with pytest.raises(ParameterError):
            call()


@pytest.mark.parametrize(
    "params", [{"n_words": 0}, {"side": 3}, {"n_keypoints": 1.5}, {"n_jobs": 0}, {"max_pixels": 0}]
)
def test_wrong_parameters(params, pictures):
    with pytest.raises(ParameterError, match=next(iter(params))):
        encoders.make("classical", **params).fit(pictures)


def test_a_single_image_is_no_list(fitted, pictures):
    for item in ("a.jpg", b"x", 3, None):
        with pytest.raises(DataError, match="needs a list of images"):
            fitted["sift"].transform(item)
    assert fitted["sift"].transform([]).shape == (0, fitted["sift"].n_features_)
    with pytest.raises(DataError, match="at least one image"):
        encoders.make("sift").fit([])
    with pytest.raises(NotFittedError):
        encoders.make("sift").transform(pictures)


def test_without_opencv_the_sentence_says_what_to_install(monkeypatch, pictures):
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(MissingPackageError, match=r'pip install "fusehash\[images\]"'):
        encoders.make("classical").fit(pictures)


def test_pickled_encoders_work(fitted, pictures):
    again = pickle.loads(pickle.dumps(fitted["classical"]))
    assert np.array_equal(again.transform(pictures), fitted["classical"].transform(pictures))
