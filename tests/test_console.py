"""Progress of long work, asked for with verbose=True."""

from __future__ import annotations

import io
import logging

import pytest

import fusehash as fh
from fusehash import console


@pytest.fixture
def data():
    return fh.datasets.make_paired(n_samples=80, random_state=0)


def test_fit_is_quiet_unless_asked(data, capsys, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    model = fh.FuseHash(n_bits=16, random_state=0).fit(data.views)
    assert capsys.readouterr().err == ""
    calls = []
    again = fh.FuseHash(n_bits=16, random_state=0, callback=lambda *call: calls.append(call))
    again.fit(data.views, verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("FuseHash: ") for line in lines)
    assert len(lines) == len(calls) > 1
    assert (again.codes_ == model.codes_).all()
    assert vars(again).keys() == vars(model).keys()


def test_a_fit_that_fails_leaves_no_bar(data):
    model = fh.RegressionHasher(n_bits=16)
    with pytest.raises(fh.errors.DataError):
        model.fit(data.views.rows(slice(0, 1)), verbose=True)
    assert "_bar" not in vars(model)


def test_evaluate_shows_its_steps(data, capsys, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    quiet = fh.evaluation.evaluate(fh.RegressionHasher(n_bits=16), data, protocols=["H"], seeds=[0])
    assert capsys.readouterr().err == ""
    shown = fh.evaluation.evaluate(fh.RegressionHasher(n_bits=16), data, protocols=["H"], seeds=[0], verbose=True)
    assert "evaluate: 1/" in capsys.readouterr().err
    assert [score.mean for score in shown.scores] == [score.mean for score in quiet.scores]


def test_progress_shows_text_from_data_without_control(capsys, monkeypatch):
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    with console.progress("work") as report:
        report(1, 2, "a\x1b[31mred [bold]name[/bold]")
    assert capsys.readouterr().err == "work: 1/2 a\\x1b[31mred [bold]name[/bold]\n"


def test_a_narrow_table_cuts_nothing_off():
    from fusehash.commands.terminal import print_table

    out = console.DataConsole(file=io.StringIO(), width=24)
    print_table(("name", "what"), [("sentence-transformers", "a" * 20)], out)
    cells = [line.split("│")[1:3] for line in out.file.getvalue().splitlines() if "│" in line]
    assert ["".join(part.strip() for part in column) for column in zip(*cells, strict=True)] == [
        "sentence-transformers",
        "a" * 20,
    ]


def test_a_terminal_is_told_once_that_something_is_compiled(capsys, monkeypatch):
    from fusehash.commands.terminal import tell_of_compiling

    logger = logging.getLogger("fusehash.numerics.compiled")
    monkeypatch.setattr(logger, "handlers", [])
    level = logger.level
    try:
        tell_of_compiling()
        tell_of_compiling()
        logger.info("%s is compiled", "nearest")
        logger.info("%s is compiled", "score")
        logger.warning("the machine code of %s cannot be kept in %s: %s", "nearest", "folder", "full")
    finally:
        logger.setLevel(level)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "fusehash: compiling for this processor; this takes some seconds, the first time only.",
        "fusehash: warning: the machine code of nearest cannot be kept in folder: full.",
    ]
