"""Specifications: what comes along can be read, and what is wrong is said in one sentence before anything runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fusehash import hashers
from fusehash.errors import DataError, MissingPackageError
from fusehash.experiments.spec import SECTIONS, SYMBOLS, Spec, load_spec, parse_spec, shipped
from fusehash.experiments.tables import published

TINY: dict[str, Any] = {"title": "Tiny", "dataset": "small.npz", "methods": ["regression"], "bits": [16]}


def spec_of(**changes: Any) -> Spec:
    return parse_spec({key: value for key, value in {**TINY, **changes}.items() if value is not ...}, "tiny")


# ---- what comes along


def test_the_paper_comes_along():
    paper = [name for name in shipped() if name.startswith("paper/")]
    assert paper == ["paper/examples", "paper/figures", *(f"paper/table{n}" for n in range(1, 8))]


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_specification_is_sound(name):
    spec = load_spec(name)
    assert spec.name == name
    assert spec.seeds == (0, 1, 2, 3, 4)
    if spec.embeddings is not None:  # neither labels nor ties
        return
    assert spec.ties == "stable"
    assert spec.k == (None if name in ("wiki/whole-ranking", "frozen/ucch", "frozen/dcmh") else 50)
    assert spec.seeds == (0, 1, 2, 3, 4)
    assert set(spec.sections) <= set(SECTIONS)
    assert all(dataset.stand_in for dataset in spec.datasets) or not name.startswith(("paper/table", "paper/figures"))
    if spec.paper is not None:
        table = published(spec.paper)
        assert spec.bits == table.bits
        assert {series.printed for series in spec.runs} & {row.method for row in table.rows}
        assert "FuseHash" not in {series.label for series in spec.runs if series.printed}


@pytest.mark.parametrize("name", ["paper/table1", "paper/table2", "paper/table3"])
def test_the_tables_list_every_unsupervised_method_and_every_control(name):
    listed = {series.method for series in load_spec(name).runs}
    closed = {entry.name for entry in hashers.catalogue("unsupervised") if not entry.is_deep}
    assert listed == {*closed, *hashers.names("control")}


def test_the_sweeps_move_one_setting_and_leave_the_others_published():
    points = [series for series in load_spec("paper/figures").runs if series.group]
    assert {series.group for series in points} == set(SYMBOLS["agsfh"])
    values = {"lambda": 300, "gamma_1": 0.01, "gamma_2": 10, "gamma_3": 0.01, "C": 60, "k": 45, "P": 900}
    for series in points:
        for symbol, value in values.items():
            assert series.params[SYMBOLS["agsfh"][symbol]] == (series.x if series.group == symbol else value)
    for group, value in values.items():
        assert value in [series.x for series in points if series.group == group]


def test_the_settings_of_the_sweeps_are_the_defaults_of_agsfh():
    preset = hashers.make("agsfh").get_params()
    symbols = {symbol: preset[name] for symbol, name in SYMBOLS["agsfh"].items() if preset[name] != "auto"}
    assert symbols == {"lambda": 300.0, "gamma_1": 0.01, "gamma_2": 10.0, "gamma_3": 0.01}


# ---- what a file may say


def test_defaults():
    spec = spec_of()
    assert spec.datasets[0].name == "small.npz"
    assert (spec.datasets[0].options, spec.datasets[0].stand_in) == ({}, None)
    assert spec.protocols == ("U", "H", "HN", "FN")
    assert (spec.k, spec.ties, spec.seeds, spec.paper) == (50, "expected", (0, 1, 2, 3, 4), None)
    assert spec.runs[0].label == "REG"


def test_everything_that_can_be_said(tmp_path: Path):
    text = """
title: All
notes: >
  two
  lines
dataset:
  - {name: wiki, options: {n_train: 100}, stand_in: {n_samples: 50}}
  - mirflickr25k
methods:
  - fsh
  - {label: mine, method: agsfh, params: {max_iter: 3}, printed: AGSFH, bits: [64]}
sweep: {method: agsfh, params: {}, bits: [32], over: {lambda: [1, 10.5], max_iter: [2]}}
bits: [16, 32]
seeds: [3, 5]
protocols: [U, FN]
k: all
ties: best
sections: [map, sensitivity]
paper: 1
"""
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    spec = load_spec(file)
    assert (spec.name, spec.notes, spec.k, spec.seeds, spec.paper) == ("mine", "two lines", None, (3, 5), 1)
    assert [dataset.name for dataset in spec.datasets] == ["wiki", "mirflickr25k"]
    assert spec.datasets[0].options == {"n_train": 100}
    assert [series.label for series in spec.lines] == ["FSH", "mine"]
    assert [series.printed for series in spec.lines] == ["FSH", "AGSFH"]
    assert [(s.group, s.x, s.params) for s in spec.runs[2:]] == [
        ("lambda", 1.0, {"regression_weight": 1}),
        ("lambda", 10.5, {"regression_weight": 10.5}),
        ("max_iter", 2.0, {"max_iter": 2}),
    ]
    assert [spec.bits_of(series) for series in spec.runs] == [(16, 32), (64,), (32,), (32,), (32,)]
    assert len(spec.points()) == 2 * (2 + 1 + 3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"color": "red"}, "may have the keys title, notes, .* Got 'color' instead"),
        ({"title": ...}, "must have the key 'title'"),
        ({"dataset": ...}, "must have the key 'dataset'"),
        ({"dataset": []}, "'dataset' of tiny must be a list that is not empty"),
        ({"dataset": {"options": {}}}, "must have a 'name'"),
        ({"dataset": {"name": "wiki", "options": {"color": 1}}}, "'options' of data set wiki .* Got 'color' instead"),
        ({"dataset": {"name": "wiki", "stand_in": {"rows": 1}}}, "'stand_in' of data set wiki .* Got 'rows' instead"),
        ({"methods": ...}, "must list 'methods', or a 'sweep'"),
        ({"methods": "regression"}, "'methods' of tiny must be a list"),
        ({"methods": ["nothing"]}, "must be among fusehash, agsfh, .* Got 'nothing' instead"),
        ({"methods": [{"label": "x"}]}, "must have the key 'method'"),
        ({"methods": ["regression", "regression"]}, "must differ. Got 'REG' 2 times"),
        ({"methods": [{"method": "regression", "color": 1}]}, "Got 'color' instead"),
        ({"methods": [{"method": "regression", "params": {"wings": 1}}]}, "'params' of regression .* Got 'wings'"),
        ({"methods": [{"method": "regression", "params": {"n_bits": 8}}]}, "'params' of regression .* Got 'n_bits'"),
        ({"methods": [{"method": "regression", "params": 3}]}, "must be a list of keys and values. Got 3"),
        ({"methods": [{"method": "agsfh", "params": {"preset": "paper"}}]}, "no key 'preset' any more: AGSFH is the"),
        ({"methods": [{"method": "fusehash", "params": {"preset": "paper"}}]}, "'preset' any more: use AGSFH"),
        ({"sweep": {"method": "agsfh"}}, "must have the key 'over'"),
        ({"sweep": {"method": "agsfh", "over": {"wings": [1]}}}, "'params' of agsfh .* Got 'wings'"),
        ({"sweep": {"method": "agsfh", "over": {"lambda": ["many"]}}}, "must be numbers. Got 'many'"),
        ({"sweep": {"method": "agsfh", "over": []}}, "must name settings and their values"),
        ({"bits": [12]}, "must be a positive multiple of 8, at most 4096. Got 12"),
        ({"bits": 16}, "'bits' of tiny must be a list"),
        ({"bits": []}, "must be a list that is not empty"),
        ({"seeds": 0}, "an integer from 1 to 10000, or a list of seeds"),
        ({"seeds": [-1]}, "an integer of at least 0. Got -1"),
        ({"protocols": ["U", "X"]}, "among U, H, HN, FN. Got 'X' instead"),
        ({"protocols": []}, "must be a list that is not empty"),
        ({"k": 0}, "at least 1, or all"),
        ({"ties": "none"}, "among expected, stable, best, worst"),
        ({"sections": ["fun"]}, "among map, topn"),
        ({"paper": 9}, "must be an integer from 1 to 7, or ucch, dcmh, djsrh. Got 9 instead"),
        ({"paper": True}, "must be an integer from 1 to 7, or ucch, dcmh, djsrh. Got True instead"),
        ({"paper": 1.0}, "must be an integer from 1 to 7, or ucch, dcmh, djsrh. Got 1.0 instead"),
        ({"title": None}, "'title' of tiny must be text. Got None instead"),
        ({"notes": ["a"]}, "'notes' of tiny must be text"),
    ],
)
def test_what_is_wrong_is_said(changes, sentence):
    with pytest.raises(DataError, match=sentence) as caught:
        spec_of(**changes)
    assert "\n" not in str(caught.value)


def test_a_key_without_a_value_is_as_good_as_none():
    method = {"method": "regression", "label": None, "params": None, "printed": None}
    spec = spec_of(notes=None, methods=[method], paper=None)
    assert spec.notes == ""
    assert (spec.runs[0].label, spec.runs[0].params, spec.runs[0].printed) == ("REG", {}, "")


@pytest.mark.parametrize("content", [None, 3, "text", ["a"]])
def test_a_specification_is_keys_and_values(content):
    with pytest.raises(DataError, match="must be a list of keys and values"):
        parse_spec(content, "tiny")


def test_no_such_specification():
    with pytest.raises(DataError, match=r"or one of embeddings/table, frozen/dcmh, .*Got 'paper/table9', which is"):
        load_spec("paper/table9")


@pytest.mark.parametrize("text", ["a: [1", "\tx", "!!python/object/apply:os.getcwd []"])
def test_what_is_not_plain_yaml_is_refused(tmp_path: Path, text: str):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=r"must be a YAML file|must hold plain values"):
        load_spec(file)


def test_without_pyyaml_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingPackageError, match=r'pip install "fusehash\[bench\]"'):
        load_spec("paper/table1")


# ---- narrowing


def test_narrowing():
    spec = load_spec("paper/table1")
    narrow = spec.narrowed(["AGSFH", "regression"], [32, 16], 2)
    assert [series.label for series in narrow.runs] == ["AGSFH", "REG"]
    assert (narrow.bits, narrow.seeds) == ((16, 32), (0, 1))
    assert len(narrow.points()) == 2 * 2 * 2
    assert [series.label for series in spec.narrowed(["aGsFh"]).runs] == ["AGSFH"]
    assert spec.narrowed() == spec


def test_narrowing_respects_the_bits_of_a_series():
    narrow = load_spec("paper/figures").narrowed(bits=[64])
    assert [(series.label, narrow.bits_of(series)) for series in narrow.runs] == [("AGSFH", (64,))]
    assert narrow.bits == (64,)


def test_other_epochs_are_those_of_deep_methods():
    spec = load_spec("frozen/ucch").narrowed(["jdsh", "DGCPN", "fsh"], n_epochs=3)
    assert [series.params for series in spec.runs] == [{}, {"epochs": 3}, {"subsample": True, "epochs": 3}]
    assert spec.options[-2:] == ("--epochs", "3")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"n_epochs": 3}, "No method of paper/table1 learns in epochs"),
        (
            {"only": ["wings"]},
            "--only must name a method or a label of paper/table1. Got 'wings' .* It has: 'AGSFH'; .*; and 9 more",
        ),
        ({"bits": [24]}, "among 16, 32, 64, 128. Got 24"),
        ({"n_seeds": 6}, "has 5 seeds. Got 6"),
    ],
)
def test_narrowing_to_what_is_not_there(words, sentence):
    with pytest.raises(DataError, match=sentence):
        load_spec("paper/table1").narrowed(**words)


def test_narrowing_to_nothing():
    with pytest.raises(DataError, match="Nothing of paper/figures is left"):
        load_spec("paper/figures").narrowed(["fsh"], [64])


LEVELS = [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(6)]
MERGED = [f"{chr(98 + i)}: &{chr(98 + i)} {{<<: [{', '.join([f'*{chr(97 + i)}'] * 9)}]}}" for i in range(6)]
CHAINED = [f"a{i + 1}: &a{i + 1} [*a{i}]" for i in range(100)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n".join(["a: &a [laugh]", *LEVELS, "title: *g"]), "when its aliases are replaced"),
        ("\n".join(["a: &a {x: laugh}", *MERGED, "title: *g"]), "when its aliases are replaced"),
        ("\n".join(["a0: &a0 [x]", *CHAINED]), "64 levels"),
        ("a: &a [*a]", "must not contain itself"),
        ("[" * 100 + "]" * 100, "64 levels"),
        ("[" * 100_000, "must be a YAML file"),
        ("title: " + "x" * (1 << 18), "at most 262,144 characters"),
        ("title: !!binary aGVsbG8=", "plain values. Got 'binary' in line 1"),
        ("title: 2026-11-15", "plain values. Got 'timestamp' in line 1"),
        ("title: 2026-13-45", "plain values. Got 'timestamp' in line 1"),
        ("title: !mine x", "plain values. Got '!mine' in line 1"),
        (f"title: {'9' * 5000}", "numbers of at most 20 digits"),
        (f"title: 0x{'f' * 5000}", "numbers of at most 20 digits"),
    ],
)
def test_a_hostile_document_is_refused_in_one_short_sentence(tmp_path: Path, text: str, expected: str):
    file = tmp_path / "hostile.yaml"
    file.write_text(text)
    with pytest.raises(DataError, match=re.escape(expected)) as refusal:
        load_spec(file)
    assert len(str(refusal.value)) < 500


def test_aliases_and_merged_keys_still_work(tmp_path: Path):
    file = tmp_path / "aliases.yaml"
    text = "title: T\ndataset: wiki\nbits: &bits [16, 32]\n"
    text += "methods: [&a {method: agsfh, bits: *bits}, {<<: *a, label: other, params: {max_iter: 2}}]\n"
    file.write_text(text)
    assert [series.bits for series in load_spec(file).runs] == [(16, 32), (16, 32)]


def test_an_absurd_number_of_seeds_is_refused():
    with pytest.raises(DataError, match="'seeds' of x must be an integer from 1 to 10000"):
        parse_spec({"title": "T", "dataset": "wiki", "bits": [16], "methods": ["fsh"], "seeds": 10**15}, "x")


def test_a_pipe_is_no_specification(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(DataError, match="must be a file"):
        load_spec(tmp_path / "pipe.yaml")


def test_one_specification_can_ask_for_two_cut_offs():
    spec = parse_spec({"title": "t", "dataset": "wiki", "methods": ["cvh"], "bits": [16], "k": [50, "all", 50]}, "mine")
    assert [one.k for one in spec.each_k()] == [50, None]
    assert [one.k for one in load_spec("paper/table6").each_k()] == [50, None]
    assert {"dcmh", "ddcmh", "dbrc", "agsfh"} <= {series.method for series in load_spec("paper/table6").runs}


def test_the_table_of_ucch():
    table = published("ucch")
    assert len(table.rows) == 64
    found = {(row.dataset, row.direction, row.method): row.values for row in table.rows}
    assert found["iaprtc12", "text->image", "UCCH"] == {16: 0.474, 32: 0.488, 64: 0.503, 128: 0.508}
    assert found["mirflickr25k", "image->text", "FSH"][64] == 0.635


def test_the_tables_of_dcmh_and_djsrh_say_what_is_copied_there():
    rows = {
        (row.dataset, row.direction, row.method): row for table in ("dcmh", "djsrh") for row in published(table).rows
    }
    assert rows["iaprtc12", "text->image", "DCMH"].values == {16: 0.5185, 32: 0.5378, 64: 0.5468}
    assert rows["wiki", "image->text", "DBRC"].values[128] == 0.288
    assert {method for (_, _, method), row in rows.items() if row.source == "2nd"} == {"DBRC", "DSAH"}
    table6 = {row.method: row.source for row in published(6).rows}
    assert table6 == {"AGSFH": "paper", "DCMH": "2nd", "DDCMH": "2nd", "DBRC": "2nd"}
