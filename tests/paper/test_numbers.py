import pytest

from idml.losses import LOSSES
from idml.paper.numbers import MAIN, SHORT, TABLES, Printed, printed

DATASETS = ("cub200", "cars196", "products")
PRINTED_LOSSES = [loss for loss in LOSSES if loss != "softmax"]  # of which the paper prints nothing
PARTS = ("mixup", "introspective", "pel", "pel_mixup")


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_loss_has_plain_and_both_and_both_is_no_worse(dataset):
    assert set(TABLES[dataset]) == set(PRINTED_LOSSES)
    for loss in PRINTED_LOSSES:
        plain, both = printed(dataset, loss, "plain"), printed(dataset, loss, "both")
        assert plain is not None
        assert both is not None
        assert plain.keys() == both.keys() == set(SHORT if dataset == "products" else MAIN)
        assert all(both[name].value >= plain[name].value for name in plain)
        assert all(one.deviation is not None for row in (plain, both) for one in row.values())


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("loss", PRINTED_LOSSES)
def test_single_components_are_printed_for_two_losses_without_deviations(dataset, loss):
    for row in PARTS:
        found = printed(dataset, loss, row)
        if loss not in ("margin", "proxy_anchor"):
            assert found is None
        else:
            assert found is not None
            assert found.keys() == set(SHORT)
            assert all(one.deviation is None for one in found.values())


@pytest.mark.parametrize(
    ("dataset", "loss", "row", "score", "value"),
    [
        ("cub200", "proxy_anchor", "both", "recall@1", Printed(70.7, 0.1)),
        ("cub200", "proxy_anchor", "plain", "map_at_r", Printed(27.5, 0.3)),
        ("cub200", "contrastive", "both", "recall@2", Printed(77.6, 0.1)),
        ("cub200", "margin", "introspective", "map_at_r", Printed(25.7)),
        ("cars196", "margin", "both", "map_at_r", Printed(29.7, 1.3)),
        ("cars196", "proxy_anchor", "mixup", "nmi", Printed(75.8)),
        ("products", "fast_ap", "plain", "r_precision", Printed(50.1, 0.7)),
        ("products", "multi_similarity", "both", "recall@1", Printed(79.7, 0.1)),
    ],
)
def test_numbers_are_those_of_the_paper(dataset, loss, row, score, value):
    found = printed(dataset, loss, row)
    assert found is not None
    assert found[score] == value


def test_what_the_paper_lacks_is_none_and_what_nobody_has_is_an_error():
    assert printed("cub200", "proxy_anchor", "random") is None
    assert printed("cub200", "softmax", "plain") is None
    with pytest.raises(ValueError, match="unknown dataset of the paper 'cub20': did you mean 'cub200'"):
        printed("cub20", "margin", "plain")
    with pytest.raises(ValueError, match="unknown loss 'triplets': did you mean 'triplet'"):
        printed("cub200", "triplets", "plain")


def test_numbers_are_written_as_the_paper_writes_them():
    assert [str(Printed(67.2, 0.0)), str(Printed(67.0))] == ["67.2 ± 0.0", "67.0"]
