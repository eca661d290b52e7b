"""The page and the files: complete, self-contained, escaped, honest about what is missing or made up."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from fusehash.errors import DataError, MissingPackageError, ParameterError
from fusehash.experiments import metrics, report
from fusehash.experiments.examples import Answer, Example, ExampleItem
from fusehash.experiments.findings import find_leader, leader_sentence
from fusehash.experiments.metrics import collect
from fusehash.experiments.report import html_page, render_examples, report_command, terminal_table, write_report
from fusehash.experiments.store import ResultStore
from fusehash.experiments.tables import Cell, Table, TableBlock, TableRow, map_table

VOID = {"meta", "link", "input", "img", "br"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what a browser would."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "title", "desc"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page_of(made, **changes):
    return html_page(made.spec, made.store, collect(made.spec, made.store), **changes)


# -- the page --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(make):
    """Two protocols and a few charts: quick to draw."""
    return make(sections=["map"], protocols=["U", "HN"], sweep={"method": "regression", "over": {"ridge": [1]}})


def test_the_page_is_whole_and_needs_nothing_else(make):
    text = page_of(make(protocols=["U", "FN"]))
    page = Page(text)
    assert not {"script", "iframe", "object", "embed", "base"} & set(page.tags)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert set(re.findall(r"https?://[^\"' <)]+", text)) <= {
        "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
    }  # fmt: skip
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert "default-src 'none'" in text
    for heading in ("What each part gives", "Precision and recall", "Sensitivity to settings", "Convergence", "Times"):
        assert heading in page.words


def test_everything_is_escaped(small):
    text = page_of(small)
    assert "<experiment>" not in text
    assert "A made &lt;experiment&gt; &amp; more" in text
    assert "<b>A&B" not in text
    assert "<this>" not in text
    assert "Beware of &lt;this&gt;." in text


def test_the_page_says_who_leads_and_under_what_rules(small):
    words = Page(page_of(small)).words
    assert "FuseHash has the highest mean MAP@20 under U and HN" in words
    assert "3 methods and 2 controls on wiki: 40 queries, 3 seeds, 16 and 32 bits." in words
    assert "The training pairs, by the unified codes that training gave them." in words
    assert "a seeded half of the training rows was learned from" in words
    assert "Holm-corrected" in words
    assert "cd" * 32 in words
    assert "made split" in words
    assert "fusehash bench run made.yaml --data DATA --out results" in words
    assert "numpy " in words
    assert "are missing" not in words


def test_printed_values_have_a_column_of_their_own(small):
    text = page_of(small)
    assert '<td class="printed">0.2548</td>' in text
    assert "paper only" in text
    assert "8 of these numbers are also printed in the paper" in text


def test_missing_runs_are_counted_with_the_command_that_completes_them(make):
    made = make(
        sections=["map"],
        protocols=["U"],
        skip=lambda entry: entry.series.label == "REG" or entry.series.group == "ridge",
    )
    words = Page(page_of(made)).words
    assert re.search(
        r"15 of 39 runs are missing and shown as –\. To complete them: fusehash bench run made\.yaml", words
    )
    assert "REG control – –" in words


def test_a_column_that_lacks_seeds_says_so(make):
    made = make(
        sections=["map"],
        protocols=["U"],
        skip=lambda entry: (entry.series.label, entry.settings.seed) == ("REG", 2),
    )
    text = page_of(made)
    assert ">2/3</span>" in text
    assert "some seeds are missing" in text


def test_stand_in_data_is_said_everywhere(make):
    made = make(stand_in=True, protocols=["U"])
    text = page_of(made)
    assert "says nothing about the real data set" in text
    assert "--stand-in" in text
    for caption in re.findall(r"<caption>(.*?)</caption>|<figcaption>(.*?)</figcaption>", text):
        assert "stand-in" in "".join(caption)
    for title in re.findall(r'role="img" aria-label="([^"]*)"', text):
        assert "stand-in" in title


def test_a_data_set_without_runs_is_said_to_be_missing(small, tmp_path):
    spec = replace(small.spec, datasets=(*small.spec.datasets, replace(small.spec.datasets[0], name="nuswide")))
    results = collect(spec, small.store)
    words = Page(html_page(spec, small.store, results)).words
    assert "The data set nuswide is missing" in words
    assert "MAP@20 on wiki, protocol U" in words
    empty = ResultStore(tmp_path / "empty")
    assert "The data set wiki is missing" in Page(html_page(small.spec, empty, collect(small.spec, empty))).words


def test_both_data_sets_of_a_specification_have_a_place(small):
    other = replace(small.dataset, fingerprint="ef" * 32, name="second", source="second")
    small.store.put_dataset(other)
    spec = replace(small.spec, datasets=(*small.spec.datasets, replace(small.spec.datasets[0], name="second")))
    page = Page(html_page(spec, small.store, collect(spec, small.store)))
    assert "<h2>" not in page.words
    assert "second" in page.words
    assert len(page.ids) == len(set(page.ids))


# -- the leader ------------------------------------------------------------------------------------------------------


def table_of(**means):
    rows = []
    for label, values in means.items():
        cells = tuple(Cell((value,), 1) if value else Cell() for value in values)
        rows.append(TableRow(label, "control" if label.startswith("c") else "method", cells, series=object()))
    return Table("t", "d", "MAP", tuple(range(8, 8 * len(cells) + 8, 8)), (TableBlock("x → y", tuple(rows)),))


def test_the_leader_has_the_highest_mean():
    finding = find_leader(table_of(a=[0.5, 0.6], b=[0.7, 0.3], c=[0.2, 0.4]))
    assert (finding.leader, finding.next, finding.control) == ("a", "b", "c")
    assert finding.means["a"] == pytest.approx(0.55)
    assert finding.above("b") == pytest.approx(0.05)
    assert finding.above("c") == pytest.approx(0.25)


def test_columns_that_some_line_lacks_do_not_count():
    finding = find_leader(table_of(a=[0.5, None], b=[0.4, 0.9]))
    assert (finding.leader, finding.n_columns) == ("a", 1)
    assert find_leader(table_of(a=[None], b=[None])) is None
    assert find_leader(table_of(a=[0.5], b=[None])).next is None


def test_a_control_that_leads_is_called_one():
    finding = find_leader(table_of(a=[0.4], c=[0.5], c2=[0.1]))
    assert finding.kind == "control"
    assert "a control, has the highest mean MAP under U, where no method beats it" in leader_sentence(
        [("U", finding)], "MAP"
    )


# -- files and the terminal ------------------------------------------------------------------------------------------


def test_files_are_written_for_every_format(small, tmp_path):
    steps = []
    written = write_report(
        small.spec,
        small.store,
        tmp_path / "a" / "b",
        formats=["csv", "latex", "html"],
        progress=lambda *s: steps.append(s),
    )
    renamed = replace(small.spec, name="paper/x y")
    assert write_report(renamed, small.store, tmp_path, formats=["csv"]) == [tmp_path / "paper-x-y.csv"]
    assert [file.name for file in written] == ["made.csv", "made.tex", "made.html"]
    assert written[2].read_text(encoding="utf-8").startswith("<!doctype html>")
    assert steps[-1][2] == "writing html"
    assert {file.name for file in (tmp_path / "a" / "b").iterdir()} == {"made.csv", "made.tex", "made.html"}


def test_metrics_are_computed_once_for_all_formats(small, tmp_path, monkeypatch):
    seen = []
    original = metrics.measure
    monkeypatch.setattr(metrics, "measure", lambda r, *a, **k: (seen.append(1), original(r, *a, **k))[1])
    results = collect(small.spec, small.store)
    write_report(small.spec, small.store, tmp_path, results=results)
    terminal_table(small.spec, small.store, results=results)
    assert len(seen) == len(small.store)


def test_an_unknown_format_or_a_file_in_the_way_is_one_sentence(small, tmp_path):
    with pytest.raises(ParameterError, match="some of html, csv, latex"):
        write_report(small.spec, small.store, tmp_path, formats=["pdf"])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        write_report(small.spec, small.store, tmp_path / "file", formats=["csv"])


def test_a_report_of_no_runs_is_not_written(small, tmp_path):
    store = ResultStore(tmp_path / "empty")
    with pytest.raises(DataError, match=r"^A report needs stored runs\. None of made is in '.*empty'; to compute"):
        write_report(small.spec, store, tmp_path / "out")
    store.put_dataset(collect(small.spec, small.store)[0].dataset)
    with pytest.raises(DataError, match="A report needs stored runs"):
        write_report(small.spec, store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("package", "extra"), [("matplotlib", "plots"), ("jinja2", "bench")])
def test_a_missing_package_names_the_extra(small, tmp_path, monkeypatch, package, extra):
    results = collect(small.spec, small.store)
    monkeypatch.setitem(sys.modules, package, None)
    report.environment.cache_clear()
    with pytest.raises(MissingPackageError, match=rf'pip install "fusehash\[{extra}\]"'):
        write_report(small.spec, small.store, tmp_path, formats=["html"], results=results)
    assert write_report(small.spec, small.store, tmp_path, formats=["csv", "latex"], results=results)


def test_the_terminal_gets_tables_and_what_is_missing(make, tmp_path):
    made = make(sections=["map", "times"], protocols=["U"], skip=lambda entry: entry.settings.seed == 2)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(terminal_table(made.spec, made.store))
    text = " ".join(console.export_text().split())
    assert "MAP@20 on wiki, protocol U" in text
    assert "Training time in seconds on wiki" in text
    assert "13 of 39 runs are missing. To complete them: fusehash bench run made.yaml" in text
    console.print(terminal_table(made.spec, ResultStore(tmp_path / "empty")))
    assert "No runs on wiki are in" in " ".join(console.export_text().split())


def test_every_table_of_a_map_specification_is_in_latex(small, tmp_path):
    [file] = write_report(small.spec, small.store, tmp_path, formats=["latex"])
    assert file.read_text(encoding="utf-8").count(r"\begin{table}") == 2


# -- examples --------------------------------------------------------------------------------------------------------


def photo(kind="JPEG"):
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 120, dtype=np.uint8)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def example():
    answers = [Answer(ExampleItem(image=photo(), labels=(f"<class {i % 2}>",)), correct=i % 2 == 0) for i in range(12)]
    return Example(
        ExampleItem(text="a <boat> at sea", labels=("sea",)), tuple(answers), truth=ExampleItem(image=photo("PNG"))
    )


def test_wrong_answers_are_framed_and_crossed(example):
    text = render_examples([example])
    assert text.count('class="item right"') == 5
    assert text.count('class="item wrong"') == 5  # ten are shown
    assert text.count("✗") == 5
    assert text.count("data:image/jpeg;base64,") == 10
    assert text.count("data:image/png;base64,") == 1
    assert "a &lt;boat&gt; at sea" in text
    assert "<class" not in text
    assert "5 of the first 10 answers are right" in text


def test_examples_stand_on_the_page(small, example):
    page = Page(page_of(small, examples=[example]))
    assert "Examples" in page.words
    assert all(link.startswith(("#", "data:")) for link in page.links)


def test_an_item_must_have_something_to_show():
    with pytest.raises(DataError, match="image or a text"):
        ExampleItem()
    with pytest.raises(DataError, match="JPEG or PNG"):
        ExampleItem(image=b"<svg onload='x'>")


def test_long_texts_are_cut_at_a_word():
    snippet = ExampleItem(text="word " * 100).snippet
    assert len(snippet) <= 162
    assert snippet.endswith("word …")


def test_the_table_of_the_page_is_the_table_of_the_numbers(small):
    [results] = collect(small.spec, small.store)
    text = page_of(small)
    for cell in map_table(results, "HN").cells():
        assert f"{cell.mean:.4f}" in text


def plain(table):
    """What a wide terminal shows, on one line."""
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(table)
    return " ".join(console.export_text().split())


# -- parts of a specification ----------------------------------------------------------------------------------------


def test_a_part_is_reported_as_a_part(make):
    made = make()
    part = made.spec.narrowed(only=["AGSFH", "random"], bits=[16], n_seeds=2)
    results = collect(part, made.store)
    page = html_page(part, made.store, results)
    options = "--only AGSFH --only random --bits 16 --seeds 2"
    assert page.count(options) == 3  # to reproduce: run and report; and what it is a part of
    assert "A part of made" in page
    assert "1 method and 1 control on wiki: 40 queries, 2 seeds, 16 bits." in page
    assert "paper only" not in page  # rows that were not chosen
    assert "RFDH" not in page
    assert "paper only" in html_page(made.spec, made.store, collect(made.spec, made.store))


def test_the_terminal_explains_its_signs(make):
    made = make(skip=lambda entry: entry.settings.seed == 2 and entry.settings.method == "random")
    text = plain(terminal_table(made.spec, made.store))
    assert "±: standard deviation over seeds." in text
    assert "In brackets: the value that the paper prints." in text
    assert "3/5: some seeds are missing, and their column has no marks." in text
    bare = make(paper=None, seeds=1)
    assert "In brackets" not in plain(terminal_table(bare.spec, bare.store))


def test_the_terminal_names_what_the_printed_table_has_copied(make):
    djsrh = make(methods=[{"label": "DBRC", "method": "regression", "printed": "DBRC"}, "random"], paper="djsrh")
    assert "Copied there from other papers: DBRC." in plain(terminal_table(djsrh.spec, djsrh.store))
    made = make()
    assert "Copied there" not in plain(terminal_table(made.spec, made.store))


def test_what_completes_a_part_names_the_part(make):
    made = make(skip=lambda entry: entry.settings.seed == 1)
    part = made.spec.narrowed(only=["CCA + random rotation"], n_seeds=2)
    text = plain(terminal_table(part, made.store))
    assert "--out results --only 'CCA + random rotation' --seeds 2" in text
    assert "--only 'CCA + random rotation' --seeds 2" in report_command(part, "results")
