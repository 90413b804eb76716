import pytest
import torch

from idml.models.preprocessing import Normalise, Preprocessing, resized

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def preprocessing(**changes) -> Preprocessing:
    return Preprocessing(**({"mean": MEAN, "std": STD, "size": 224, "resize": 256} | changes))


def test_bytes_and_shares_are_normalised_alike():
    images = torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)
    normalise = Normalise(preprocessing())
    expected = (images / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    torch.testing.assert_close(normalise(images), expected)
    torch.testing.assert_close(normalise(images / 255), expected)
    assert not normalise.state_dict()


def test_channels_last_stays():
    images = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert Normalise(preprocessing())(images).is_contiguous(memory_format=torch.channels_last)


def test_the_margin_around_a_crop_grows_with_it():
    assert [resized(size) for size in (32, 160, 224, 448)] == [37, 183, 256, 512]
    assert Preprocessing.for_size(160, mean=MEAN, std=STD).resize == 183


def test_it_goes_through_a_dict():
    assert Preprocessing.from_dict(preprocessing().to_dict()) == preprocessing()


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.full((1, 3, 4, 4), 255.0), r"images range from 255 to 255: give uint8, or floats in 0\.\.1"),
        (torch.full((1, 3, 4, 4), -2.0), "that are not normalised"),
        (torch.rand(1, 1, 4, 4), r"shape \(1, 1, 4, 4\): give 3 channels"),
        (torch.rand(3, 4, 4), "give a batch of shape"),
        (torch.ones(1, 3, 4, 4, dtype=torch.int64), "dtype torch.int64: give uint8"),
    ],
)
def test_images_that_cannot_be_meant_are_told(images, message):
    with pytest.raises(ValueError, match=message):
        Normalise(preprocessing())(images)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"std": (0.0, 1.0, 1.0)}, "std is"),
        ({"size": 300}, "size is 300 and resize 256"),
    ],
)
def test_mistakes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        preprocessing(**changes)
    with pytest.raises(ValueError, match="unknown field of the preprocessing 'crop'"):
        Preprocessing.from_dict(preprocessing().to_dict() | {"crop": 1})
    with pytest.raises(ValueError, match="without 'mean'"):
        Preprocessing.from_dict({})
