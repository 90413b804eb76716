"""Recipes with changes, as forms of a loss are asked about: of its plain baseline, and of the method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from idml.recipes import recipe
from idml.sweeping.space import SEEDS, Arm, arms_of_recipes

PLAIN = "-plain"


@dataclass(frozen=True)
class Form:
    """A recipe with changes."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()

    @property
    def loss(self) -> str:
        return recipe(self.recipe).objective.loss

    @property
    def unchanged(self) -> "Form":
        return replace(self, name=self.recipe, changes=())

    @property
    def method(self) -> str:
        """The recipe of which this one is the baseline, or is itself."""
        return self.recipe.removesuffix(PLAIN)

    @property
    def of_method(self) -> "Form":
        """The method with the same changes."""
        return Form(self.name.replace("plain", "both", 1), self.method).changed_as(self)

    def changed_as(self, other: "Form") -> "Form":
        """With the changes of the other form as well; uncertainty keeps its rate."""
        before = recipe(self.recipe).with_changes(self.changes)
        after = before.with_changes(other.changes)
        factor = before.optimiser.uncertainty_factor * before.optimiser.lr / after.optimiser.lr
        is_kept = after.optimiser.lr == before.optimiser.lr or not after.objective.introspective
        kept = () if is_kept else (f"uncertainty_factor={factor:.12g}",)
        return replace(self, changes=(*self.changes, *other.changes, *kept))

    def arm(self, common: Sequence[str], validation: Mapping[str, Any]) -> Arm:
        (arm,) = arms_of_recipes([self.recipe], [*common, *self.changes], validation=validation)
        return replace(arm, name=self.name)


def forms_of_file(path: Path) -> list[Form]:
    """Lines `NAME: RECIPE CHANGE …`, # for comments; how many seeds a line has is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name, colon, words = line.partition("#")[0].partition(":")
        if colon:
            base, *changes = (word for word in words.split() if not word.startswith(SEEDS))
            found.append(Form(name.strip(), base, tuple(changes)))
    return found
