"""Uncertainty-aware image retrieval: Introspective Deep Metric Learning (TPAMI 2023)."""

from idml.embedding import Embedding
from idml.evaluation.judging import evaluate
from idml.models.embedder import Embedder
from idml.objective import Objective
from idml.pairs import Pairs

__all__ = ["Embedder", "Embedding", "Objective", "Pairs", "evaluate"]
__version__ = "0.1.0"
