"""DCMH on pixels: the convolutions against loops and finite differences, encoding without PyTorch, and the limits."""

from __future__ import annotations

import numpy as np
import pytest

import fusehash as fh
from fusehash.errors import DataError, ParameterError
from fusehash.hashers.deep.pixels import convolution_widths, convolved, flat_width, patches_of

RNG = np.random.default_rng(0)
SHAPE = (9, 10, 3)


def loop(images, K, b):
    """A convolution of 3 x 3 pixels with stride 2 and zeros outside, pixel by pixel, with ReLU."""
    n, height, width, channels = images.shape
    out = np.zeros((n, (height + 1) // 2, (width + 1) // 2, K.shape[1]))
    for i in range(out.shape[1]):
        for j in range(out.shape[2]):
            for k in range(n):
                total = b.copy()
                for y in range(3):
                    for x in range(3):
                        row, column = 2 * i + y - 1, 2 * j + x - 1
                        if 0 <= row < height and 0 <= column < width:
                            for c in range(channels):
                                total = total + images[k, row, column, c] * K[(3 * y + x) * channels + c]
                out[k, i, j] = np.maximum(total, 0.0)
    return out


def layers_for(shape):
    return [
        part for a, b in convolution_widths(shape) for part in (RNG.standard_normal((a, b)), RNG.standard_normal(b))
    ]


def test_convolutions_are_those_of_a_loop():
    layers, X = layers_for(SHAPE), RNG.standard_normal((2, 270))
    expected = X.reshape(2, *SHAPE)
    for i in range(0, len(layers), 2):
        expected = loop(expected, layers[i], layers[i + 1])
    result = convolved(X, layers, SHAPE)
    assert result.shape == (2, flat_width(SHAPE))
    assert np.allclose(result, expected.reshape(2, -1))


@pytest.mark.parametrize(
    ("shape", "widths", "flat"),
    [
        ((32, 32, 3), [(27, 32), (288, 64), (576, 128)], 4 * 4 * 128),
        ((9, 40, 1), [(9, 32), (288, 64)], 3 * 10 * 64),
        ((4, 4, 3), [], 48),
    ],
)
def test_height_and_width_are_halved_until_one_is_at_most_four(shape, widths, flat):
    assert convolution_widths(shape) == widths
    assert flat_width(shape) == flat


def test_convolutions_of_pytorch_have_the_same_values_and_the_gradients_of_finite_differences(optional):
    torch = optional("torch")
    layers = [torch.tensor(layer) for layer in layers_for((5, 6, 2))]
    small = [layer[:, :3] if layer.ndim == 2 else layer[:3] for layer in layers[:2]]
    X = torch.tensor(RNG.standard_normal((2, 60)))
    assert np.allclose(convolved(X, small, (5, 6, 2)), convolved(X.numpy(), [w.numpy() for w in small], (5, 6, 2)))
    image = X.reshape(2, 5, 6, 2).permute(0, 3, 1, 2)
    kernel = small[0].reshape(3, 3, 2, 3).permute(3, 2, 0, 1)
    expected = torch.relu(torch.nn.functional.conv2d(image, kernel, small[1], stride=2, padding=1))
    assert torch.allclose(convolved(X, small, (5, 6, 2)).reshape(2, 3, 3, 3), expected.permute(0, 2, 3, 1))
    inputs = (X.requires_grad_(), *(w.requires_grad_() for w in small))
    assert torch.autograd.gradcheck(lambda x, K, b: convolved(x, [K, b], (5, 6, 2)), inputs)


def test_patches_keep_the_kind_of_the_array():
    assert patches_of(np.ones((1, 6, 6, 1), np.float32)).dtype == np.float32


# -- the method ------------------------------------------------------------------------------------------------------

SIDE, N = 8, 120
# Two classes of pictures: stripes across and along, shifted, in random colors; the text says which.
LABELS = np.arange(N) % 2
_STRIPES = (np.arange(SIDE)[None] + RNG.integers(0, 4, (N, 1))) // 2 % 2
_GRAY = np.where(LABELS[:, None, None] == 1, _STRIPES[:, :, None], _STRIPES[:, None, :]) * np.ones((N, SIDE, SIDE))
PIXELS = (255 * _GRAY[..., None] * RNG.uniform(0.5, 1.0, (N, 1, 1, 3))).reshape(N, -1).astype(np.uint8)
TEXT = np.eye(2)[LABELS] @ RNG.standard_normal((2, 5)) + 0.1 * RNG.standard_normal((N, 5))
VIEWS = {"image": PIXELS, "text": TEXT}


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("torch")
    params = {"hidden": 16, "image_hidden": 16, "epochs": 60, "batch_size": 20, "learning_rate": 0.1, "eta": 0.05}
    made = fh.hashers.DCMH(n_bits=16, image_shape=(SIDE, SIDE, 3), random_state=0, **params)
    rows = slice(0, 80)
    return made.fit({name: X[rows] for name, X in VIEWS.items()}, LABELS[rows])


def test_new_images_find_texts_of_their_class(model):
    new = slice(80, N)
    images, texts = (model.encode(X[new], view=name) for name, X in VIEWS.items())
    assert fh.evaluation.average_precision(images, texts, (LABELS[new], LABELS[new])).mean() > 0.9


def test_one_image_has_the_code_that_it_has_among_others(model):
    together = model.project(PIXELS, view="image")
    assert all(np.array_equal(model.project(PIXELS[i : i + 1], view="image")[0], together[i]) for i in (0, 7, 119))


def test_a_stored_model_encodes_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    again = fh.load(tmp_path / "model")
    assert tuple(again.image_shape) == (SIDE, SIDE, 3)
    assert np.array_equal(again.encode(PIXELS, view="image"), model.encode(PIXELS, view="image"))
    assert np.array_equal(again.encode_fused(VIEWS), model.encode_fused(VIEWS))


def test_codes_that_a_device_computes_are_those_of_the_host(model):
    learned = fh.PairedViews({name: X[:80] for name, X in VIEWS.items()})
    assert np.array_equal(model._codes_there(learned, "cpu"), model.codes_)


def test_the_mean_image_is_subtracted_and_the_text_stays(model):
    assert np.allclose(model.means_["image"], PIXELS[:80].mean(axis=0))
    assert not model.means_["text"].any()


def test_wrong_shapes_are_refused(optional):
    optional("torch")
    with pytest.raises(DataError, match=r"must hold images of \(8, 9, 3\) pixels\. They have 192 features\."):
        fh.hashers.DCMH(image_shape=(8, 9, 3), n_bits=16).fit(VIEWS, LABELS)
    with pytest.raises(ParameterError, match="three integers of at least 1: height, width, channels"):
        fh.hashers.DCMH(image_shape=(8, 24), n_bits=16).fit(VIEWS, LABELS)
