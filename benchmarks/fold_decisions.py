"""Which forms of a loss are better? Asked on folds of the training classes, and decided by a rule.

    python benchmarks/fold_decisions.py CACHE WEIGHTS LOG --arms FILE [FILE …] --against FILE [--known LOG …]

Arms are forms of losses, plain ones and ones with uncertainty, as `idml sweep --arms` takes them. Each is held against
its reference: the arm of its loss and kind in the file AGAINST. Scores are R@1 + MAP@R on five folds of the training
classes, in points above the reference on the same folds; those of known logs count too, after as many epochs, also of
longer runs (rates are constant), and of several runs on a fold their mean. The rule:

1. All forms are run on the first fold, and go on to the second if they are not more than PATIENCE below the reference.
2. Forms that are more than AHEAD above it on two folds are run on two more.
3. Of each loss and kind the form with the highest mean over four folds is better, if that is more than ENOUGH; of those
   with uncertainty only forms count whose level knows errors, with a mean R-AUROC of KNOWING or more.

What LOG has is not run again.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from lease import Told

from idml.cli.devices import chosen_device
from idml.data.cache import Cache
from idml.sweeping.halting import Halting
from idml.sweeping.lab import Lab, Line, arm_identity, stored, with_effective_settings
from idml.sweeping.space import Arm, arms_of_file, held_out
from idml.sweeping.sweep import Plan, sweep
from idml.training.workshop import Workshop

Kind = tuple[str, str]  # the loss, and whether it is plain

FOLDS, VALIDATE = (0, 1, 2, 3), "5-fold"
PATIENCE, AHEAD, ENOUGH, KNOWING = 0.3, 0.3, 0.5, 0.58
AT_THE_END = "validate_every=1000"  # a quarter of a run's time goes into validation after every epoch


class Folds:
    """What is known of forms on folds, and runs of what is not."""

    def __init__(self, cache: Cache, lab: Lab, known: Sequence[Line], options: dict):
        self.cache, self.lab, self.options = cache, lab, options
        self._found: dict[str, list[Line]] = defaultdict(list)
        self._keep([*known, *lab.lines()])

    def run(self, forms: Sequence[Arm], folds: Sequence[int]) -> None:
        for fold in folds:
            unknown = [form for form in forms if fold not in self.totals(form)]
            if unknown:
                self._keep(sweep(Plan(unknown, [fold], self.cache), self.lab, **self.options))

    def totals(self, form: Arm) -> dict[int, float]:
        """R@1 + MAP@R in % on each fold that is known."""
        return self._means(form, "recall@1", "map_at_r")

    def gain(self, form: Arm, reference: Arm, folds: Sequence[int]) -> float:
        """Mean over these folds, above the reference; a form that failed on one of them gains less than any other."""
        totals, references = self.totals(form), self.totals(reference)
        if any(fold not in totals for fold in folds):
            return float("-inf")
        return fmean(totals[fold] - references[fold] for fold in folds)

    def knows(self, form: Arm) -> bool:
        """Whether its level knows errors, where it has one."""
        found = self._means(form, "r_auroc")
        return not found or fmean(found.values()) >= 100 * KNOWING

    def _means(self, form: Arm, *scores: str) -> dict[int, float]:
        """The sum of scores, in %, on each fold that is known."""
        run = {"config": stored(form.config), "data": self.cache.meta.index_checksum, "split": "validation"}
        found: dict[int, list[float]] = defaultdict(list)
        for line in self._found[_identity_without_epochs(run)]:
            record = _record_after(line, form.config.run.epochs)
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


def kind_of(form: Arm) -> Kind:
    objective = form.config.objective
    return objective.loss, "with uncertainty" if objective.introspective else "plain"


def decided(forms: Sequence[Arm], references: Mapping[Kind, Arm], folds: Folds) -> list[Arm]:
    """The better forms, by the rule."""

    def gain(form: Arm, number: int) -> float:
        return folds.gain(form, references[kind_of(form)], FOLDS[:number])

    folds.run([references[kind] for kind in dict.fromkeys(map(kind_of, forms))], FOLDS)
    folds.run(forms, FOLDS[:1])
    folds.run([form for form in forms if gain(form, 1) >= -PATIENCE], FOLDS[1:2])
    folds.run([form for form in forms if gain(form, 2) > AHEAD], FOLDS[2:])
    best: dict[Kind, Arm] = {}
    for form in forms:
        kind = kind_of(form)
        print(f"{form.name}: " + " ".join(f"{gain(form, number):+.2f}" for number in (1, 2, 4)), flush=True)
        least = max(ENOUGH, gain(best[kind], 4)) if kind in best else ENOUGH
        if gain(form, 4) > least and folds.knows(form):
            best[kind] = form
    return list(best.values())


def decide(options: argparse.Namespace) -> None:
    cache, common = Cache.open(options.cache), [*options.changes, f"weights={options.weights}"]

    def arms_of(paths: Sequence[Path]) -> list[Arm]:
        return [arm for path in paths for arm in arms_of_file(path, common, validation=held_out(VALIDATE))]

    forms, against = arms_of(options.arms), arms_of([options.against])
    references = {kind_of(form): form for form in against}
    if len(references) < len(against) or not {kind_of(form) for form in forms} <= set(references):
        raise ValueError(
            f"{options.against} is to have one arm for each loss and kind that is asked of: {sorted(references)}."
        )
    how = {"device": chosen_device("auto"), "halting": Halting(share=0), "workshop": Workshop(), "watch": Told()}
    known = [line for log in options.known for line in Lab(log).lines()]
    Plan(forms, FOLDS, cache).check()
    better = decided(forms, references, Folds(cache, Lab(options.log), known, how))
    print("better:", ", ".join(form.name for form in better) or "none", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("log", type=Path)
    parser.add_argument("--arms", type=Path, nargs="+", required=True)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--set", nargs="*", default=["backbone=resnet50_v1", AT_THE_END], dest="changes")
    try:
        decide(parser.parse_args(arguments))
    except (ValueError, OSError) as mistake:
        raise SystemExit(str(mistake)) from None


if __name__ == "__main__":
    main()
