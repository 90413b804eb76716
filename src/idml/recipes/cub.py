"""CUB-200-2011 with ResNet-50, classes 1 to 100 to train on, 101 to 200 to retrieve among.

Settings follow the authors' released code and a prototype; they are not yet chosen on validation
classes. Give the backbone's file with `--set weights=FILE`, or leave timm to fetch its own.
"""

from dataclasses import replace

from idml.training.config import (
    Config,
    DataConfig,
    MixingConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimiserConfig,
    RunConfig,
)


def proxy_anchor() -> Config:
    """ProxyAnchor, introspective, with Mixup in shares of the loss.

    idml train cub-proxy-anchor --data cub-cache --set backbone=resnet50_v1 --set weights=resnet50-v1.safetensors
    """
    return Config(
        data=DataConfig(batch=120),
        model=ModelConfig(),
        objective=ObjectiveConfig(loss="proxy_anchor", introspective=True),
        mixing=MixingConfig(mixing="mixup"),
        optimiser=OptimiserConfig(),
        run=RunConfig(epochs=30, compile=True),
    )


def proxy_anchor_plain() -> Config:
    """ProxyAnchor on the plain cosine distance: the baseline."""
    return proxy_anchor().plain()


def multi_similarity() -> Config:
    """Multi-similarity, introspective, with Mixup in shares of the loss; four images a class."""
    return _pairs(proxy_anchor(), "multi_similarity")


def multi_similarity_plain() -> Config:
    """Multi-similarity on the plain cosine distance: the baseline."""
    return multi_similarity().plain()


def contrastive() -> Config:
    """Contrastive, introspective, with Mixup in shares of the loss; four images a class."""
    return _pairs(proxy_anchor(), "contrastive")


def contrastive_plain() -> Config:
    """Contrastive on the plain Euclidean distance: the baseline."""
    return contrastive().plain()


def _pairs(config: Config, loss: str) -> Config:
    """Settings for losses that compare images with each other."""
    return replace(
        config,
        data=replace(config.data, per_class=4),
        objective=replace(config.objective, loss=loss),
        optimiser=replace(config.optimiser, lr=3e-5, decay_epochs=10, warm_up_epochs=1),
    )
