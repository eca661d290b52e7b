"""The printed numbers: counted, checked against a checksum, against spot values, and against the printed bold type."""

from __future__ import annotations

import hashlib

import pytest

from fusehash.errors import ParameterError
from fusehash.experiments.spec import PAPER_TABLES as TABLES
from fusehash.experiments.tables import published

PAPER_METHODS = ("CSGH", "BGDH", "FSH", "RFDH", "JIMFH", "AGSFH")
I2T, T2I = "image->text", "text->image"

# (table, method, bits, direction, data set, value)
SPOTS = [
    (1, "CSGH", 16, I2T, "wiki", 0.2065),
    (1, "BGDH", 128, I2T, "wiki", 0.1717),
    (1, "FSH", 128, I2T, "wiki", 0.2710),
    (1, "RFDH", 64, T2I, "wiki", 0.4633),
    (1, "JIMFH", 32, T2I, "wiki", 0.4091),
    (1, "AGSFH", 16, T2I, "wiki", 0.5782),
    (1, "AGSFH", 128, T2I, "wiki", 0.6214),
    (2, "JIMFH", 16, I2T, "mirflickr25k", 0.6563),
    (2, "AGSFH", 128, T2I, "mirflickr25k", 0.7505),
    (2, "CSGH", 64, T2I, "mirflickr25k", 0.5382),
    (3, "FSH", 16, I2T, "nuswide", 0.5021),
    (3, "BGDH", 128, T2I, "nuswide", 0.3850),
    (3, "AGSFH", 64, T2I, "nuswide", 0.6144),
    (4, "CSGH", 16, "", "mirflickr25k", 23.4576),
    (4, "RFDH", 128, "", "nuswide", 22128.4188),
    (4, "AGSFH", 64, "", "mirflickr25k", 136.8426),
    (4, "BGDH", 32, "", "nuswide", 10.0385),
    (5, "CSGH", 16, I2T, "mirflickr25k", 0.1935),
    (5, "AGSFH", 16, I2T, "nuswide", 3.9483),
    (5, "FSH", 128, T2I, "nuswide", 12.422),
    (5, "AGSFH", 128, T2I, "mirflickr25k", 0.9485),
    (6, "DCMH", 16, I2T, "mirflickr25k", 0.7410),
    (6, "DDCMH", 64, I2T, "mirflickr25k", 0.8551),
    (6, "DBRC", 32, T2I, "mirflickr25k", 0.5952),
    (6, "AGSFH", 64, T2I, "mirflickr25k", 0.8261),
    (7, "AGSFH_appro", 32, I2T, "mirflickr25k", 0.6531),
    (7, "AGSFH_reg", 128, I2T, "mirflickr25k", 0.6709),
    (7, "AGSFH", 128, T2I, "mirflickr25k", 0.7163),
]
CHECKSUM = "6ec7ef9577f752ac47b3a7233a0c57237d51d12c63bf5478f46f0dbff2d255d5"


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"table{spot[0]}-{spot[1]}-{spot[2]}-{spot[4]}")
def test_spot_values(spot):
    table, method, bits, direction, dataset, value = spot
    assert published(table).value(method, bits, direction, dataset) == value


@pytest.mark.parametrize(
    ("table", "methods", "rows", "bits"),
    [
        *((table, PAPER_METHODS, 12, (16, 32, 64, 128)) for table in (1, 2, 3, 4)),
        (5, PAPER_METHODS, 24, (16, 32, 64, 128)),
        (6, ("DCMH", "DDCMH", "DBRC", "AGSFH"), 8, (16, 32, 64)),
        (7, ("AGSFH_appro", "AGSFH_reg", "AGSFH"), 6, (16, 32, 64, 128)),
    ],
)
def test_shape_of_every_table(table, methods, rows, bits):
    found = published(table)
    assert (found.number, found.methods, len(found.rows), found.bits) == (table, methods, rows, bits)
    assert all(tuple(row.values) == bits for row in found.rows)
    assert {row.dataset for row in found.rows} == set(found.datasets)


@pytest.mark.parametrize("table", [1, 2, 3, 6, 7])
def test_what_is_printed_bold_is_the_largest_of_its_column(table):
    found = published(table)
    for direction in (I2T, T2I):
        rows = [row for row in found.rows if row.direction == direction]
        for bits in found.bits:
            best = max(row.values[bits] for row in rows)
            assert [row.method for row in rows if bits in row.bold] == [
                row.method for row in rows if row.values[bits] == best
            ]


def test_no_number_has_changed():
    numbers = [
        f"{table} {row.dataset} {row.direction} {row.method} {bits} {value:.4f}"
        for table in TABLES
        for row in published(table).rows
        for bits, value in row.values.items()
    ]
    assert len(numbers) == 4 * (12 * 4 + 24 + 6) + 3 * 8
    assert hashlib.sha256("\n".join(numbers).encode()).hexdigest() == CHECKSUM


def test_what_is_not_printed_is_none():
    assert published(1).value("IMH", 16, I2T) is None
    assert published(1).value("FSH", 256, I2T) is None


@pytest.mark.parametrize("table", [0, 8, "one", "figures"])
def test_there_are_seven_tables(table):
    with pytest.raises(ParameterError, match="a number from 1 to 7"):
        published(table)
