import pytest
from caches import draw_cache
from scripts import benchmark

from idml.sweeping.lab import Lab


@pytest.fixture(scope="module")
def decisions():
    return benchmark("plain_decisions")


class Known:
    """Folds whose scores are known beforehand, above a recipe that has 100 everywhere."""

    def __init__(self, gains: dict[str, list[float]]):
        self.gains, self.runs = gains, []

    def run(self, forms, folds) -> None:
        self.runs += [(form.name, fold) for form in forms for fold in folds if form.changes]

    def gain(self, form, folds) -> float:
        known = [self.gains[form.name][fold] for fold in folds if (form.name, fold) in self.runs]
        return sum(known) / len(folds) if len(known) == len(folds) else float("-inf")


def test_forms_go_on_as_long_as_they_are_ahead_and_the_best_of_a_loss_is_taken(decisions):
    gains = {
        "behind": [-0.4, 9, 9, 9],
        "level": [-0.2, 0.7, 9, 9],  # 0.25 on two folds
        "good": [0.4, 0.4, 0.6, 0.8],
        "better": [0.2, 0.6, 0.9, 0.8],
        "of another loss": [1.0, 1.0, 0.0, -0.2],  # 0.45 on four
    }
    folds = Known(gains)
    recipes = {"of another loss": "cub-triplet-plain"}
    forms = [decisions.Form(name, recipes.get(name, "cub-softmax-plain"), ("average=0.98",)) for name in gains]
    assert [form.name for form in decisions.decided(forms, folds)] == ["better"]
    runs = {name: [fold for run, fold in folds.runs if run == name] for name in gains}
    assert runs == {
        "behind": [0],
        "level": [0, 1],
        "good": [0, 1, 2, 3],
        "better": [0, 1, 2, 3],
        "of another loss": [0, 1, 2, 3],
    }


def test_recipes_are_known_from_longer_runs_and_everything_else_is_run_once(decisions, tmp_path, capsys):
    cache = draw_cache(tmp_path, classes=20)
    (tmp_path / "forms.arms").write_text("digits plain, slow: digits-plain lr=1e-4\n")

    def decide(folder: str, epochs: int, *known: str, every: int = 1) -> list[tuple[str, int]]:
        (tmp_path / folder).mkdir(exist_ok=True)
        places = [str(cache.folder), "none", str(tmp_path / folder), "--arms", str(tmp_path / "forms.arms")]
        decisions.main([*places, "--set", f"epochs={epochs}", "batch=20", f"validate_every={every}", "--known", *known])
        lines = Lab(tmp_path / folder / "folds.jsonl").lines()
        assert not any(line["error"] for line in lines)
        return [(line["arm"], line["seed"]) for line in lines]

    longer = decide("longer", 2)
    assert {("digits-plain", fold) for fold in range(4)} < set(longer)
    assert decide("longer", 2) == longer, "what the log has is not run again"
    known = str(tmp_path / "longer" / "folds.jsonl")
    assert "digits-plain" not in [name for name, _ in decide("shorter", 1, known)], "two epochs hold one"
    assert "digits-plain" in [name for name, _ in decide("alone", 1)]
    assert ("digits-plain", 0) not in decide("at the end", 2, known, every=2), "they are judged after two epochs"
    assert "digits plain, slow: " in capsys.readouterr().out


def test_better_baselines_the_method_and_the_other_rows_of_its_loss_are_scored_with_the_same_changes(
    decisions, tmp_path, monkeypatch
):
    cache = draw_cache(tmp_path, classes=20)
    forms, rows = tmp_path / "forms.arms", tmp_path / "rows.arms"
    forms.write_text("digits plain, slow: digits-plain lr=1e-4\n")
    rows.write_text("digits plain: digits-plain seeds=5\ndigits mixup: digits introspective=false seeds=3\n")
    for name in ("FOLDS", "FINAL_SEEDS", "OTHER_SEEDS"):
        monkeypatch.setattr(decisions, name, (0,))
    monkeypatch.setattr(decisions.Folds, "gain", lambda *_: 1.0)
    files = ["--arms", str(forms), "--rows", str(rows), "--swapped", str(cache.folder)]
    decisions.main([str(cache.folder), "none", str(tmp_path), *files, "--set", "epochs=1", "batch=20"])
    final, swapped = (Lab(tmp_path / f"{name}.jsonl").lines() for name in ("final", "swapped"))
    assert [line["arm"] for line in final] == ["digits plain, slow", "digits both, slow", "digits mixup"]
    assert [line["arm"] for line in swapped] == ["digits plain, slow", "digits both, slow"]
    assert {line["config"]["optimiser"]["lr"] for line in final} == {1e-4}
    assert [line["config"]["objective"]["introspective"] for line in final] == [False, True, False]
    assert {(line["split"], line["error"]) for line in final} == {("test", None)}


def test_mistakes_are_told_before_the_first_run(decisions, tmp_path):
    cache = draw_cache(tmp_path, classes=20)
    (tmp_path / "forms.arms").write_text("a plain: digits-plain lrs=1e-4\n")
    with pytest.raises(SystemExit, match="unknown setting 'lrs'"):
        decisions.main([str(cache.folder), "none", str(tmp_path), "--arms", str(tmp_path / "forms.arms"), "--set"])
    assert not (tmp_path / "folds.jsonl").exists()
