import io
import struct
import zlib

import numpy as np
import pytest
from pictures import picture
from PIL import Image

from idml.data.decoding import Decoder, decode

ORIENTATION = 0x0112


def encoded(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def test_colours_come_back_as_they_are():
    image = picture()
    assert np.array_equal(decode(encoded(Image.fromarray(image))), image)


def test_grey_becomes_three_equal_channels():
    grey = picture()[:, :, 0]
    assert np.array_equal(decode(encoded(Image.fromarray(grey))), np.stack([grey] * 3, axis=2))


def test_black_and_white_is_0_and_255():
    bits = Image.fromarray(picture()[:, :, 0] > 127)
    assert set(np.unique(decode(encoded(bits)))) == {0, 255}


def test_a_palette_is_looked_up():
    image = Image.fromarray(picture()).quantize(16)
    assert np.array_equal(decode(encoded(image)), np.asarray(image.convert("RGB")))


def test_cmyk_becomes_rgb():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    pixels = decode(encoded(image, "JPEG", quality=100)).astype(int)
    assert pixels[..., 0].min() > 250
    assert pixels[..., 1:].max() < 5


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_clipped(format):
    values = np.linspace(0, 65535, 64 * 4).astype(np.uint16).reshape(16, 16)
    expected = np.round(values / 257)
    assert np.abs(decode(encoded(Image.fromarray(values), format))[..., 0] - expected).max() <= 1


def test_sixteen_bit_colours_are_scaled():
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    row = b"\0" + struct.pack(">3H", 65535, 32768, 0)
    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")
    assert decode(file).tolist() == [[[255, 128, 0]]]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_stand_upright(orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    data = encoded(Image.fromarray(picture()), exif=exif)
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert np.array_equal(decode(data), expected)
    assert (decode(data).shape[:2] == (30, 20)) == (orientation >= 5)
    assert decode(data, size=10).shape[:2] == ((15, 10) if orientation >= 5 else (10, 15))


def test_transparent_parts_lie_over_white():
    image = np.zeros((4, 4, 4), dtype=np.uint8)
    image[:, 2:] = (10, 20, 30, 255)
    image[0, 0] = (0, 0, 0, 128)
    pixels = decode(encoded(Image.fromarray(image)))
    assert pixels[1, 0].tolist() == [255, 255, 255]
    assert pixels[1, 3].tolist() == [10, 20, 30]
    assert pixels[0, 0].tolist() == [127, 127, 127]


def test_a_transparent_colour_of_a_palette_is_white_too():
    image = Image.new("P", (2, 1))
    image.putpalette([9, 9, 9, 50, 60, 70])
    image.putpixel((1, 0), 1)
    assert decode(encoded(image, transparency=0)).tolist() == [[[255, 255, 255], [50, 60, 70]]]


def test_grey_with_alpha_lies_over_white():
    image = Image.new("LA", (1, 1), (40, 0))
    assert decode(encoded(image)).tolist() == [[[255, 255, 255]]]


@pytest.mark.parametrize(
    ("height", "width", "square", "expected"),
    [
        (20, 30, False, (16, 24)),
        (30, 20, False, (24, 16)),
        (8, 12, False, (16, 24)),
        (20, 30, True, (16, 16)),
        (1000, 1000, False, (16, 16)),
    ],
)
def test_the_short_side_or_both_get_the_size(height, width, square, expected):
    for format in ("PNG", "JPEG"):
        data = encoded(Image.fromarray(picture(height, width)), format)
        assert decode(data, size=16, square=square).shape == (*expected, 3)


def test_resizing_is_antialiased_bilinear_as_in_torchvision():
    image = Image.fromarray(picture(40, 60))
    expected = np.asarray(image.resize((24, 16), Image.Resampling.BILINEAR))
    assert np.array_equal(decode(encoded(image), size=16), expected)


def test_images_of_the_right_size_are_untouched():
    image = picture(16, 40)
    assert np.array_equal(decode(encoded(Image.fromarray(image)), size=16), image)


def test_large_photos_are_decoded_smaller_and_look_the_same():
    y, x = np.mgrid[0:800, 0:1200]
    image = Image.fromarray(
        np.stack([x * 255 // 1199, y * 255 // 799, (x + y) % 256 // 2 + 64], axis=2).astype(np.uint8)
    )
    data = encoded(image, "JPEG", quality=95)
    in_full = Image.open(io.BytesIO(data)).resize((96, 64), Image.Resampling.BILINEAR)
    assert np.abs(decode(data, size=64).astype(int) - np.asarray(in_full, dtype=int)).mean() < 1.5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no image"),
        (b"<html>not found</html>", "no image"),
        (encoded(Image.fromarray(picture(200, 200)), "JPEG")[:2000], "truncated"),
        (encoded(Image.fromarray(picture(200, 200)))[:2000], "truncated"),
        (encoded(Image.fromarray(np.ones((2, 2), dtype=np.float32)), "TIFF"), "floating-point"),
        (encoded(Image.fromarray(np.full((2, 2), 70000, dtype=np.int32)), "TIFF"), "more than 16 bits"),
        (encoded(Image.new("1", (1, 100_000))), "too long and narrow"),
    ],
)
def test_what_cannot_be_read_says_why(data, message):
    with pytest.raises(ValueError, match=message):
        decode(data, size=64)


def test_decompression_bombs_are_refused():
    bomb = encoded(Image.new("1", (20_000, 20_000)))
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="a decompression bomb"):
        decode(bomb, size=64)


def test_another_process_decodes_the_same(tmp_path):
    data = encoded(Image.fromarray(picture(40, 60)))
    file = tmp_path / "two.bin"
    file.write_bytes(b"before" + data)
    decoder = Decoder(size=16, square=False)
    try:
        whole, part, absent, broken = decoder(
            [
                ("", 0, len(data), data),
                (str(file), 6, len(data), None),
                (str(tmp_path / "nowhere.png"), 0, 1, None),
                (str(file), 0, 6, None),
            ]
        )
    finally:
        decoder.close()
    assert whole == part
    assert whole.pixels == decode(data, size=16).tobytes()
    assert whole.checksum == zlib.crc32(whole.pixels)
    assert absent.problem == "No such file or directory"
    assert "no image" in (broken.problem or "")


def test_a_decoder_that_died_is_told():
    decoder = Decoder(size=16, square=False)
    decoder._process.kill()
    decoder._process.wait()
    with pytest.raises(ValueError, match="a decoding process ended while at a.png"):
        decoder([("a.png", 0, 1, None)])
    decoder.close()
