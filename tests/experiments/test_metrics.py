"""Numbers from stored runs: the same as by hand, each once, and missing ones are missed."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash import datasets, hashers
from fusehash.evaluation import average_precision, evaluate, precision_at, precision_recall_by_radius
from fusehash.experiments import metrics
from fusehash.experiments.metrics import bits_for, collect
from fusehash.experiments.spec import parse_spec
from fusehash.experiments.store import ResultStore, RunSettings, searched

I_T = ("image", "text")


def line(made, label):
    return next(series for series in made.spec.runs if series.label == label)


def record(made, label, n_bits, seed, stage):
    series = line(made, label)
    return made.store.get(RunSettings(made.dataset.fingerprint, series.method, series.params, n_bits, seed, stage))


@pytest.mark.parametrize("protocol", ["U", "H", "HN", "FN"])
@pytest.mark.parametrize("new", [False, True])
def test_scores_are_those_of_the_stored_codes(make, protocol, new):
    made = make(new=new)
    [results] = collect(made.spec, made.store)
    score = results.score(line(made, "FuseHash"), 32, protocol, I_T)
    assert score.seeds == (0, 1, 2)
    stage = "half" if protocol in ("HN", "FN") and not new else "train"
    for seed in range(3):
        queries, items, *labels = searched(record(made, "FuseHash", 32, seed, stage), made.dataset, protocol, *I_T)
        expected = average_precision(queries, items, tuple(labels), k=20, ties="expected")
        assert np.array_equal(score.per_query[seed], expected)
        assert score.n_database == len(items)


@pytest.mark.slow
def test_real_runs_give_what_evaluate_gives(tmp_path):
    """The whole way: a run of the runner, its stored codes, and the numbers of the report."""
    from fusehash.experiments import runner

    data = datasets.make_paired(150, views={"image": 12, "text": 9}, n_classes=3, random_state=0)
    np.savez(
        tmp_path / "small.npz", image=data.views["image"], text=data.views["text"], labels=data.labels,
        train_idx=np.arange(110), test_idx=np.arange(110, 150),
    )  # fmt: skip
    content = {"title": "t", "dataset": "small.npz", "methods": ["random"], "bits": [8], "seeds": 2, "k": 10}
    spec, store = parse_spec(content, "small"), ResultStore(tmp_path / "results")
    runner.run(spec, tmp_path, store, workers=1)
    [results] = collect(spec, store)
    loaded = datasets.load(tmp_path / "small.npz")
    expected = evaluate(hashers.make("random", n_bits=8), loaded, k=10, seeds=range(2))
    for direction in results.directions:
        for protocol in ("U", "H", "HN", "FN"):
            score = results.score(spec.runs[0], 8, protocol, direction)
            assert np.allclose(score.per_query, expected[protocol, "->".join(direction)].per_query)


def test_curves_are_means_over_seeds_at_the_length_for_curves(make):
    made = make(protocols=["U"], ties="stable")
    [results] = collect(made.spec, made.store)
    series = line(made, "REG")
    runs = [searched(record(made, "REG", 32, seed, "train"), made.dataset, "U", *I_T) for seed in range(3)]
    expected = [precision_at(q, d, (a, b), n=[50], ties="stable") for q, d, a, b in runs]
    assert results.top_n(series, 32, "U", I_T).shape == (3, 1)  # 80 items
    assert np.allclose(results.top_n(series, 32, "U", I_T), expected)
    recall, precision = results.curve(series, 32, "U", I_T)
    curves = [precision_recall_by_radius(q, d, (a, b), n_bits=32) for q, d, a, b in runs]
    assert recall.shape == (33,)
    assert np.allclose(recall, np.mean([curve.recall for curve in curves], axis=0))
    for radius in range(33):  # a seed that retrieves nothing within a radius has no precision there
        finite = [c.precision[radius] for c in curves if np.isfinite(c.precision[radius])]
        assert np.isnan(precision[radius]) if not finite else precision[radius] == pytest.approx(np.mean(finite))
    assert results.top_n(series, 16, "U", I_T) is None


def test_objectives_and_times_come_one_per_seed(make):
    made = make(protocols=["U"])
    [results] = collect(made.spec, made.store)
    assert [len(values) for values in results.objectives(line(made, "REG"), 32)] == [4, 5, 6]
    assert results.objectives(line(made, "CCA + random rotation"), 32) == []
    assert np.array_equal(results.fit_seconds(line(made, "REG"), 32), [1.0, 2.0, 3.0])
    assert np.array_equal(results.encode_seconds(line(made, "REG"), 32, "text"), [0.001] * 3)
    assert results.notes() == {"CCA + random rotation": ["Beware of <this>."]}


def test_every_run_is_measured_once(make, monkeypatch):
    # The sweep's ridge 0.001 is the default or not; either way no key may be measured twice.
    made = make()
    seen = []
    original = metrics.measure
    monkeypatch.setattr(metrics, "measure", lambda r, *a, **k: (seen.append(r.settings.key), original(r, *a, **k))[1])
    [results] = collect(made.spec, made.store)
    assert sorted(seen) == sorted(set(seen)) == sorted(record.settings.key for record in made.store)
    assert len(results.planned) == len(seen)
    assert results.missing == []


def test_missing_runs_are_counted_and_nothing_is_invented(make):
    made = make(skip=lambda entry: entry.series.label == "REG" and entry.settings.seed == 1)
    [results] = collect(made.spec, made.store)
    lost = results.missing
    assert {(entry.settings.method, entry.settings.seed) for entry in lost} == {("regression", 1)}
    assert len(lost) == 4  # two lengths, two stages
    assert results.score(line(made, "REG"), 16, "U", I_T).seeds == (0, 2)
    assert results.score(line(made, "REG"), 16, "HN", I_T).seeds == (0, 2)


def test_a_store_without_the_data_set_has_nothing(make, tmp_path):
    made = make()
    [results] = collect(made.spec, ResultStore(tmp_path / "empty"))
    assert results.dataset is None
    assert results.directions == []
    assert results.score(made.spec.runs[0], 16, "U", I_T) is None


def test_a_method_that_cannot_be_imported_counts_as_missing(make, monkeypatch):
    made = make()
    original = RunSettings.key.func

    def key(self):
        if self.method == "random":
            raise ModuleNotFoundError("No module named 'x'")
        return original(self)

    monkeypatch.setattr(RunSettings, "key", property(key))
    [results] = collect(made.spec, made.store)
    assert {entry.settings.method for entry in results.missing} == {"random"}
    assert len(results.missing) == 2 * 2 * 3  # lengths, stages, seeds
    assert results.score(line(made, "REG"), 16, "U", I_T) is not None


def test_progress_counts_the_runs(make):
    made = make(protocols=["U"])
    steps = []
    collect(made.spec, made.store, lambda step, total, message: steps.append((step, total, message)))
    assert [step for step, _, _ in steps] == list(range(len(steps)))
    assert {total for _, total, _ in steps} == {len(steps)}
    assert steps[0][2] == "AGSFH, 16 bits"


def test_the_length_for_a_figure(make):
    spec = make().spec
    sweep = next(series for series in spec.runs if series.group)
    assert bits_for(spec, spec.runs[0], 32) == 32
    assert bits_for(spec, spec.runs[0], 64) == 32
    assert bits_for(spec, spec.runs[0], 8) == 16
    assert bits_for(spec, sweep, 32) == 16


def test_stand_in_data_is_named_so(make):
    made = make(stand_in=True)
    [results] = collect(made.spec, made.store)
    assert results.stand_in
    assert results.name == "wiki (stand-in data)"
