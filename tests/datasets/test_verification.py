"""`fusehash data verify`: variants by shape, faults by content, and one variant bit by bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fusehash.cli import app
from fusehash.datasets.verification import VARIANTS, closest, verify
from fusehash.errors import DataError

RNG = np.random.default_rng(0)


def save(path, **changes):
    """A file with the shapes of Wiki."""
    content = {
        "image": RNG.random((2866, 128)), "text": RNG.random((2866, 10)), "labels": np.arange(2866) % 10,
        "train_idx": np.arange(2173), "test_idx": np.arange(2173, 2866),
    }  # fmt: skip
    np.savez(path, **{name: value for name, value in (content | changes).items() if value is not None})
    return path


def wrong(path):
    return [remark.sentence for remark in verify(path).remarks if not remark.good]


def test_the_real_file_is_known_bit_by_bit(data_file, tmp_path):
    file = data_file("wiki.npz")
    found = verify(file)
    assert found.good
    assert found.exact
    assert found.variant is VARIANTS[0]
    with np.load(file) as content:
        order = RNG.permutation(2866)
        parts = {name: content[name][order] for name in ("image", "text", "labels")}
        np.savez(tmp_path / "shuffled.npz", **parts)  # the rows in another order, and no split
        changed = content["image"].copy()
        changed[5, 5] += 1e-9
        np.savez(tmp_path / "changed.npz", image=changed, text=content["text"], labels=content["labels"])
    assert verify(tmp_path / "shuffled.npz").good
    assert wrong(tmp_path / "changed.npz") == [
        "Its values differ from those of the copies that were compared; numbers may not be comparable."
    ]


def test_the_right_shapes_with_other_values_are_told_apart(tmp_path):
    assert len(wrong(save(tmp_path / "a.npz"))) == 1
    found = verify(tmp_path / "a.npz")
    assert (found.exact, found.variant.rows) == (True, 2866)


def test_a_file_that_lacks_something_is_compared_with_what_it_is_closest_to(tmp_path):
    sentences = wrong(save(tmp_path / "a.npz", text=RNG.random((2866, 11))))
    assert "It has 11 features of 'text'; the variant has 10." in sentences
    assert not verify(tmp_path / "a.npz").exact


@pytest.mark.parametrize(
    ("shape", "title"),
    [
        ((16738, 150, 500, 24), "frequent tags"),
        ((20015, 150, 500, 24), "500 components"),
        ((500, 150, 500, 24), "500 comp"),
    ],
)
def test_variants_of_one_benchmark_differ_by_their_shapes(tmp_path, shape, title):
    n, image, text, labels = shape
    ones = np.ones((n, 1), np.uint8)
    np.savez_compressed(
        tmp_path / "m.npz", image=np.broadcast_to(ones, (n, image)), text=np.broadcast_to(ones, (n, text)),
        labels=np.broadcast_to(ones, (n, labels)),
    )  # fmt: skip
    found = verify(tmp_path / "m.npz")
    assert title in found.variant.title
    assert found.exact == (n != 500)
    assert any("repeat an earlier one" in sentence for sentence in wrong(tmp_path / "m.npz"))


def test_faults_of_content_are_counted(tmp_path):
    image = RNG.random((50, 4))
    image[3] = 0
    image[7] = image[8]
    text = RNG.random((50, 3))
    text[7] = text[8]
    labels = np.eye(50, dtype=int)[:, :5]
    np.savez(
        tmp_path / "a.npz", image=image, text=text, labels=labels, train_idx=np.arange(40), test_idx=np.arange(30, 50)
    )
    assert wrong(tmp_path / "a.npz") == [
        "1 row of 'image' is all zeros.",
        "45 rows have no label; no query finds them.",
        "1 pair repeats an earlier one in all views.",
        "10 queries are also training pairs.",
    ]
    assert verify(tmp_path / "a.npz").variant is None


def test_the_command(tmp_path):
    save(tmp_path / "a.npz")
    done = CliRunner().invoke(app, ["data", "verify", str(tmp_path / "a.npz")], env={"COLUMNS": "300"})
    assert done.exit_code == 1
    assert "This is: Wiki, 128 SIFT words" in done.stdout
    assert "ok    Its split: 2,173 training pairs and 693 queries." in done.stdout
    done = CliRunner().invoke(app, ["data", "verify", str(tmp_path / "a.npz"), "--json"])
    assert json.loads(done.stdout)["variant"]["rows"] == 2866
    np.savez(tmp_path / "b.npz", image=RNG.random((9, 2)), text=RNG.random((9, 2)), labels=np.arange(9) % 3)
    assert CliRunner().invoke(app, ["data", "verify", str(tmp_path / "b.npz")]).exit_code == 0


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.title)
def test_every_variant_is_known_by_its_shapes(variant):
    assert closest(variant.rows, variant.widths, variant.labels) == (variant, True)
    other = variant.widths | {"text": 7} if variant.widths else {}
    found = closest(variant.rows + (not variant.widths), other, variant.labels)
    if variant.widths:  # one shape of four differs
        assert found[1] is False
        assert found[0].rows == variant.rows
    else:
        assert found == (None, False)


def test_benchmarks_of_the_field_are_known():
    titles = " ".join(variant.title for variant in VARIANTS)
    for name in (
        "Wiki",
        "MIRFlickr25K",
        "NUS-WIDE",
        "IAPR TC-12",
        "Pascal Sentence",
        "Flickr8k",
        "Flickr30k",
        "MS COCO",
    ):
        assert name in titles


def test_one_side_of_a_benchmark_is_known(tmp_path, data_file):
    """The tags and labels of MIRFlickr25K without its pictures."""
    text, labels = np.zeros((20015, 1386), np.uint8), np.ones((20015, 24), np.uint8)
    text[:, 0] = 1
    text[1, 0] = 0
    np.savez_compressed(tmp_path / "tags.npz", text=text, labels=labels)
    found = verify(tmp_path / "tags.npz")
    assert "1,386 tags" in found.variant.title
    assert not found.exact
    assert wrong(tmp_path / "tags.npz") == [
        "It has no 'image': it is one side of the variant, and nothing can be learned from it alone.",
        "1 row of 'text' is all zeros.",
    ]
    real = verify(data_file("mirflickr25k_tags_labels.npz"))
    assert (real.variant, real.exact) == (found.variant, False)


def test_pairs_without_labels_are_no_fault_where_none_are_needed(tmp_path):
    np.savez(tmp_path / "a.npz", image=RNG.random((30, 3)), text=RNG.random((30, 2)))
    assert verify(tmp_path / "a.npz").good
    sentences = wrong(save(tmp_path / "b.npz", labels=None))
    assert "It has no labels: only how often the partner is found can be measured, not MAP." in sentences
    assert "It has 0 classes; the variant has 10." in sentences


def test_what_is_no_file_of_a_benchmark_is_one_sentence(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK nothing")
    with pytest.raises(DataError):
        verify(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.ones(3))
    with pytest.raises(DataError, match="must hold the arrays"):
        verify(tmp_path / "b.npz")
