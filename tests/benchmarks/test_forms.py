import pytest
from scripts import benchmark


@pytest.fixture(scope="module")
def forms():
    return benchmark("forms")


def test_the_method_takes_the_changes_and_keeps_the_rate_of_its_uncertainty(forms):
    form = forms.Form("softmax plain, slow", "cub-softmax-plain", ("lr=1e-5", "loss_options.scale=16"))
    method = form.of_method
    before, after = (method.unchanged.arm([], {}).config.optimiser, method.arm([], {}).config.optimiser)
    assert method.name == "softmax both, slow"
    assert method.arm([], {}).config.objective.loss_options == {"scale": 16.0}
    assert after.lr * after.uncertainty_factor == pytest.approx(before.lr * before.uncertainty_factor)
    assert method.arm([], {}).config.objective.introspective


def test_forms_are_read_without_comments_and_numbers_of_seeds(forms, tmp_path):
    (tmp_path / "some.arms").write_text(
        "# digits: none\na plain: digits-plain seeds=5\na plain, slow: digits-plain lr=1e-4 seeds=5 # ?\n"
    )
    first, second = forms.forms_of_file(tmp_path / "some.arms")
    assert (first.name, first.recipe, first.changes) == ("a plain", "digits-plain", ())
    assert (second.name, second.recipe, second.changes) == ("a plain, slow", "digits-plain", ("lr=1e-4",))
