"""Every picture is one call: right numbers, valid SVG, one clear sentence for wrong input."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import fusehash as fh
from fusehash.errors import DataError, ParameterError
from fusehash.plots.codes import correlations, principal_plane
from joint import joint_embeddings

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 256, (300, 4), dtype=np.uint8)
QUERIES = RNG.integers(0, 256, (20, 4), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 20), RNG.integers(0, 3, 300)
P = RNG.normal(size=(300, 16))


def texts(plot):
    return {"".join(node.itertext()) for node in ET.fromstring(plot.svg()).iter("{http://www.w3.org/2000/svg}text")}


@pytest.fixture(scope="module")
def runs():
    data = fh.datasets.make_paired(n_samples=200, random_state=0)
    return {b: fh.evaluation.evaluate(fh.RegressionHasher(n_bits=b), data, seeds=[0, 1]) for b in (8, 16)}


@pytest.fixture(scope="module")
def plots(runs):
    inspected = fh.evaluation.inspect_embeddings(joint_embeddings(80, width=24), lengths=(16, 32))
    pairs = {8: (QUERIES[:, :1], CODES[:, :1]), 32: (QUERIES, CODES)}
    return {
        "code_balance": fh.plots.code_balance({"training": CODES, "new": QUERIES}),
        "bit_correlation": fh.plots.bit_correlation(CODES, n_bits=30),
        "shared_space": fh.plots.shared_space({"image": P, "text": -P}, labels=["a", "b", "c"] * 100),
        "drift": fh.plots.drift(CODES, [CODES[:50], CODES[50:]]),
        "ties": fh.plots.ties(pairs, LABELS),
        "precision_recall": fh.plots.precision_recall({"mine": pairs[32]}, LABELS),
        "map_over_bits": fh.plots.map_over_bits({"regression": runs}, "HN", "text->image"),
        "recall_over_bits": fh.plots.recall_over_bits(inspected),
        "spectra": fh.plots.spectra(inspected),
        "cost": fh.plots.cost({"fit": {100: 0.1, 1000: 0.5}}),
    }


def test_every_plot_is_tried(plots):
    assert set(plots) == set(fh.plots.__all__) - {"Plot"}


@pytest.mark.parametrize("name", sorted(set(fh.plots.__all__) - {"Plot"}))
def test_a_plot_is_valid_svg_with_a_name_and_a_description(plots, name):
    plot = plots[name]
    root = ET.fromstring(plot.svg())
    assert root.get("aria-label") == plot.title
    assert plot.description in {node.text for node in root.iter("{http://www.w3.org/2000/svg}desc")}
    assert plot.title in texts(plot) | {"Shared space of image and text"}
    assert plot._repr_svg_() == plot.svg()


def test_files_have_the_format_of_their_ending(plots, tmp_path):
    heads = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    for ending, head in heads.items():
        assert plots["cost"].save(tmp_path / f"a{ending}").read_bytes().startswith(head)
    with pytest.raises(ParameterError, match=r"\.svg, \.png, \.pdf"):
        plots["cost"].save(tmp_path / "a.exe")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == sorted(heads)


def test_balance_shows_the_mean_of_every_bit():
    codes = fh.bits.pack(np.array([[1, 1, 1, -1], [1, -1, 1, 1], [1, 1, -1, -1], [1, -1, -1, -1]]))
    line = fh.plots.code_balance(codes, n_bits=4).figure.axes[0].lines[0]
    assert line.get_ydata() == pytest.approx([1.0, 0.5, 0.0, 0.0])


def test_correlations_are_numpys():
    B = fh.bits.unpack(CODES, 32).astype(float)
    assert correlations(B) == pytest.approx(np.corrcoef(B.T))
    assert np.isnan(correlations(np.ones((5, 2)))).all()


def test_the_plane_holds_the_most_variance_there_is():
    X = RNG.normal(size=(50, 6)) * [5, 3, 1, 1, 1, 1]
    plane, share = principal_plane(X)
    w = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    assert plane.var(axis=0, ddof=1) == pytest.approx(w[:2])
    assert share == pytest.approx(w[:2].sum() / w.sum())
    assert principal_plane(np.arange(3.0)[:, None])[0].shape == (3, 2)


def test_ties_range_from_the_worst_to_the_best_order(plots):
    lines = {line.get_label(): line.get_ydata() for line in plots["ties"].figure.axes[0].lines}
    best, expected, worst = lines.values()
    assert (worst < expected).all()
    assert (expected < best).all()


def test_map_over_bits_has_means_and_spread(plots, runs):
    axes = plots["map_over_bits"].figure.axes[0]
    assert axes.lines[0].get_ydata() == pytest.approx([runs[b]["HN", "text->image"].mean for b in (8, 16)])
    assert len(axes.collections) == 1


def test_logarithmic_axes_have_plain_numbers(plots):
    assert {"100", "1000"} <= texts(plots["cost"])
    assert not any("mathdefault" in text for text in texts(plots["cost"]))


def test_drift_is_the_change_of_bit_means():
    moved = CODES | 1
    lines = fh.plots.drift(CODES, [CODES, moved]).figure.axes[0].lines
    change = np.abs(fh.bits.unpack(moved, 32).mean(axis=0) - fh.bits.unpack(CODES, 32).mean(axis=0))
    assert lines[0].get_ydata() == pytest.approx([0.0, change.max()])
    assert lines[1].get_ydata() == pytest.approx([0.0, change.mean()])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: fh.plots.code_balance({}), "at least one set of codes"),
        (lambda: fh.plots.code_balance(CODES[:0]), "Got none"),
        (lambda: fh.plots.code_balance(P), "uint8"),
        (lambda: fh.plots.shared_space({"image": P, "text": P[:, :3]}), "equal shape"),
        (lambda: fh.plots.shared_space({"image": P * np.nan}), "NaN"),
        (lambda: fh.plots.shared_space({"image": P}, labels=[1, 2]), "one per row"),
        (lambda: fh.plots.drift(CODES, []), "at least one batch"),
        (lambda: fh.plots.ties({}, LABELS), "at least one pair"),
        (lambda: fh.plots.precision_recall({}, LABELS), "at least one pair"),
        (lambda: fh.plots.map_over_bits({"a": {}}), "at least one result"),
        (lambda: fh.plots.cost({"a": {}}), "at least one measurement"),
        (lambda: fh.plots.cost({"a": {0: 1.0}}), "positive"),
    ],
)
def test_wrong_input_is_one_clear_sentence(draw, message):
    with pytest.raises(DataError, match=message):
        draw()


def test_results_without_the_protocol_say_what_they_hold(runs):
    with pytest.raises(DataError, match="HN"):
        fh.plots.map_over_bits({"regression": runs}, "XX")


def test_what_bits_buy_is_described_with_its_numbers():
    found = fh.evaluation.inspect_embeddings(joint_embeddings(80, width=24), lengths=(16, 32))
    plot = fh.plots.recall_over_bits(found)
    assert f"sign {found.recall('sign', 32):.3f}" in plot.description
    assert f"two numbers, rescored {found.recall('two numbers', 32, is_rescored=True):.3f}" in plot.description
    half = sum(np.cumsum(found.spectra["text"]) < 0.5 * sum(found.spectra["text"])) + 1
    assert f"text: half of the variance in {half} of 24" in fh.plots.spectra(found).description
