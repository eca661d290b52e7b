"""What public codes call MAP@k, on cases computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash.errors import ParameterError
from fusehash.evaluation import MAP_RULES, average_precision, mean_average_precision

# Distances 0, 1, 2, 3, 4 for both queries, no ties. The first has relevant items at ranks 1, 3 and 5, the second none.
QUERIES = np.zeros((2, 1), dtype=np.uint8)
DATABASE = np.array([[0], [1], [3], [7], [15]], dtype=np.uint8)
RELEVANT = np.array([[1, 0, 1, 0, 1], [0, 0, 0, 0, 0]], dtype=bool)
WHOLE = (1 + 2 / 3 + 3 / 5) / 3


@pytest.mark.parametrize("ties", ["expected", "stable", "best", "worst"])
@pytest.mark.parametrize(
    ("rule", "k", "value"),
    [
        ("E1", 4, (1 + 2 / 3) / 2 / 2),  # two relevant items inside the top 4
        ("E1", 2, 1.0 / 2),
        ("E1", 100, WHOLE / 2),
        ("E1", None, WHOLE / 2),
        ("E2", 4, (1 + 2 / 3) / 2 / 2),
        ("E2", 100, WHOLE / 2),
        ("E3", None, WHOLE),  # the second query is not counted
        ("E3'", None, WHOLE / 11),  # one good query, and ten that do not exist
        ("E4", None, WHOLE / 2),
        ("E5", 2, (1 + 2 / 3) / 2 / 2),  # the first two hits, though the second is at rank 3
        ("E5", 3, WHOLE / 2),
        ("E5", 50, WHOLE / 2),
        ("E6", None, WHOLE / 2),
    ],
)
def test_by_hand(rule, k, value, ties):
    assert mean_average_precision(QUERIES, DATABASE, RELEVANT, k, ties, rule=rule) == pytest.approx(value, abs=1e-15)


def test_per_query_values_follow_the_rule():
    np.testing.assert_allclose(average_precision(QUERIES, DATABASE, RELEVANT, 2, rule="E1"), [1, 0])
    np.testing.assert_allclose(average_precision(QUERIES, DATABASE, RELEVANT, 2, rule="E5"), [5 / 6, 0])


def test_no_query_has_anything_relevant():
    nothing = np.zeros((2, 5), dtype=bool)
    for name, rule in MAP_RULES.items():
        assert mean_average_precision(QUERIES, DATABASE, nothing, rule.default_k, rule=name) == 0.0


def test_every_rule_says_where_it_comes_from():
    assert list(MAP_RULES) == ["E1", "E2", "E3", "E3'", "E4", "E5", "E6"]
    for rule in MAP_RULES.values():
        assert rule.definition.endswith(".")
        assert rule.source


def test_unknown_rule_and_wrong_k():
    with pytest.raises(ParameterError, match="'rule' parameter of mean_average_precision must be one of 'E1', 'E2'"):
        mean_average_precision(QUERIES, DATABASE, RELEVANT, rule="E7")
    with pytest.raises(ParameterError, match=r"Got \['E1'\] instead"):
        mean_average_precision(QUERIES, DATABASE, RELEVANT, rule=["E1"])
    with pytest.raises(
        ParameterError, match=r"must be None for rule E4, which always averages over the whole ranking. Got 50"
    ):
        average_precision(QUERIES, DATABASE, RELEVANT, rule="E4")
