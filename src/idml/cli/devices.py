"""Which device the command works on."""

from dataclasses import replace

import torch

from idml.embedding import Embedding
from idml.evaluation.embedded import Embedded


def chosen_device(name: str) -> torch.device:
    """The device of that name; "auto" is the first GPU, if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(
            f"device {name!r} is not here: use --device cpu, or cuda or mps with a PyTorch that has it."
        ) from None
    return device


def moved(embedded: Embedded, device: torch.device) -> Embedded:
    """The same images, their embeddings on the device."""
    s, u = embedded.embedding.semantic.to(device), embedded.embedding.uncertainty
    gallery = None if embedded.gallery is None else moved(embedded.gallery, device)
    return replace(embedded, embedding=Embedding(s, None if u is None else u.to(device)), gallery=gallery)
