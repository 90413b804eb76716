"""The numbers that the paper prints (Introspective Deep Metric Learning, TPAMI 2023), to hold ours against.

From its main tables (the seven losses, plain and with all of IDML) and its table of components (margin and
ProxyAnchor with one part each), in percent. The main tables have a deviation, over runs whose number the paper does
not give; the table of components has none. Its Stanford Online Products has no other recall than that at 1.
"""

from __future__ import annotations

from typing import NamedTuple

from idml.errors import unknown_name
from idml.losses import LOSSES

MAIN = ("recall@1", "recall@2", "nmi", "r_precision", "map_at_r")  # its columns, by the names of our own scores
SHORT = ("recall@1", "nmi", "r_precision", "map_at_r")  # of Stanford Online Products, and of the table of components


class Printed(NamedTuple):
    """A score in percent as the paper has it, and its deviation, None where none is printed."""

    value: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.1f}" if self.deviation is None else f"{self.value:.1f} ± {self.deviation:.1f}"


def printed(dataset: str, loss: str, row: str) -> dict[str, Printed] | None:
    """What the paper has for a loss on a dataset, by the names of our scores; None where it has nothing.

    row: "plain", "mixup", "introspective" (its metric alone), "both" (IDML), and "pel" and "pel_mixup", probabilistic
    embeddings (Oh et al., ICLR 2019) without and with Mixup; any other has nothing.

    >>> str(printed("cub200", "proxy_anchor", "both")["recall@1"])
    '70.7 ± 0.1'
    >>> printed("cub200", "triplet", "mixup") is None
    True
    """
    if dataset not in TABLES:
        raise unknown_name("dataset of the paper", dataset, TABLES)
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    text = TABLES[dataset].get(loss, {}).get(row)
    if text is None:
        return None
    cells = text.split()
    names = MAIN if len(cells) == len(MAIN) else SHORT
    return {name: Printed(*map(float, cell.split("±"))) for name, cell in zip(names, cells, strict=True)}


# dataset, as `idml prepare` names it; loss; row; then the scores, in the order of MAIN or SHORT
TABLES: dict[str, dict[str, dict[str, str]]] = {
    "cub200": {
        "contrastive": {
            "plain": "65.6±0.1 76.5±0.1 68.9±0.2 36.5±0.2 24.7±0.1",
            "both": "67.2±0.0 77.6±0.1 71.3±0.1 37.5±0.2 25.7±0.2",
        },
        "margin": {
            "plain": "65.9±0.2 77.0±0.2 69.5±0.1 36.0±0.4 24.9±0.3",
            "mixup": "67.1 71.6 36.7 25.5",
            "introspective": "67.0 71.4 36.9 25.7",
            "pel": "63.3 67.1 34.6 24.2",
            "pel_mixup": "64.5 68.6 35.3 24.7",
            "both": "67.9±0.1 78.3±0.2 72.1±0.1 37.2±0.3 26.1±0.4",
        },
        "triplet": {
            "plain": "63.6±0.1 75.5±0.2 67.9±0.1 35.1±0.4 24.0±0.2",
            "both": "65.3±0.2 76.5±0.2 69.5±0.1 36.2±0.2 25.0±0.3",
        },
        "multi_similarity": {
            "plain": "67.3±0.3 78.2±0.2 72.7±0.3 36.6±0.2 25.5±0.4",
            "both": "69.0±0.2 79.5±0.3 73.5±0.1 38.5±0.6 27.2±0.7",
        },
        "proxy_nca": {
            "plain": "64.6±0.3 75.6±0.3 69.1±0.4 35.5±0.3 24.7±0.6",
            "both": "66.0±0.1 76.4±0.3 70.1±0.2 36.5±0.3 25.4±0.1",
        },
        "proxy_anchor": {
            "plain": "69.0±0.1 79.4±0.1 72.3±0.1 38.5±0.2 27.5±0.3",
            "mixup": "69.8 73.0 39.1 28.1",
            "introspective": "69.5 73.1 38.9 28.0",
            "pel": "64.9 67.1 34.5 23.7",
            "pel_mixup": "65.7 68.0 35.6 24.7",
            "both": "70.7±0.1 80.2±0.2 73.5±0.1 39.3±0.4 28.4±0.3",
        },
        "fast_ap": {
            "plain": "65.1±0.5 75.4±0.4 68.5±0.4 35.9±0.9 24.1±0.6",
            "both": "66.4±0.3 76.4±0.2 69.7±0.3 36.7±0.4 25.5±0.4",
        },
    },
    "cars196": {
        "contrastive": {
            "plain": "82.7±0.2 89.6±0.1 69.5±0.2 35.8±0.3 25.7±0.2",
            "both": "85.5±0.1 91.5±0.2 72.5±0.1 38.8±0.1 29.0±0.3",
        },
        "margin": {
            "plain": "82.6±0.4 88.7±0.6 69.3±0.3 36.4±1.1 26.5±0.8",
            "mixup": "84.7 72.4 38.0 28.0",
            "introspective": "84.4 71.9 37.9 28.1",
            "pel": "80.4 67.1 34.8 25.5",
            "pel_mixup": "82.3 68.9 35.9 26.1",
            "both": "86.1±0.7 91.7±1.0 73.0±0.8 39.2±0.8 29.7±1.3",
        },
        "triplet": {
            "plain": "70.8±0.2 81.7±0.3 64.8±0.2 31.7±0.3 21.1±0.6",
            "both": "73.7±0.1 84.0±0.1 67.3±0.1 33.8±0.4 24.1±0.2",
        },
        "multi_similarity": {
            "plain": "83.3±0.1 90.9±0.3 72.2±0.4 37.4±0.2 27.4±0.3",
            "both": "86.3±0.2 92.2±0.4 74.1±0.5 40.0±0.5 30.8±0.4",
        },
        "proxy_nca": {
            "plain": "82.6±0.2 89.0±0.1 66.4±0.2 33.5±0.3 23.5±0.2",
            "both": "85.5±0.2 91.3±0.2 69.0±0.1 36.1±0.3 26.4±0.4",
        },
        "proxy_anchor": {
            "plain": "87.3±0.0 92.7±0.1 75.7±0.1 40.9±0.2 31.8±0.1",
            "mixup": "88.5 75.8 41.0 32.1",
            "introspective": "88.8 75.8 41.2 32.2",
            "pel": "83.4 66.4 34.4 24.9",
            "pel_mixup": "84.5 66.6 34.6 25.1",
            "both": "90.6±0.1 94.5±0.1 76.9±0.1 42.6±0.2 33.8±0.4",
        },
        "fast_ap": {
            "plain": "81.6±0.3 88.5±0.4 68.8±0.3 35.1±0.5 25.2±0.6",
            "both": "83.9±0.4 89.9±0.5 71.9±0.3 36.5±0.7 26.7±0.5",
        },
    },
    "products": {
        "contrastive": {
            "plain": "76.4±0.1 88.9±0.1 50.9±0.1 47.9±0.2",
            "both": "77.3±0.0 90.0±0.1 51.7±0.2 48.5±0.1",
        },
        "margin": {
            "plain": "78.5±0.3 90.1±0.2 53.4±0.3 50.2±0.3",
            "mixup": "79.1 90.5 53.6 50.4",
            "introspective": "78.9 90.4 53.6 50.3",
            "pel": "76.4 88.7 51.2 48.7",
            "pel_mixup": "77.2 89.4 52.1 49.3",
            "both": "79.4±0.2 91.0±0.1 53.7±0.3 50.4±0.2",
        },
        "triplet": {
            "plain": "76.5±0.2 89.7±0.1 51.3±0.1 48.4±0.2",
            "both": "77.4±0.1 90.1±0.1 51.9±0.3 49.0±0.2",
        },
        "multi_similarity": {
            "plain": "78.1±0.2 89.9±0.2 52.9±0.1 49.9±0.3",
            "both": "79.7±0.1 91.2±0.1 53.7±0.2 50.9±0.3",
        },
        "proxy_nca": {
            "plain": "77.0±0.2 89.5±0.2 51.9±0.4 49.0±0.2",
            "both": "78.3±0.2 89.9±0.3 53.0±0.2 49.9±0.2",
        },
        "proxy_anchor": {
            "plain": "79.5±0.1 91.0±0.0 53.7±0.1 50.5±0.1",
            "mixup": "80.6 91.8 54.4 50.7",
            "introspective": "80.3 91.8 54.3 50.9",
            "pel": "76.8 89.7 51.8 48.7",
            "pel_mixup": "77.9 90.5 52.6 49.9",
            "both": "81.5±0.2 92.3±0.1 54.8±0.2 51.3±0.3",
        },
        "fast_ap": {
            "plain": "75.9±0.6 89.7±0.4 50.1±0.7 46.8±0.6",
            "both": "76.8±0.4 90.9±0.4 50.9±0.6 47.9±0.6",
        },
    },
}
