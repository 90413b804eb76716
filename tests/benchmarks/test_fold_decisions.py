import pytest
from caches import draw_cache
from scripts import benchmark

from idml.sweeping.lab import Lab, stored
from idml.sweeping.space import Arm, arms_of_recipes, held_out
from idml.training.config import Config


@pytest.fixture(scope="module")
def decisions():
    return benchmark("fold_decisions")


class Known:
    """Folds whose scores are known beforehand, above a reference that has 100 everywhere."""

    def __init__(self, gains: dict[str, list[float]], ignorant: str):
        self.gains, self.ignorant, self.runs = gains, ignorant, []

    def run(self, forms, folds) -> None:
        self.runs += [(form.name, fold) for form in forms for fold in folds if form.name in self.gains]

    def gain(self, form, reference, folds) -> float:
        assert reference.config.objective.loss == form.config.objective.loss
        known = [self.gains[form.name][fold] for fold in folds if (form.name, fold) in self.runs]
        return sum(known) / len(folds) if len(known) == len(folds) else float("-inf")

    def knows(self, form) -> bool:
        return form.name != self.ignorant


def arm(name: str, loss: str) -> Arm:
    return Arm(name=name, config=Config().with_changes({"loss": loss}))


def test_forms_go_on_as_long_as_they_are_ahead_and_the_best_of_a_loss_that_knows_errors_is_taken(decisions):
    gains = {
        "behind": [-0.4, 9, 9, 9],
        "level": [-0.2, 0.7, 9, 9],  # 0.25 on two folds
        "good": [0.4, 0.4, 0.6, 0.8],
        "better": [0.2, 0.6, 0.9, 0.8],
        "best, and ignorant": [2.0, 2.0, 2.0, 2.0],
        "of another loss": [1.0, 1.0, 0.0, -0.2],  # 0.45 on four
    }
    folds = Known(gains, "best, and ignorant")
    losses = {"of another loss": "triplet"}
    forms = [arm(name, losses.get(name, "softmax")) for name in gains]
    references = {decisions.kind_of(form): form for form in (arm("reference", "softmax"), arm("reference", "triplet"))}
    assert [form.name for form in decisions.decided(forms, references, folds)] == ["better"]
    runs = {name: [fold for run, fold in folds.runs if run == name] for name in gains}
    assert runs == {
        "behind": [0],
        "level": [0, 1],
        "good": [0, 1, 2, 3],
        "better": [0, 1, 2, 3],
        "best, and ignorant": [0, 1, 2, 3],
        "of another loss": [0, 1, 2, 3],
    }


def test_references_are_known_from_longer_runs_and_everything_else_is_run_once(decisions, tmp_path, capsys):
    cache = draw_cache(tmp_path, classes=20)
    (tmp_path / "forms.arms").write_text("digits plain, slow: digits-plain lr=1e-4\n")
    (tmp_path / "against.arms").write_text("digits-plain: digits-plain\n")
    files = ["--arms", str(tmp_path / "forms.arms"), "--against", str(tmp_path / "against.arms")]

    def decide(name: str, epochs: int, *known: str, every: int = 1) -> list[tuple[str, int]]:
        log = str(tmp_path / f"{name}.jsonl")
        settings = [f"epochs={epochs}", "batch=20", f"validate_every={every}"]
        decisions.main([str(cache.folder), "none", log, *files, "--set", *settings, "--known", *known])
        lines = Lab(log).lines()
        assert not any(line["error"] for line in lines)
        return [(line["arm"], line["seed"]) for line in lines]

    longer = decide("longer", 2)
    assert {("digits-plain", fold) for fold in range(4)} < set(longer)
    assert decide("longer", 2) == longer, "what the log has is not run again"
    known = str(tmp_path / "longer.jsonl")
    assert "digits-plain" not in [name for name, _ in decide("shorter", 1, known)], "two epochs hold one"
    assert "digits-plain" in [name for name, _ in decide("alone", 1)]
    assert ("digits-plain", 0) not in decide("at the end", 2, known, every=2), "they are judged after two epochs"
    assert "digits plain, slow: " in capsys.readouterr().out


def test_levels_know_errors_by_the_mean_of_all_folds(decisions, tmp_path):
    cache = draw_cache(tmp_path, classes=20)
    (form,) = arms_of_recipes(["digits"], ["epochs=1"], validation=held_out(decisions.VALIDATE))

    def knows(*r_aurocs: float) -> bool:
        of_run = {
            "split": "validation",
            "data": cache.meta.index_checksum,
            "config": stored(form.config),
            "error": None,
        }
        lines = [
            {**of_run, "seed": seed, "epochs": [{"epoch": 1, "validation_r_auroc": value}]}
            for seed, value in enumerate(r_aurocs)
        ]
        return decisions.Folds(cache, Lab(tmp_path / "none.jsonl"), lines, {}).knows(form)

    assert knows(0.55, 0.62)
    assert not knows(0.55, 0.60)
    assert knows(), "a plain loss has no level"


@pytest.mark.parametrize(
    ("form", "against", "told"),
    [
        ("a plain: digits-plain lrs=1e-4", "b: digits-plain", "unknown setting 'lrs'"),
        ("a plain: digits-plain lr=1e-4", "b: digits", "one arm for each loss and kind"),
        ("a plain: digits-plain lr=1e-4", "b: digits-plain\nc: digits-plain lr=1", "one arm for each loss and kind"),
    ],
)
def test_mistakes_are_told_before_the_first_run(decisions, tmp_path, form, against, told):
    cache = draw_cache(tmp_path, classes=20)
    files = []
    for option, text in (("--arms", form), ("--against", against)):
        (tmp_path / option).write_text(text)
        files += [option, str(tmp_path / option)]
    with pytest.raises(SystemExit, match=told):
        decisions.main([str(cache.folder), "none", str(tmp_path / "log.jsonl"), *files, "--set"])
    assert not (tmp_path / "log.jsonl").exists()
