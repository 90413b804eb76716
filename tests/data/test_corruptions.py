import pytest
import torch
from torch import Tensor

from idml.data.corruptions import blur, crop, low_resolution, occlusion

CORRUPTIONS = [low_resolution, blur, occlusion, crop]
every_corruption = pytest.mark.parametrize("corrupt", CORRUPTIONS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(n: int = 8) -> Tensor:
    return torch.rand(n, 3, 24, 32, generator=generator(1))


def detail(batch: Tensor) -> float:
    return float(batch.diff(dim=3).abs().mean() + batch.diff(dim=2).abs().mean())


@every_corruption
def test_the_rate_is_the_share_of_images_that_change(corrupt):
    batch = images(400)
    changed = (corrupt(batch, rate=0.3, generator=generator()) != batch).flatten(1).any(dim=1)
    assert changed.float().mean().item() == pytest.approx(0.3, abs=0.07)


@every_corruption
def test_rate_zero_and_degree_zero_change_nothing(corrupt):
    batch = images()
    assert torch.equal(corrupt(batch, rate=0.0), batch)
    assert torch.equal(corrupt(batch, degree=0.0), batch)


@every_corruption
def test_a_higher_degree_leaves_less_to_see(corrupt):
    batch = images(40) + 0.5
    details = [detail(corrupt(batch, degree=degree, generator=generator())) for degree in (0.0, 0.3, 0.6, 1.0)]
    assert details == sorted(details, reverse=True)
    assert details[-1] < 0.05 * details[0]


@pytest.mark.parametrize("corrupt", [low_resolution, blur])
def test_images_are_corrupted_independently_of_their_batch(corrupt):
    batch = images()
    torch.testing.assert_close(corrupt(batch[:1]), corrupt(batch)[:1])


@every_corruption
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_stays(corrupt, dtype):
    batch = (images() * 255).to(dtype)
    corrupted = corrupt(batch, generator=generator())
    assert corrupted.dtype is dtype
    truth = corrupt(batch.float(), generator=generator())
    assert (corrupted.float() - truth).abs().max() <= (0.5001 if dtype is torch.uint8 else 3)


@every_corruption
def test_the_generator_decides(corrupt):
    batch = images()
    first, again, other = (corrupt(batch, rate=0.5, generator=generator(seed)) for seed in (0, 0, 3))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("degree", [0.1, 0.25, 0.5, 1.0])
def test_occlusion_covers_its_share_of_the_area_with_one_rectangle(degree):
    covered = occlusion(torch.ones(50, 3, 40, 60), degree=degree, fill=-1.0, generator=generator()) == -1
    assert covered.float().mean(dim=(1, 2, 3)).sub(degree).abs().max() < 0.03
    for one in covered[:, 0]:
        assert torch.equal(one, one.any(dim=1)[:, None] & one.any(dim=0)[None, :])
    assert degree == 1 or len({str(one.nonzero()[0]) for one in covered[:, 0]}) > 10


def test_blur_keeps_the_mean_of_a_flat_image_and_spreads_a_point_as_a_gaussian():
    flat = torch.full((1, 3, 20, 20), 0.7)
    torch.testing.assert_close(blur(flat, degree=0.8), flat)
    point = torch.zeros(1, 1, 41, 41, dtype=torch.float64)
    point[0, 0, 20, 20] = 1
    sigma = 0.5 * 0.1 * 41
    offset = torch.arange(41, dtype=torch.float64) - 20
    gaussian = torch.exp(-(offset[:, None] ** 2 + offset[None, :] ** 2) / (2 * sigma**2))
    spread = blur(point, degree=0.5)[0, 0]
    torch.testing.assert_close(spread, gaussian / gaussian.sum(), atol=1e-4, rtol=0)


def test_low_resolution_of_degree_one_is_the_mean_colour():
    batch = images()
    torch.testing.assert_close(low_resolution(batch, degree=1.0)[0, :, 3, 5], batch[0].mean(dim=(1, 2)))


@pytest.mark.parametrize("degree", [0.1, 0.5, 0.9, 1.0])
def test_a_crop_is_an_enlarged_window_with_its_share_of_the_area(degree):
    """On images that are their own coordinates, a window is told by its corners."""
    height, width = 40, 60
    coordinates = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")).float()
    cropped = crop(coordinates.expand(50, 2, height, width), degree=degree, generator=generator())
    first, last = cropped[:, :, 0, 0], cropped[:, :, -1, -1]
    torch.testing.assert_close(first, first.round())
    assert (first >= 0).all()
    assert (last.round() < torch.tensor([height, width])).all()
    length = (last - first + 1).round()
    assert (length.prod(dim=1) / (height * width) - (1 - degree)).abs().max() < 0.03
    assert (length == length[0]).all()
    assert len({tuple(corner.tolist()) for corner in first.round()}) > 5
    rows, columns = (int(side) for side in length[0])
    for image, (row, column) in zip(cropped, first.round().long().tolist(), strict=True):
        window = coordinates[None, :, row : row + rows, column : column + columns]
        truth = torch.nn.functional.interpolate(window, (height, width), mode="bilinear", align_corners=False)
        torch.testing.assert_close(image, truth[0])


def test_windows_reach_every_border():
    coordinates = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")).float()
    cropped = crop(coordinates.expand(400, 2, 6, 6), degree=0.75, generator=generator())
    assert cropped[:, :, 0, 0].round().unique().tolist() == [0, 1, 2, 3]
    assert cropped[:, :, -1, -1].round().unique().tolist() == [2, 3, 4, 5]


@pytest.mark.usefixtures("as_installed")
@every_corruption
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.5}, "rate is 1.5: give a number from 0 to 1"),
        ({"degree": -0.1}, "degree is -0.1"),
        ({"degree": float("nan")}, "degree is nan"),
    ],
)
def test_mistakes_are_named(corrupt, options, message):
    with pytest.raises(ValueError, match=message):
        corrupt(images(), **options)
    with pytest.raises(ValueError, match="give a batch of shape"):
        corrupt(torch.ones(3, 4, 4))
