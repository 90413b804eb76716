import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import generator

from idml.data.crops import centre_boxes, random_flips, random_resized_boxes, resize_and_crop_boxes

sizes = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=20)


def both(pairs):
    return torch.tensor(pairs, dtype=torch.long).unbind(dim=1)


@given(pairs=sizes, seed=st.integers(0, 999))
def test_random_resized_boxes_are_whole_pixels_inside_the_image(pairs, seed):
    heights, widths = both(pairs)
    top, left, tall, wide = random_resized_boxes(heights, widths, generator=generator(seed)).unbind(dim=1)
    for value in (top, left, tall, wide):
        assert torch.equal(value, value.round())
    assert (top >= 0).all() and (left >= 0).all()  # noqa: PT018
    assert (tall >= 1).all() and (wide >= 1).all()  # noqa: PT018
    assert (top + tall <= heights).all()
    assert (left + wide <= widths).all()


def test_random_resized_boxes_are_distributed_as_those_of_torchvision():
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    number, scale, ratio = 4000, (0.16, 1.0), (3 / 4, 4 / 3)
    image = torch.empty(3, 60, 90)
    theirs = torch.tensor(
        [RandomResizedCrop.get_params(image, list(scale), list(ratio)) for _ in range(number)]
    ).float()
    heights, widths = torch.full((number,), 60), torch.full((number,), 90)
    ours = random_resized_boxes(heights, widths, scale=scale, ratio=ratio, generator=generator(0))
    assert torch.allclose(ours.mean(dim=0), theirs.mean(dim=0), atol=1.0)
    assert torch.allclose(ours.std(dim=0), theirs.std(dim=0), atol=1.0)


def test_a_box_that_never_fits_falls_back_to_the_centre_as_in_torchvision():
    from torchvision.transforms import RandomResizedCrop

    for height, width in [(10, 100), (100, 10), (50, 50)]:
        theirs = RandomResizedCrop.get_params(torch.empty(3, height, width), [5.0, 5.0], [3 / 4, 4 / 3])
        ours = random_resized_boxes(torch.tensor([height]), torch.tensor([width]), scale=(5.0, 5.0))
        assert tuple(ours[0].tolist()) == theirs


@given(pairs=sizes, seed=st.integers(0, 999))
def test_resize_and_crop_boxes_are_windows_of_the_squared_image(pairs, seed):
    heights, widths = both(pairs)
    boxes = resize_and_crop_boxes(heights, widths, size=7, of=8, generator=generator(seed))
    windows = boxes * 8 / torch.stack([heights, widths, heights, widths], dim=1)
    assert torch.allclose(windows, windows.round(), atol=1e-4)
    assert torch.allclose(windows[:, 2:], torch.tensor(7.0))
    assert ((windows[:, :2].round() >= 0) & (windows[:, :2].round() <= 1)).all()


@pytest.mark.parametrize(("height", "width"), [(256, 256), (256, 341), (300, 256), (256, 257)])
def test_the_centre_is_in_whole_pixels_where_the_short_side_has_the_right_size(height, width):
    from torchvision.transforms.functional import center_crop

    box = centre_boxes(torch.tensor([height]), torch.tensor([width]))[0]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    corner = center_crop(torch.stack([rows, columns]), [224, 224])[:, 0, 0]
    assert box.tolist() == [*corner.tolist(), 224, 224]


def test_the_centre_scales_with_the_image():
    small, large = (centre_boxes(torch.tensor([side]), torch.tensor([2 * side])) for side in (256, 512))
    assert torch.equal(2 * small, large)


def test_boxes_and_flips_follow_from_the_generator():
    heights, widths = torch.full((9,), 40), torch.full((9,), 50)
    for draw in (
        random_resized_boxes,
        lambda h, w, generator: resize_and_crop_boxes(h, w, size=32, of=40, generator=generator),
    ):
        first, again, other = (draw(heights, widths, generator=generator(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
    assert torch.equal(*(random_flips(heights, generator=generator(4)) for _ in range(2)))
    assert not random_flips(heights, rate=0.0).any()
    assert random_flips(heights, rate=1.0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h, w: random_resized_boxes(h, w, scale=(0.5, 0.2)), "scale is"),
        (lambda h, w: random_resized_boxes(h, w, ratio=(0.0, 1.0)), "ratio is"),
        (lambda h, w: resize_and_crop_boxes(h, w, size=300, of=256), "a crop of 300 out of 256"),
        (lambda h, w: centre_boxes(h, w, size=0), "a crop of 0 out of 256"),
        (lambda h, _: random_flips(h, rate=2.0), "rate is 2.0"),
    ],
)
def test_impossible_boxes_say_why(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.tensor([9]), torch.tensor([9]))
