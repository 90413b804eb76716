"""Queries in order of a value, equal values together, and sums over them for many resamples at once.

The order is found once; a resample only changes how often each query counts. So scores that depend
on the order cost a few passes over the counts, and no sorting, for each resample.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

Counts = Float[Tensor, "b n"]  # how often each query is drawn in each of b resamples
Score = Float[Tensor, ""] | Float[Tensor, " b"]  # of the queries as they are, or of every resample


@dataclass(frozen=True, eq=False)
class Ordering:
    """Queries in the order of rising values; those of equal value are one group."""

    order: Int[Tensor, " n"]
    last: Int[Tensor, " g"]  # the place in `order` at which each group ends
    group: Int[Tensor, " n"]  # of each query

    @classmethod
    def of(cls, values: Shaped[Tensor, " n"]) -> Ordering:
        if values.isnan().any():
            row = int(values.isnan().nonzero()[0])
            raise ValueError(f"the value of query {row} is NaN: leave it out, or look for a diverged model.")
        ordered, order = values.sort(stable=True)
        is_last = torch.ones_like(order, dtype=torch.bool)
        is_last[:-1] = ordered[1:] != ordered[:-1]
        group = torch.empty_like(order)
        group[order] = is_last.cumsum(dim=0) - is_last.long()
        return cls(order, is_last.nonzero()[:, 0], group)

    def totals(self, drawn: Counts, values: Shaped[Tensor, " n"]) -> tuple[Float[Tensor, "b g"], Float[Tensor, "b g"]]:
        """For each group, by rising value: how many queries are drawn, and the sum of other values over these."""
        ordered = _columns(drawn, self.order)
        return self._by_group(ordered), self._by_group(ordered * values[self.order])

    def centred_ranks(self, drawn: Counts) -> Float[Tensor, "b n"]:
        """The rank of each query less the mean rank, equal values at the middle of their ranks."""
        number = self._by_group(_columns(drawn, self.order))
        upto = number.cumsum(dim=1)
        return _columns(upto - number / 2 - upto[:, -1:] / 2, self.group)

    def _by_group(self, ordered: Float[Tensor, "b n"]) -> Float[Tensor, "b g"]:
        if len(self.last) == len(self.order):
            return ordered
        return _columns(ordered.cumsum(dim=1), self.last).diff(dim=1, prepend=ordered.new_zeros(len(ordered), 1))


def among_first(
    first: Float[Tensor, "b k"], number: Float[Tensor, "b g"], sums: Float[Tensor, "b g"]
) -> Float[Tensor, "b k"]:
    """The sum over the first so many queries, from the number in each group and the sum over it.

    Inside a group the sum grows evenly: its mean over all orders of the group.
    """
    upto = number.cumsum(dim=1)
    group = torch.searchsorted(upto, first).clamp_(max=number.shape[1] - 1)
    left_over = upto.gather(1, group) - first
    rate = sums.gather(1, group) / number.gather(1, group)
    return sums.cumsum(dim=1).gather(1, group) - left_over * rate


def drawn_queries(values: Shaped[Tensor, " n"], others: Shaped[Tensor, " n"], counts: Counts | None) -> Counts:
    """How often each query counts, in float64: once, in a single sample, where there are no resamples.

    values, others: what is known of the queries, one of each for every query.
    """
    if values.ndim != 1 or values.shape != others.shape:
        shapes = f"{tuple(values.shape)} and {tuple(others.shape)}"
        raise ValueError(f"the values of the queries have shapes {shapes}: give two of shape (queries,).")
    if len(values) == 0:
        raise ValueError("there are no queries to judge: give at least one.")
    if counts is None:
        return torch.ones(1, len(values), dtype=torch.float64, device=values.device)
    if counts.ndim != 2 or counts.shape[1] != len(values):
        raise ValueError(f"counts have shape {tuple(counts.shape)}: give (resamples, {len(values)}).")
    return counts.double()


def as_asked(scores: Float[Tensor, " b"], counts: Counts | None) -> Score:
    """The score of the single sample, or those of all resamples."""
    return scores[0] if counts is None else scores


def _columns(values: Float[Tensor, "b n"], index: Int[Tensor, " k"]) -> Float[Tensor, "b k"]:
    """values[:, index]; on the CPU, `gather` is eight times as fast."""
    return values.gather(1, index.expand(len(values), -1))
