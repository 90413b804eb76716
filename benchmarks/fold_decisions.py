"""Which forms of a loss are better? Asked on folds of the training classes, and decided by a rule.

    python benchmarks/fold_decisions.py CACHE WEIGHTS LOG --arms FILE [FILE …] [--against FILE] [--known LOG …]

Arms are forms of recipes, of plain ones and of the method, `NAME: cub-softmax-plain CHANGE …`. Each is held against
the form of its recipe in the file AGAINST, or against the recipe itself: its reference. Scores are R@1 + MAP@R on five
folds of the training classes, in points above the reference on the same folds; those of known logs count too, after as
many epochs, also of longer runs (rates are constant), and of several runs on a fold their mean. The rule:

1. All forms are run on the first fold, and go on to the second if they are not more than PATIENCE below the reference.
2. Forms that are more than AHEAD above it on two folds are run on two more.
3. Of each recipe the form with the highest mean over four folds is better, if that is more than ENOUGH; of the method
   only forms count whose level knows errors, with a mean R-AUROC of KNOWING or more.

What LOG has is not run again.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from forms import Form, forms_of_file
from lease import Told

from idml.cli.devices import chosen_device
from idml.data.cache import Cache
from idml.sweeping.halting import Halting
from idml.sweeping.lab import Lab, Line, arm_identity, stored, with_effective_settings
from idml.sweeping.space import held_out
from idml.sweeping.sweep import Plan, sweep
from idml.training.workshop import Workshop

FOLDS, VALIDATE = (0, 1, 2, 3), "5-fold"
PATIENCE, AHEAD, ENOUGH, KNOWING = 0.3, 0.3, 0.5, 0.58
AT_THE_END = "validate_every=1000"  # a quarter of a run's time goes into validation after every epoch


class Folds:
    """What is known of forms on folds, and runs of what is not."""

    def __init__(self, cache: Cache, lab: Lab, known: Sequence[Line], common: Sequence[str], options: dict):
        self.cache, self.lab, self.common, self.options = cache, lab, common, options
        self._found: dict[str, list[Line]] = defaultdict(list)
        self._keep([*known, *lab.lines()])

    def run(self, forms: Sequence[Form], folds: Sequence[int]) -> None:
        for fold in folds:
            arms = [form.arm(self.common, held_out(VALIDATE)) for form in forms if fold not in self.totals(form)]
            if arms:
                self._keep(sweep(Plan(arms, [fold], self.cache), self.lab, **self.options))

    def totals(self, form: Form) -> dict[int, float]:
        """R@1 + MAP@R in % on each fold that is known."""
        return self._means(form, "recall@1", "map_at_r")

    def gain(self, form: Form, reference: Form, folds: Sequence[int]) -> float:
        """Mean over these folds, above the reference; a form that failed on one of them gains less than any other."""
        totals, references = self.totals(form), self.totals(reference)
        if any(fold not in totals for fold in folds):
            return float("-inf")
        return fmean(totals[fold] - references[fold] for fold in folds)

    def knows(self, form: Form) -> bool:
        """Whether its level knows errors, where it has one."""
        found = self._means(form, "r_auroc")
        return not found or fmean(found.values()) >= 100 * KNOWING

    def _means(self, form: Form, *scores: str) -> dict[int, float]:
        """The sum of scores, in %, on each fold that is known."""
        config = form.arm(self.common, held_out(VALIDATE)).config
        run = {"config": stored(config), "data": self.cache.meta.index_checksum, "split": "validation"}
        found: dict[int, list[float]] = defaultdict(list)
        for line in self._found[_identity_without_epochs(run)]:
            record = _record_after(line, config.run.epochs)
            if all(f"validation_{name}" in record for name in scores):
                found[line["seed"]].append(100 * sum(record[f"validation_{name}"] for name in scores))
        return {fold: fmean(totals) for fold, totals in found.items()}

    def _keep(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._found[_identity_without_epochs(line)].append(line)


def _identity_without_epochs(line: Line) -> str:
    """Of runs that differ in how long they are, and in how often they are judged."""
    effective = with_effective_settings(line)
    run = effective["config"]["run"] | {"epochs": None, "validate_every": None}
    return arm_identity({**effective, "config": {**effective["config"], "run": run}})


def _record_after(line: Line, epochs: int) -> dict[str, float]:
    """What is known after so many epochs: nothing of a run that failed, or did not come so far."""
    records = [] if line["error"] else line["epochs"]
    return next((record for record in records if record["epoch"] == epochs), {})


def decided(forms: Sequence[Form], references: Mapping[str, Form], folds: Folds) -> list[Form]:
    """The better forms, by the rule. references: what a form of a recipe is held against."""

    def gain(form: Form, number: int) -> float:
        return folds.gain(form, references[form.recipe], FOLDS[:number])

    folds.run(list(dict.fromkeys(references[form.recipe] for form in forms)), FOLDS)
    folds.run(forms, FOLDS[:1])
    folds.run([form for form in forms if gain(form, 1) >= -PATIENCE], FOLDS[1:2])
    folds.run([form for form in forms if gain(form, 2) > AHEAD], FOLDS[2:])
    best: dict[str, Form] = {}
    for form in forms:
        print(f"{form.name}: " + " ".join(f"{gain(form, number):+.2f}" for number in (1, 2, 4)), flush=True)
        least = max(ENOUGH, gain(best[form.recipe], 4)) if form.recipe in best else ENOUGH
        if gain(form, 4) > least and folds.knows(form):
            best[form.recipe] = form
    return list(best.values())


def decide(options: argparse.Namespace) -> None:
    cache, common = Cache.open(options.cache), [*options.changes, f"weights={options.weights}"]
    forms = [form for path in options.arms for form in forms_of_file(path)]
    given = {form.recipe: form for form in (forms_of_file(options.against) if options.against else [])}
    references = {form.recipe: given.get(form.recipe, form.unchanged) for form in forms}
    how = {"device": chosen_device("auto"), "halting": Halting(share=0), "workshop": Workshop(), "watch": Told()}
    known = [line for log in options.known for line in Lab(log).lines()]
    Plan([form.arm(common, held_out(VALIDATE)) for form in forms], FOLDS, cache).check()
    better = decided(forms, references, Folds(cache, Lab(options.log), known, common, how))
    print("better:", ", ".join(form.name for form in better) or "none", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("log", type=Path)
    parser.add_argument("--arms", type=Path, nargs="+", required=True)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--set", nargs="*", default=["backbone=resnet50_v1", AT_THE_END], dest="changes")
    try:
        decide(parser.parse_args(arguments))
    except (ValueError, OSError) as mistake:
        raise SystemExit(str(mistake)) from None


if __name__ == "__main__":
    main()
