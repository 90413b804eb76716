"""How far a score may be trusted: bootstrap intervals over queries, spread and paired differences over seeds.

The bootstrap is Efron's (1979) with percentile intervals; seeds are compared by Student's paired
t-test, for two methods trained with the same seeds on the same data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from idml.data.batches import check_between
from idml.progress import Progress, followed, no_progress

CONFIDENCE = 0.95
RESAMPLES = 1000
AT_ONCE = 1 << 22  # counts held at once: 32 MiB of float64

Statistic = Callable[[Float[Tensor, "b n"]], Float[Tensor, " b"]]  # from counts, the score of each resample


@dataclass(frozen=True)
class Interval:
    """Where a score lies, by all we know; NaN to NaN where it has no meaning in any resample."""

    low: float
    high: float


def bootstrap_counts(
    n: int, resamples: int = RESAMPLES, *, seed: int = 0, device: torch.device | str | None = None
) -> Iterator[Float[Tensor, "b n"]]:
    """How often each of n queries is drawn, with replacement, in each resample: some resamples at a time.

    Drawn on the CPU, so that a seed means the same on every device.
    """
    if n < 1 or resamples < 1:
        raise ValueError(f"{resamples} resamples of {n} queries: give at least one of each.")
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, AT_ONCE // n)
    one = torch.ones((), dtype=torch.float64).expand(n)
    for start in range(0, resamples, at_once):
        counts = torch.zeros(min(at_once, resamples - start), n, dtype=torch.float64)
        for row in counts:  # one alone stays in the cache, where scattering is fast
            row.scatter_add_(0, torch.randint(n, (n,), generator=generator), one)
        yield counts.to(device)


def bootstrap(
    statistics: Mapping[str, Statistic],
    n: int,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress = no_progress,
) -> dict[str, Interval]:
    """Percentile intervals of several scores, all from the same resamples of n queries.

    A statistic takes counts, as `partial(r_auroc, level, is_wrong)` does. Resamples in which it is NaN are left out.
    """
    check_between("confidence", confidence, 0.0, 1.0)
    scores: dict[str, list[Tensor]] = {name: [] for name in statistics}
    parts = -(-resamples // max(1, AT_ONCE // n))
    drawn = bootstrap_counts(n, resamples, seed=seed, device=device)
    for counts in followed(drawn, "intervals", progress, length=parts):
        for name, statistic in statistics.items():
            scores[name].append(statistic(counts))
    return {name: _percentiles(torch.cat(parts), confidence) for name, parts in scores.items()}


def interval_of_mean(
    values: Float[Tensor, " n"], *, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval:
    """The interval of the mean over queries: of Recall@K from what is found, of MAP@R from average precisions."""
    values = values.double()
    options = {"resamples": resamples, "confidence": confidence, "seed": seed, "device": values.device}
    return bootstrap({"mean": lambda counts: counts @ values / len(values)}, len(values), **options)["mean"]


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of a score over seeds; of a single one the deviation is not known, None."""

    mean: float
    standard_deviation: float | None
    number: int


def over_seeds(values: Sequence[float]) -> Spread:
    """One score a seed, summed up; the deviation is that of a sample, with n − 1.

    >>> over_seeds([1.0, 3.0])
    Spread(mean=2.0, standard_deviation=1.4142135623730951, number=2)
    """
    scores = _as_scores("values", values)
    if len(scores) == 0:
        raise ValueError("there are no values to sum up: give at least one.")
    deviation = float(scores.std()) if len(scores) > 1 else None
    return Spread(float(scores.mean()), deviation, len(scores))


@dataclass(frozen=True)
class Difference:
    """How much better one method is than another, with the 95 % interval of that.

    >>> print(Difference(mean=1.3, low=0.9, high=1.7, p_value=0.003, number=5))
    +1.3 ± 0.4 (95 % +0.9 to +1.7, p 0.003, 5 pairs)
    >>> print(Difference(mean=0.1, low=-0.2, high=0.4, p_value=0.4, number=3))
    +0.1 ± 0.3 (95 % -0.2 to +0.4, p 0.4, 3 pairs): inside the noise
    """

    mean: float
    low: float
    high: float
    p_value: float
    number: int

    @property
    def is_inside_noise(self) -> bool:
        """Whether the interval holds 0: there may be no difference."""
        return self.low <= 0 <= self.high

    def describe(self, *, scale: float = 1.0) -> str:
        """In words, with as many decimals as the interval deserves; scale=100 makes points of fractions."""
        mean, half, low, high = self._written(scale)
        words = f"{mean} ± {half} (95 % {low} to {high}, {self._chance}, {self.number} pairs)"
        return f"{words}: inside the noise" if self.is_inside_noise else words

    def brief(self, *, scale: float = 1.0) -> str:
        """For a table: the difference, half its 95 % interval, and p, or that it is inside the noise."""
        mean, half, *_ = self._written(scale)
        return f"{mean} ± {half}, {'inside the noise' if self.is_inside_noise else self._chance}"

    def _written(self, scale: float) -> tuple[str, str, str, str]:
        half = scale * (self.high - self.low) / 2
        size = half or abs(scale * self.mean) or 1.0
        decimals = max(1, -math.floor(math.log10(size)))
        mean, low, high = (f"{scale * value:+.{decimals}f}" for value in (self.mean, self.low, self.high))
        return mean, f"{half:.{decimals}f}", low, high

    @property
    def _chance(self) -> str:
        return "p < 0.001" if self.p_value < 0.001 else f"p {self.p_value:.2g}"

    def __str__(self) -> str:
        return self.describe()


def paired_difference(ours: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Student's paired t-test of ours − baseline, seed by seed.

    Where all pairs differ by the same the interval is a point, and p is 0, or 1 if they do not differ.
    """
    if len(ours) != len(baseline):
        raise ValueError(f"there are {len(ours)} scores of ours and {len(baseline)} of the baseline: give pairs.")
    if len(ours) < 2:
        raise ValueError(f"{len(ours)} pair cannot tell a difference from noise: give at least 2.")
    from scipy.stats import t as student

    gaps = _as_scores("ours", ours) - _as_scores("baseline", baseline)
    mean, error = float(gaps.mean()), float(gaps.std()) / math.sqrt(len(gaps))
    half = error * float(student.isf((1 - CONFIDENCE) / 2, len(gaps) - 1))
    p_value = 2 * float(student.sf(abs(mean) / error, len(gaps) - 1)) if error else float(mean == 0)
    return Difference(mean, mean - half, mean + half, p_value, len(gaps))


def _percentiles(scores: Float[Tensor, " b"], confidence: float) -> Interval:
    """The middle share of the scores that are no NaN."""
    known = scores[~scores.isnan()].double()
    if len(known) == 0:
        return Interval(math.nan, math.nan)
    tail = (1 - confidence) / 2
    low, high = known.quantile(known.new_tensor([tail, 1 - tail])).tolist()
    return Interval(low, high)


def _as_scores(name: str, values: Sequence[float]) -> Float[Tensor, " n"]:
    scores = torch.tensor([float(value) for value in values], dtype=torch.float64)
    for place, score in enumerate(scores.tolist()):
        if not math.isfinite(score):
            raise ValueError(f"{name}[{place}] is {score}: leave that seed out, on both sides of a comparison.")
    return scores
