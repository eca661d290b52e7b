"""Every kind of image comes out upright and RGB; what is no image comes out as one sentence."""

from __future__ import annotations

import os
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest

from fusehash.datasets.folders import read_folder
from fusehash.encoders import reading
from fusehash.encoders.reading import ImageError, open_image, thumbnail
from fusehash.errors import MissingPackageError

PIL = pytest.importorskip("PIL.Image")
TURNS = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: np.rot90(x, 1),
    7: lambda x: x[::-1, ::-1].transpose(1, 0, 2),
    8: lambda x: np.rot90(x, -1),
}


def claiming(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header claims a size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def one_sentence(error: BaseException) -> str:
    told = str(error)
    assert "\n" not in told
    assert told.endswith(".")
    assert len(told) < 300
    return told


# -- what can be read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_files_come_back_exactly(kind, picture, as_file, tmp_path):
    image = picture(1)
    data = as_file(image, kind)
    path = tmp_path / "image.bin"  # the content counts, not the name
    path.write_bytes(data)
    for source in (data, bytearray(data), path, str(path), image):
        found = open_image(source)
        assert found.mode == "RGB"
        assert np.array_equal(np.asarray(found), np.asarray(image))


@pytest.mark.parametrize(("kind", "params"), [("JPEG", {"quality": 95}), ("WEBP", {"quality": 95}), ("GIF", {})])
def test_lossy_files_come_back_nearly(kind, params, picture, as_file):
    image = picture(2)
    found = np.asarray(open_image(as_file(image, kind, **params))).astype(int)
    assert np.abs(found - np.asarray(image)).mean() < 12


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_turned_upright(kind, orientation, picture, as_file):
    upright = np.asarray(picture(3))
    stored = PIL.fromarray(np.ascontiguousarray(TURNS[orientation](upright)))
    exif = PIL.Exif()
    exif[0x0112] = orientation
    params = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(kind, {})
    found = open_image(as_file(stored, kind, exif=exif, **params))
    assert found.size == (96, 64)
    difference = np.abs(np.asarray(found).astype(int) - upright)
    assert difference.mean() < 1 if kind == "JPEG" else not difference.any()
    assert not dict(found.getexif())  # would be turned twice if it were opened again
    assert np.array_equal(np.asarray(open_image(found)), np.asarray(found))


@pytest.mark.parametrize("orientation", [0, 9, 77, "six"])
def test_an_unknown_orientation_is_left_alone(orientation, picture, as_file, monkeypatch):
    image = picture(3)
    monkeypatch.setattr(type(image), "getexif", lambda self: {0x0112: orientation})
    assert np.array_equal(np.asarray(open_image(image)), np.asarray(picture(3)))


@pytest.mark.filterwarnings("ignore")  # Pillow's, of the damage
def test_damaged_exif_does_not_matter(picture, as_file):
    data = as_file(picture(3), "PNG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xffgarbage")
    assert np.array_equal(np.asarray(open_image(data)), np.asarray(picture(3)))


def test_an_animation_gives_its_first_frame(picture, as_file):
    frames = [picture(seed) for seed in range(3)]
    for kind in ("GIF", "WEBP", "TIFF"):
        data = as_file(frames[0], kind, save_all=True, append_images=frames[1:])
        found = np.asarray(open_image(data)).astype(int)
        near = [np.abs(found - np.asarray(frame)).mean() for frame in frames]
        assert np.argmin(near) == 0
        assert near[0] < 15


def test_cmyk_jpeg(picture, as_file):
    image = picture(4)
    found = np.asarray(open_image(as_file(image.convert("CMYK"), "JPEG", quality=95))).astype(int)
    assert np.abs(found - np.asarray(image)).mean() < 12


def test_sixteen_bits_keep_their_grays(as_file):
    deep = np.linspace(0, 65535, 64 * 32).reshape(32, 64).astype(np.uint16)
    found = np.asarray(open_image(as_file(PIL.fromarray(deep), "PNG")))
    assert np.abs(found - (deep / 257.0)[..., None]).max() <= 1.0
    assert found.min() == 0
    assert found.max() == 255


@pytest.mark.parametrize(
    ("values", "top"),
    [(np.array([[0, 255]], np.int32), 255), (np.array([[0, 300]], np.int32), 1), (np.array([[0.0, 1.0]], "f4"), 255),
     (np.array([[0.0, 255.0]], "f4"), 255), (np.array([[-5.0, np.nan]], "f4"), 0), (np.array([[0, 1e6]], "f4"), 255)],
)  # fmt: skip
def test_deep_grays_of_unknown_scale(values, top, as_file):
    assert np.asarray(open_image(as_file(PIL.fromarray(values), "TIFF"))).max() == top


def test_transparent_is_white(as_file):
    palette = PIL.new("P", (8, 8), 0)
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.paste(1, (0, 0, 4, 8))
    found = np.asarray(open_image(as_file(palette, "PNG", transparency=0)))
    assert (found[:, :4] == [0, 0, 255]).all()
    assert (found[:, 4:] == 255).all()
    for mode, nothing in (("RGBA", (9, 9, 9, 0)), ("LA", (9, 0))):
        assert (np.asarray(open_image(as_file(PIL.new(mode, (4, 4), nothing), "PNG"))) == 255).all()
    half = PIL.new("RGBA", (4, 4), (0, 0, 0, 128))
    assert abs(int(np.asarray(open_image(half)).mean()) - 127) <= 1


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA"])
def test_one_pixel(mode, as_file):
    found = open_image(as_file(PIL.new(mode, (1, 1)), "PNG"))
    assert (found.size, found.mode) == ((1, 1), "RGB")


def test_the_callers_image_stays_as_it_is(picture):
    image = picture(5)
    found = open_image(image)
    found.putpixel((0, 0), (1, 2, 3))
    assert np.array_equal(np.asarray(image), np.asarray(picture(5)))


def test_a_large_jpeg_is_decoded_small(picture, as_file):
    data = as_file(picture(6, 1600, 1200), "JPEG")
    assert open_image(data).size == (1600, 1200)
    small = open_image(data, side=224)
    assert small.size == (400, 300)
    whole = np.asarray(open_image(data).resize(small.size, PIL.Resampling.BOX)).astype(int)
    assert np.abs(np.asarray(small) - whole).mean() < 2


# -- what cannot -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(50_000, 50_000), (10_000, 10_000), (2**31 - 1, 1), (8001, 8000)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_bomb_is_refused_before_it_is_decoded(size, monkeypatch):
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda self: pytest.fail("decoded"))
    with pytest.raises(ImageError, match="pixels") as caught:
        open_image(claiming(*size))
    one_sentence(caught.value)


def test_a_bomb_is_refused_where_warnings_are_errors():
    with pytest.raises(ImageError, match="at most 64,000,000 pixels"):
        open_image(claiming(10_000, 10_000))


def test_the_limit_can_be_set(picture):
    assert open_image(picture(0), max_pixels=96 * 64).size == (96, 64)
    with pytest.raises(ImageError, match=r"at most 6,143 pixels\. It claims 6,144"):
        open_image(picture(0), max_pixels=96 * 64 - 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7])
def test_truncated_files(kind, share, picture, as_file):
    data = as_file(picture(7), kind)
    with pytest.raises(ImageError) as caught:
        open_image(data[: int(len(data) * share)])
    one_sentence(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.filterwarnings("ignore")  # of damaged tags
def test_damaged_bytes_are_an_image_or_a_sentence(kind, picture, as_file):
    rng = np.random.default_rng(0)
    data = as_file(picture(8, 32, 24), kind)
    for _ in range(60):
        damaged = bytearray(data)
        for place in rng.integers(0, min(len(data), 400), 4):
            damaged[place] = rng.integers(256)
        try:
            assert open_image(bytes(damaged)).mode == "RGB"
        except ImageError as error:
            one_sentence(error)


@pytest.mark.parametrize(
    ("content", "told"), [(b"", "empty"), (b"\0" * 5000, "something else"), (b"<svg/>", "something else"),
                          (b"\x89PNG\r\n\x1a\n", "It is"), (b"\xff\xd8\xff", "It is"), (b"GIF89a", "It is")]
)  # fmt: skip
def test_what_is_no_image(content, told, tmp_path):
    with pytest.raises(ImageError, match=told) as caught:
        open_image(content)
    one_sentence(caught.value)
    path = tmp_path / "x.jpg"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=r"x\.jpg"):
        open_image(path)


def test_other_formats_are_not_opened(picture, as_file):
    for kind in ("PPM", "ICO", "TGA"):
        with pytest.raises(ImageError):
            open_image(as_file(picture(0), kind))


@pytest.mark.parametrize("item", [None, 3, 2.5, [1], {}, np.zeros((4, 4, 3), np.uint8), BytesIO(b"x")])
def test_wrong_types(item):
    with pytest.raises(ImageError, match="must be a path, bytes or a PIL image") as caught:
        open_image(item)
    one_sentence(caught.value)


def test_paths_that_are_no_files(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, told in ((tmp_path, "regular file"), (tmp_path / "none.jpg", "No such file"), (pipe, "regular file")):
        with pytest.raises(ImageError, match=told):
            open_image(path)
    for name in ("a\0b.jpg", "x" * 5000):
        with pytest.raises(ImageError) as caught:
            open_image(name)
        assert "\0" not in str(caught.value)


def test_without_pillow_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(MissingPackageError, match=r'pip install "fusehash\[images\]"'):
        reading.open_image(b"x")


# -- thumbnails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1000, 500), (100, 900), (1, 1), (3000, 2), (40, 30)])
def test_thumbnails_fit_and_keep_proportions(size, picture):
    made = thumbnail(open_image(picture(9, *size)), side=64)
    small = PIL.open(BytesIO(made))
    assert small.format == "WEBP"
    assert max(small.size) <= 64
    assert min(small.size) >= 1
    if max(size) > 64 and min(size) > 30:
        assert max(small.size) == 64
        assert abs(small.width / small.height - size[0] / size[1]) < 0.05 * size[0] / size[1] + 0.05
    assert made == thumbnail(open_image(picture(9, *size)), side=64)


def test_thumbnails_carry_no_exif(picture, as_file):
    exif = PIL.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker of cameras"
    made = thumbnail(open_image(as_file(picture(1), "JPEG", exif=exif)))
    assert b"maker of cameras" not in made
    assert not dict(PIL.open(BytesIO(made)).getexif())


# -- memory and time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["I;16", "F"])
def test_deep_images_take_no_more_memory_than_others(mode, as_file):
    import tracemalloc

    image = PIL.fromarray(np.full((3000, 4000), 40000, np.uint16 if mode == "I;16" else np.float32))
    data = as_file(image, "TIFF")
    tracemalloc.start()
    try:
        decoded = open_image(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decoded.getpixel((1, 1)) == (156, 156, 156)
    assert peak < len(data) + 60_000_000  # one array of floats would be 96 MB


def test_strips_change_no_pixel(picture, as_file, monkeypatch):
    image = picture(1)
    transparent = image.copy()
    transparent.putalpha(image.convert("L"))
    for kind in (image, transparent, image.convert("P"), image.convert("I"), image.convert("F"), image.convert("LA")):
        whole = open_image(kind).tobytes()
        with monkeypatch.context() as patch:
            patch.setattr(reading, "STRIP_PIXELS", 3 * image.width)
            assert open_image(kind).tobytes() == whole


def test_a_jpeg_with_too_many_scans_is_refused_before_it_is_decoded(picture, as_file):
    file = BytesIO()
    picture(1).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    assert open_image(data).mode == "RGB"
    last = data.rindex(b"\xff\xda")
    endless = data[:-2] + data[last:-2] * reading.MAX_SCANS + data[-2:]
    with pytest.raises(ImageError, match="scans") as caught:
        open_image(endless)
    one_sentence(caught.value)
    with pytest.raises(ImageError, match="scans"):
        open_image(endless[:2] + further_images() + endless[2:])
    video = b"\xff\xda\x00\x02" * (2 * reading.MAX_SCANS)
    assert open_image(data + video).size == open_image(data).size


def further_images() -> bytes:
    """The segment that makes Pillow call a JPEG file a file of several images."""
    index = b"MPF\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", 0xB001, 4, 1, 1) + bytes(4)
    return b"\xff\xe2" + (len(index) + 2).to_bytes(2, "big") + index


def test_a_tile_that_is_larger_than_its_image_counts_as_what_is_decoded(picture, optional):
    image_module = optional("PIL.Image")
    file = BytesIO()
    picture(1).resize((64, 64)).save(file, "TIFF")
    with image_module.open(file) as image:
        assert reading.decoded_pixels(image) == 64 * 64
        image.tag_v2[322], image.tag_v2[323] = 10_000, 20_000
        assert reading.decoded_pixels(image) == 200_000_000


def test_avif_and_heic_are_read_upright(picture, as_file, optional, monkeypatch, tmp_path):
    heif = optional("pillow_heif")
    image, exif = picture(4, 64, 48), optional("PIL.Image").Exif()
    exif[reading.ORIENTATION] = 6
    heif.register_heif_opener()
    for kind, suffix in (("AVIF", "avif"), ("HEIF", "heic")):
        content = as_file(image, kind, quality=95)
        (tmp_path / f"x.{suffix}").write_bytes(content)
        for source in (content, tmp_path / f"x.{suffix}"):
            again = reading.open_image(source)
            assert (again.mode, again.size) == ("RGB", image.size)
            assert np.corrcoef(np.ravel(again), np.ravel(image))[0, 1] > 0.95
        assert reading.open_image(as_file(image, kind, exif=exif.tobytes(), quality=95)).size == (48, 64)
        with pytest.raises(ImageError, match="must have at most 100 pixels"):
            reading.open_image(content, max_pixels=100)
        with pytest.raises(ImageError):
            reading.open_image(content[: len(content) // 2])
    monkeypatch.setattr(reading, "is_installed", lambda package: False)
    for source in (content, tmp_path / "x.heic"):
        with pytest.raises(ImageError, match=r'is a HEIC image, which needs a package: pip install "fusehash\[heic\]"'):
            reading.open_image(source)
    assert {item.key for item in read_folder(tmp_path)} == {"x.avif", "x.heic"}
