import pytest
import torch
from scripts import benchmark

from idml import Embedding
from idml.recipes import recipe
from idml.sweeping.lab import arm_identity
from idml.training.building import build_objective

CLASSES, DIM = 5, 8


@pytest.fixture(scope="module")
def peers():
    return benchmark("peer_baselines")


def embedding() -> tuple[Embedding, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(4)
    centres = torch.randn(CLASSES, DIM, generator=generator)
    return Embedding(centres[labels] + torch.randn(len(labels), DIM, generator=generator)), labels


def config_of(loss: str):
    return recipe(f"cub-{loss}-plain").with_changes({"dim": DIM})


def together(peers, config):
    """Our objective and the peer's, of one seed: their proxies start alike."""
    found = []
    for make in (build_objective, peers.equal):
        torch.manual_seed(0)
        found.append(make(config, CLASSES))
    return found


@pytest.mark.parametrize("loss", ["contrastive", "multi-similarity", "softmax", "proxy-anchor", "fast-ap"])
def test_with_equal_options_the_peers_loss_is_ours(peers, loss):
    config, (images, labels) = config_of(loss), embedding()
    ours, peer = together(peers, config)
    if loss == "softmax":  # that library leaves the images' lengths in
        images = Embedding(torch.nn.functional.normalize(images.semantic))
    torch.testing.assert_close(peer(images, labels), ours(images, labels), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", ["margin", "triplet", "multi-similarity", "proxy-nca", "fast-ap"])
def test_where_the_peer_has_other_options_or_another_loss_it_is_run_with_its_defaults_too(peers, loss):
    config, (images, labels) = config_of(loss), embedding()
    arms = peers.objectives(config, CLASSES)
    assert list(arms) == [peers.OURS, peers.EQUAL, peers.DEFAULT]
    assert all(torch.isfinite(make(config, CLASSES)(images, labels)) for make in arms.values())


def test_the_peers_proxy_nca_is_ours_with_positives_in_the_denominator(peers):
    config, (images, labels) = config_of("proxy-nca"), embedding()
    ours, peer = together(peers, config.with_changes({"loss_options.include_positive": True}))
    torch.testing.assert_close(peer(images, labels), ours(images, labels), rtol=1e-4, atol=1e-5)


def test_the_peers_triplets_have_our_margin_and_are_semi_hard(peers):
    config = config_of("triplet")
    peer = peers.equal(config, CLASSES)
    assert peer.loss.margin == peer.miner.margin == config.objective.loss_options["margin"]
    assert peer.miner.type_of_triplets == "semihard"


def test_lines_of_the_log_tell_whose_loss_it_is(peers):
    lines = [
        peers.described("triplet", config_of("triplet"), made_by=peers.LIBRARIES[row])
        for row in (peers.OURS, peers.EQUAL, peers.DEFAULT)
    ]
    assert len({arm_identity(line) for line in lines}) == 3
    assert "pytorch-metric-learning" in lines[1]["config"]["objective"]["library"]


def test_the_margin_losses_have_one_boundary(peers):
    loss = peers.equal(config_of("margin"), CLASSES).loss
    assert (float(loss.beta) - loss.margin, float(loss.beta) + loss.margin) == (0.0, 1.0)


def test_the_table_has_a_line_a_loss_and_dashes_for_what_was_not_run(peers):
    scores = [{"recall@1": 0.75, "map_at_r": 0.34}, {"recall@1": 0.77, "map_at_r": 0.36}]
    lines = [{"arm": f"triplet {peers.OURS}", "seed": seed, "scores": found} for seed, found in enumerate(scores)]
    text = peers.table(lines)
    assert "| Triplet | 76.0 ± 1.4 / 35.0 ± 1.4 | – | – |" in text
    assert len(text.splitlines()) == 10
