"""Does a plain loss gain as much from as much search? Forms of baselines, asked on folds and decided by a rule.

    python benchmarks/plain_decisions.py CACHE WEIGHTS FOLDER --arms FILE [FILE …] --known LOG [--swapped CACHE]
        [--rows benchmarks/arms/cub-final.arms]

Arms are forms of plain recipes, `NAME: cub-softmax-plain CHANGE …`. Scores are R@1 + MAP@R on five folds of the
training classes, in points above the recipe's on the same folds. The recipe's are those of known logs too, after its
epochs, also of longer runs (rates are constant); of several runs on a fold their mean. The rule:

1. All forms are run on the first fold, and go on to the second if they are not more than PATIENCE below the recipe.
2. Forms that are more than AHEAD above it on two folds are run on two more.
3. Of each loss the form with the highest mean over four folds, if that is more than ENOUGH, is a better baseline. The
   method takes its changes, but for uncertainty's rate; if it is worse with them on the folds, it keeps its recipe.
4. The better baselines, and the method where it takes their changes, are scored on the test classes, five seeds, and,
   with --swapped, on the other half, three. With --rows the other rows of a loss whose method takes its changes are
   scored with them too, three seeds.

Logs are FOLDER/folds.jsonl, final.jsonl and swapped.jsonl; what they have is not run again.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
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
PATIENCE, AHEAD, ENOUGH = 0.3, 0.3, 0.5
FINAL_SEEDS, OTHER_SEEDS = range(5), range(3)
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
        config = form.arm(self.common, held_out(VALIDATE)).config
        run = {"config": stored(config), "data": self.cache.meta.index_checksum, "split": "validation"}
        found: dict[int, list[float]] = defaultdict(list)
        for line in self._found[_identity_without_epochs(run)]:
            total = _total_after(line, config.run.epochs)
            if total is not None:
                found[line["seed"]].append(total)
        return {fold: fmean(totals) for fold, totals in found.items()}

    def gain(self, form: Form, folds: Sequence[int]) -> float:
        """Mean over these folds, above the recipe; a form that failed on one of them gains less than any other."""
        totals, recipes = self.totals(form), self.totals(form.unchanged)
        if any(fold not in totals for fold in folds):
            return float("-inf")
        return fmean(totals[fold] - recipes[fold] for fold in folds)

    def _keep(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._found[_identity_without_epochs(line)].append(line)


def _identity_without_epochs(line: Line) -> str:
    """Of runs that differ in how long they are, and in how often they are judged."""
    effective = with_effective_settings(line)
    run = effective["config"]["run"] | {"epochs": None, "validate_every": None}
    return arm_identity({**effective, "config": {**effective["config"], "run": run}})


def _total_after(line: Line, epochs: int) -> float | None:
    """R@1 + MAP@R in % after so many epochs of a run that came so far."""
    for record in line["epochs"]:
        if record["epoch"] == epochs and "validation_map_at_r" in record and not line["error"]:
            return 100 * (record["validation_recall@1"] + record["validation_map_at_r"])
    return None


def decided(forms: Sequence[Form], folds: Folds) -> list[Form]:
    """The better baselines, by the rule."""
    folds.run(list(dict.fromkeys(form.unchanged for form in forms)), FOLDS)
    folds.run(forms, FOLDS[:1])
    folds.run([form for form in forms if folds.gain(form, FOLDS[:1]) >= -PATIENCE], FOLDS[1:2])
    folds.run([form for form in forms if folds.gain(form, FOLDS[:2]) > AHEAD], FOLDS[2:])
    best: dict[str, Form] = {}
    for form in forms:
        gains = [folds.gain(form, FOLDS[:count]) for count in (1, 2, 4)]
        print(f"{form.name}: " + " ".join(f"{gain:+.2f}" for gain in gains), flush=True)
        if gains[-1] > max(ENOUGH, folds.gain(best[form.recipe], FOLDS) if form.recipe in best else ENOUGH):
            best[form.recipe] = form
    return list(best.values())


def changed(paths: Sequence[Path]) -> list[Form]:
    """The forms in these files; recipes as they are need no run and are left out."""
    return [form for path in paths for form in forms_of_file(path) if form.changes]


def decide_and_score(options: argparse.Namespace) -> None:
    cache, common = Cache.open(options.cache), [*options.changes, f"weights={options.weights}"]
    how = {"device": chosen_device("auto"), "halting": Halting(share=0), "workshop": Workshop(), "watch": Told()}
    known = [line for log in options.known for line in Lab(log).lines()]
    folds = Folds(cache, Lab(options.folder / "folds.jsonl"), known, common, how)
    forms = changed(options.arms)
    Plan([form.arm(common, held_out(VALIDATE)) for form in forms], FOLDS, cache).check()
    baselines = decided(forms, folds)
    print("better baselines:", ", ".join(form.name for form in baselines) or "none", flush=True)

    def score(forms: Sequence[Form], seeds: Sequence[int], *, log: str = "final.jsonl", cache: Cache = cache) -> None:
        arms = [form.arm(common, held_out(VALIDATE, is_final=True)) for form in forms]
        if arms:
            sweep(Plan(arms, seeds, cache, is_final=True), Lab(options.folder / log), **how)

    score(baselines, FINAL_SEEDS)
    methods = [form.of_method for form in baselines]
    folds.run([form.unchanged for form in methods] + methods, FOLDS)
    for form in methods:
        print(f"{form.name}: {folds.gain(form, FOLDS):+.2f}", flush=True)
    taken = [form for form in methods if folds.gain(form, FOLDS) >= 0]
    score(taken, FINAL_SEEDS)
    if options.swapped:
        score([*baselines, *taken], OTHER_SEEDS, log="swapped.jsonl", cache=Cache.open(options.swapped))
    if options.rows:
        changes = {method.recipe: baseline for method, baseline in zip(methods, baselines, strict=True)}
        rows = [row for row in changed([options.rows]) if row.method in {form.recipe for form in taken}]
        score([row.changed_as(changes[row.method]) for row in rows], OTHER_SEEDS)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("weights")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arms", type=Path, nargs="+", required=True)
    parser.add_argument("--known", type=Path, nargs="*", default=[])
    parser.add_argument("--swapped", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--set", nargs="*", default=["backbone=resnet50_v1", AT_THE_END], dest="changes")
    try:
        decide_and_score(parser.parse_args(arguments))
    except (ValueError, OSError) as mistake:
        raise SystemExit(str(mistake)) from None


if __name__ == "__main__":
    main()
