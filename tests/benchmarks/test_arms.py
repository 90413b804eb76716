from pathlib import Path

import pytest

from idml.losses import LOSSES
from idml.paper.rows import ROWS
from idml.recipes.cub import OF_PLAIN
from idml.sweeping.lab import Lab, identity, stored
from idml.sweeping.space import arms_of_file

ARMS = Path(__file__).parents[2] / "benchmarks" / "arms"
RESULTS = ARMS.parents[1] / "results"
FINAL = ARMS / "cub-final.arms"
FILES = sorted(ARMS.glob("*.arms"))
OTHER_FILES = ("fewer-epochs", "other-forms")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_arm_can_be_trained(path):
    assert arms_of_file(path, [], validation={"validation_folds": 5})


def test_final_arms_are_all_rows_of_all_losses_and_a_second_control_where_softening_gained():
    arms = arms_of_file(FINAL, [], validation={})
    named = {arm.name for arm in arms}
    shared = {f"{loss} shared" for loss in OF_PLAIN}
    often = {f"{loss} {row}" for loss in LOSSES for row in ("plain", "both")} | shared
    often |= {"softmax introspective", "softmax passes"}
    assert {arm.name for arm in arms if arm.seeds == (0, 1, 2, 3, 4)} == often
    wanted = {f"{loss} {row}" for loss in LOSSES for row in ROWS if row not in ("shared", "common")}
    assert named == wanted | shared | {"fast_ap common"}


@pytest.mark.parametrize(
    ("log", "files"),
    [
        ("cub-final", ["cub-final"]),
        ("cub-final-former-settings", ["cub-final-former-settings"]),
        ("cub-final-again", ["cub-final", *(f"cub-final-{name}" for name in ("former-settings", *OTHER_FILES))]),
        ("cub-final-fewer-epochs", ["cub-final-fewer-epochs"]),
        ("cub-final-other-forms", ["cub-final-other-forms"]),
        ("cub-again", ["cub-again"]),
        ("cub-swapped", ["cub-swapped"]),
        ("cub-swapped-former-settings", ["cub-swapped-former-settings"]),
    ],
)
def test_final_rows_of_the_log_are_what_recipes_make_now(log, files):
    changes = ["backbone=resnet50_v1", "weights=resnet50-v1-imagenet"]
    arms = [arm for name in files for arm in arms_of_file(ARMS / f"{name}.arms", changes, validation={})]
    configs = {arm.name: arm.config for arm in arms}
    lines = Lab(RESULTS / f"{log}.jsonl").lines()
    assert lines
    for line in lines:
        now = stored(configs[line["arm"]].with_changes({"seed": line["seed"]}))
        run = (line["data"], line["split"])
        assert identity(line["config"], *run) == identity(now, *run), f"{line['arm']}, seed {line['seed']}"
