"""The query language, filters, composed queries, and what a search says about itself."""

from __future__ import annotations

import contextlib
from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash import bits
from fusehash.collection import Filters, NewItem
from fusehash.collection.queries.calibration import Calibration, fit_logistic
from fusehash.collection.queries.language import Clause, parse
from fusehash.collection.queries.words import Words, spelled
from fusehash.errors import DataError
from fusehash.sqlite import DamageError

# -- the language ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("red car", Clause("red car")),
        ('"red car" fast', Clause("red car fast", phrases=("red car",))),
        ('-people -"red car" beach', Clause("beach", excluded=("people", "red car"))),
        ('label:beach -label:"old town"', Clause(labels=("beach",), excluded_labels=("old town",))),
        ("after:2019 before:2020-06-15 sea", Clause("sea", after=date(2019, 1, 1), before=date(2020, 6, 15))),
        ("after:2019 after:2018-02", Clause(after=date(2019, 1, 1))),
        ("a t-shirt - 12:30 or label:", Clause("a t-shirt 12:30 or label:")),
        ('an "open quote', Clause('an "open quote')),
        ("OR cat OR", Clause("cat")),
    ],
)
def test_one_side(query: str, clause: Clause) -> None:
    assert parse(query) == (clause,)


def test_each_side_of_or_is_a_query_of_its_own() -> None:
    assert parse("red car -old OR label:bus OR red car -old") == (
        Clause("red car", excluded=("old",)),
        Clause(labels=("bus",)),
    )


@pytest.mark.parametrize("query", ["before:yesterday", "after:2020-13", "before:2020-02-30", " ", "OR", "- -", '""'])
def test_what_is_no_query(query: str) -> None:
    with pytest.raises(DataError):
        parse(query)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='ab-:" ORlabe', max_size=30))
def test_any_text_is_a_query_or_one_sentence(query: str) -> None:
    with contextlib.suppress(DataError):
        clauses = parse(query)
        assert clauses
        assert not any(clause.is_empty for clause in clauses)


# -- words -----------------------------------------------------------------------------------------------------------

CORPORA = st.dictionaries(
    st.integers(1, 30), st.lists(st.sampled_from(["red", "car", "cars", "bus"]), max_size=4).map(" ".join), max_size=8
)


@settings(max_examples=60, deadline=None)
@given(CORPORA, st.lists(st.sampled_from(["red", "car", "bus"]), min_size=1, max_size=3))
def test_phrases_are_found_like_a_slow_reader_finds_them(corpus: dict[int, str], phrase: list[str]) -> None:
    words = Words.read(sorted(corpus.items()))
    texts = {id: text.split() for id, text in corpus.items()}
    size = len(phrase)
    expected = [i for i, t in sorted(texts.items()) if any(t[j : j + size] == phrase for j in range(len(t)))]
    assert words.having_phrase(" ".join(phrase)).tolist() == expected


def test_forms_missing_words_and_highlights() -> None:
    words = Words.read([(1, "Two Kids in a red-brick house"), (2, "a kite")])
    assert words.having("kid").tolist() == [1]
    assert words.having_all(["kid", "house"]).tolist() == [1]
    assert words.missing("a castle for kids and a Kite, the moat") == ["castle", "moat"]
    assert words.matched(1, ["the kid's house"]) == ("Kids", "house")
    assert words.matched(9, ["kid"]) == ()
    assert spelled("Straße 12") == ["straße", "12"]


# -- searches --------------------------------------------------------------------------------------------------------


def texts_of(hits):
    return [hit.item.text for hit in hits]


def test_the_language_filters(small) -> None:
    assert all("red" not in text for text in texts_of(small.search("thing -red", k=40)))
    assert len(small.search("thing -red", k=40)) == 30
    assert {hit.item.labels[1] for hit in small.search("red label:mod0", k=40)} == {"mod0"}
    assert all("mod0" not in hit.item.labels for hit in small.search("red -label:mod0", k=40))
    phrase = small.search('"yellow thing number3"', k=40)
    assert set(texts_of(phrase)) == {"a yellow thing number3"}
    assert small.search('"thing yellow"').note == "No caption contains “thing yellow”."
    assert small.search("label:rad").note == "No item has the label “rad”. Did you mean “red”?"
    assert small.search("red", label="beech").note == "No item has the label “beech”."
    assert len(small.search("red", label="beech")) == 0 < len(small.search("label:beech OR label:red"))
    both = small.search("label:red OR label:blue", k=40)
    assert both.note == ""
    assert {hit.item.labels[0] for hit in both} == {"red", "blue"}
    assert (both.total, len(both), both.code) == (20, 20, b"")
    assert [hit.id for hit in both] == sorted(hit.id for hit in both)


def test_or_gives_each_item_its_better_score(small) -> None:
    one, other = small.search("red number1", k=40), small.search("blue number2", k=40)
    merged = small.search("red number1 OR blue number2", k=40)
    scores = {hit.id: hit.score for hit in one}
    for hit in other:
        scores[hit.id] = max(scores[hit.id], hit.score)
    assert {hit.id: hit.score for hit in merged} == scores
    assert len(merged) == len({hit.id for hit in merged}) == 40


def test_words_that_no_caption_has(small) -> None:
    hits = small.search("a red castle", k=5)
    assert hits.missing == ["castle"]
    assert hits.matching == 0
    assert hits.note == "No caption contains “castle”; showing what looks closest."
    assert all("red" in hit.matched for hit in hits)
    found = small.search("a red thing", k=5)
    assert (found.missing, found.note, found.matching, found.total) == ([], "", 10, 40)


def test_pages_continue_each_other(small, monkeypatch) -> None:
    from fusehash.collection import answering

    monkeypatch.setattr(answering, "FIRST_ROUND", 6)
    whole = [hit.id for hit in small.search("a red thing number1", k=40)]
    assert sorted(whole) == list(range(1, 41))
    for size in (3, 7, 15):
        pages = [small.search("a red thing number1", k=size, offset=offset) for offset in range(0, 40, size)]
        assert [hit.id for page in pages for hit in page] == whole


def test_confidence_is_a_threshold(small, draw) -> None:
    small.add([NewItem("blank.png", draw("red", 77))])
    small.reindex()
    hits = small.search("a red number1", k=41)
    assert hits[0].matched == ("red", "number1")
    assert (hits[0].confidence or 0.0) > 0.8
    assert small.search("a red thing number1")[0].confidence == 1.0  # exactly these words
    known = [hit.confidence for hit in hits]
    assert all(value is not None and 0.0 <= value <= 1.0 for value in known)
    assert np.allclose(known, sorted(known, reverse=True), atol=0.0101)
    sure = small.search("a red number1", k=41, min_confidence=0.8)
    assert [hit.id for hit in sure] == [hit.id for hit in hits if (hit.confidence or 0) >= 0.8]


def test_composed_queries_are_linear(small, draw) -> None:
    snapshot, picture = small._now(), draw("red", 99)
    unit = lambda v: v / np.linalg.norm(v)  # noqa: E731
    signs = {id: bits.unpack(snapshot.index.get([id]), 32)[0].astype(float) for id in (1, 2, 3)}
    by_picture, by_text = snapshot.project("image", picture), snapshot.project("text", "blue thing")
    expected = unit(by_picture) + unit(signs[1]) + unit(signs[2]) - 0.5 * unit(signs[3])
    hits = small.search(image=picture, like=[1, 2], unlike=3, k=40)
    assert hits.code == bits.pack(expected[None])[0].tobytes()
    assert not {1, 2, 3} & {hit.id for hit in hits}
    assert len(hits) == 37
    composed = small.search("blue thing", image=picture)
    assert composed.code == bits.pack((unit(by_text) + unit(by_picture))[None])[0].tobytes()
    assert small.search("thing", like=1, unlike=2).code != small.search("thing", like=1).code
    opposite = small.search(unlike=1, k=40)
    assert opposite[0].item.labels[0] != small.item(1).labels[0]


def test_a_picture_of_the_collection_finds_itself(small, items) -> None:
    for item in items(40):
        hits = small.search(image=item.image, k=3)
        assert hits[0].same_image
        assert (hits[0].item.key, hits[0].distance) == (item.key, 0)
        assert not any(hit.same_image for hit in hits[1:])


def test_a_picture_can_be_searched_again_without_itself(small, items, draw) -> None:
    for picture in (draw("red", 99), items(3)[2].image):
        first = small.search(image=picture, k=40)
        again = small.search(picture=first.picture, k=40)
        assert [hit.id for hit in again] == [hit.id for hit in first]
        assert (again.code, again.picture) == (first.code, first.picture)
        assert [hit.same_image for hit in again] == [hit.same_image for hit in first]
        worded = small.search("blue", picture=first.picture, k=40)
        assert [hit.id for hit in worded] == [hit.id for hit in small.search("blue", image=picture, k=40)]
    for wrong in (b"", b"\x01" + bytes(10), first.picture[:-1], b"\x02" + first.picture[1:], "x"):
        with pytest.raises(DataError):
            small.search(picture=wrong)
    foreign = small.search(image=draw("red", 99)).picture
    with pytest.raises(DataError, match="generation"):
        small.search(picture=foreign[:1] + (77).to_bytes(8, "little") + foreign[9:])


def test_filters_and_orders(small, draw, tmp_path) -> None:
    import os

    for name, day in (("a/one", "2020-05-01"), ("a/b/two", "2021-01-31"), ("c/three", "2019-12-31")):
        path = tmp_path / f"{name.replace('/', '-')}.png"
        path.write_bytes(draw("green", len(name)))
        seconds = int(np.datetime64(day + "T12:00:00").astype(int))
        os.utime(path, (seconds, seconds))
        small.add([NewItem(f"{name}.png", path)])
    keys = lambda **filters: [item.key for item in small.items(filters=Filters(**filters))]  # noqa: E731
    assert keys(folder="a") == ["a/one.png", "a/b/two.png"]
    assert keys(has_text=False) == ["a/one.png", "a/b/two.png", "c/three.png"]
    assert keys(has_text=False, after=date(2020, 5, 1), before=date(2021, 1, 31)) == ["a/one.png"]
    assert small.count(filters=Filters(has_text=True)) == 40
    assert [item.key for item in small.items(limit=3, order="newest")] == ["a/b/two.png", "a/one.png", "c/three.png"]
    assert [item.key for item in small.items(limit=2, order="oldest")] == ["c/three.png", "a/one.png"]
    assert [item.id for item in small.items(limit=2, order="added")] == [43, 42]
    names = [item.key for item in small.items(order="name")]
    assert names == sorted(names, key=str.casefold)
    assert [hit.item.key for hit in small.search("after:2021")] == ["a/b/two.png"]
    assert {hit.item.key for hit in small.search("thing", k=40, filters=Filters(folder="a"))} == set(keys(folder="a"))
    assert small.item(41).path == tmp_path / "a-one.png"
    assert small.item(41).day == "2020-05-01"


# -- calibration -----------------------------------------------------------------------------------------------------


def test_the_regression_finds_the_weights_that_made_its_data() -> None:
    rng = np.random.default_rng(0)
    variables = np.column_stack([np.ones(20_000), rng.normal(size=(20_000, 2))])
    weights = np.array([-1.0, 2.0, 0.5])
    right = (rng.random(20_000) < 1 / (1 + np.exp(-variables @ weights))).astype(float)
    learned = fit_logistic(variables, right)
    assert np.allclose(learned, weights, atol=0.08)
    chance = 1 / (1 + np.exp(-variables @ learned))
    assert abs(chance.mean() - right.mean()) < 1e-3  # the constant is hardly penalized


def test_a_calibration_survives_its_file_and_refuses_others(small) -> None:
    stored = small._now().state.calibration
    assert stored is None or Calibration.from_dict(stored).to_dict().keys() == stored.keys()
    made = Calibration((0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.5), 0.5, 40)
    assert Calibration.from_dict(made.to_dict()) == made
    earlier = {**made.to_dict(), "weights": [0.0, 1.0, 2.0, 0.0, 0.0, 0.5]}
    assert Calibration.from_dict(earlier).weights == (0.0, 1.0, 2.0, 0.0, 0.0, 0.5, 0.0)  # no weight for neighbors
    for wrong in ({}, {**made.to_dict(), "weights": [1.0]}, {**made.to_dict(), "unnamed": float("nan")}, 3):
        with pytest.raises(DamageError):
            Calibration.from_dict(wrong)
