from idml.paper.effort import configurations, effort
from idml.recipes import recipe
from idml.sweeping.lab import stored

PLAIN = recipe("cub-softmax-plain")


def line(config, split="validation"):
    return {"config": stored(config), "data": "", "split": split}


def test_configurations_are_counted_once_whatever_their_seeds_epochs_and_idle_settings():
    same = [PLAIN, PLAIN.with_changes(["seed=3", "epochs=2"]), PLAIN.with_changes(["tau=3"])]
    other, mixed = (PLAIN.with_changes([change]) for change in ("weight_decay=0.01", "mixing=mixup"))
    lines = [line(config) for config in [*same, other, mixed]]
    assert configurations(lines) == {"softmax": {"plain": 2, "Mixup alone": 1, "with uncertainty": 0}}


def test_what_was_scored_on_test_classes_is_no_search():
    assert configurations([line(PLAIN, split="test")]) == {}


def test_losses_without_a_run_have_no_row_in_the_table():
    rows = effort([line(PLAIN), line(recipe("cub-softmax"))]).splitlines()[2:]
    assert rows == ["| Softmax | 1 | 0 | 1 |"]
