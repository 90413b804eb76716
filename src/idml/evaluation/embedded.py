"""Embedded images as a file: what a model made of them, their classes, and where the pictures are.

`.npz` is what numpy users have, `.safetensors` what reads fastest, memory-mapped. Both hold
`semantic` (n, d), `labels` (n,), and may hold `uncertainty` (n, e), the levels of changed images as
`changed/blur/0.5` (n,), and a gallery under `gallery/…`; class names, image paths and the folder that
these start from are text, `class_names`, `images` and `image_root`, in the one and JSON in the header of the other.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from idml.atomic import writing
from idml.embedding import Embedding
from idml.evaluation.inputs import as_class_numbers, as_tensor
from idml.tensors import save_tensors

ALIASES = {"semantic": ("embeddings", "embedding", "features"), "labels": ("label", "targets", "y")}
IN_A_RUN = ("embeddings.safetensors", "embeddings.npz")  # where a trained run keeps those of its test images
GALLERY = "gallery/"
TEXTS = ("class_names", "images", "image_root", "gallery/images")
CHANGED = "changed/"
Arrays = Mapping[str, Any]  # numpy arrays or tensors by name; text arrays as lists


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedded:
    """Images with their embeddings and class numbers.

    class_names: by class number. images: paths, one an image, or names in a prepared cache. image_root: the
    folder that these paths start from, or that cache. changed_levels: of the same images made ambiguous, by
    kind and degree, NaN where it was not tried. gallery: what they are searched in, if not in each other.
    """

    embedding: Embedding
    labels: Int[Tensor, " n"]
    class_names: list[str] | None = None
    images: list[str] | None = None
    image_root: str | None = None
    changed_levels: dict[str, dict[float, Float[Tensor, " n"]]] = field(default_factory=dict)
    gallery: Embedded | None = None

    def __post_init__(self):
        number = len(self.embedding)
        columns = {"labels": self.labels, "images": self.images}
        for kind, levels in self.changed_levels.items():
            columns |= {f"{CHANGED}{kind}/{degree:g}": level for degree, level in levels.items()}
        for name, values in columns.items():
            if values is not None and len(values) != number:
                raise ValueError(f"there are {number} embeddings and {len(values)} {name}: give each image one.")
            if isinstance(values, Tensor) and values.ndim != 1:
                raise ValueError(f"{name} has shape {tuple(values.shape)}: give one number an image, ({number},).")

    def save(self, path: Path | str) -> None:
        """Write all of it, in the format that the file's ending names."""
        path = Path(path)
        save = _format(path)[1]
        with writing(path) as unfinished:
            save(unfinished, self._arrays())

    @classmethod
    def load(cls, path: Path | str, *, needs_labels: bool = True) -> Embedded:
        """Read a file, or the embeddings that a trained run left in its folder.

        needs_labels: if not, images without labels are all of class 0, as where they are only told from others.
        """
        path = Path(path)
        if path.is_dir():
            path = _in_run(path)
        if not path.exists():
            raise ValueError(f"there is no file {path}: give an .npz or .safetensors file, or a trained run's folder.")
        arrays = _format(path)[0](path)
        try:
            of_gallery = {name.removeprefix(GALLERY): part for name, part in arrays.items() if name.startswith(GALLERY)}
            if not needs_labels and not any(name in arrays for name in ("labels", *ALIASES["labels"])):
                arrays = {**arrays, "labels": np.zeros(len(_find(arrays, "semantic")), dtype=np.int64)}
            return _from_arrays(arrays, of_gallery)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def _arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"semantic": self.embedding.semantic, "labels": self.labels}
        if self.embedding.uncertainty is not None:
            arrays["uncertainty"] = self.embedding.uncertainty
        for kind, levels in self.changed_levels.items():
            arrays |= {f"{CHANGED}{kind}/{degree:g}": level for degree, level in levels.items()}
        texts = {"class_names": self.class_names, "images": self.images, "image_root": self.image_root}
        arrays |= {name: text for name, text in texts.items() if text is not None}
        if self.gallery is not None:
            arrays |= {GALLERY + name: part for name, part in self.gallery._arrays().items() if name != "class_names"}
        return arrays


def _from_arrays(arrays: Arrays, of_gallery: Arrays) -> Embedded:
    class_names = _text(arrays, "class_names")
    own = _find(arrays, "labels")
    theirs = _find(of_gallery, "labels", place=GALLERY) if of_gallery else None
    labels, gallery_labels, called = as_class_numbers(own, theirs)
    are_names = np.asarray(own).dtype.kind in "US"
    if class_names is None:
        class_names = called
    else:
        called = _as_numbers(called, class_names, are_names=are_names)
        labels, gallery_labels = called[labels], None if gallery_labels is None else called[gallery_labels]
    gallery = None
    if gallery_labels is not None:
        gallery = Embedded(embedding=_embedding(of_gallery), labels=gallery_labels, images=_text(of_gallery, "images"))
    changed: dict[str, dict[float, Tensor]] = {}
    for name in (name for name in arrays if name.startswith(CHANGED)):
        kind, _, degree = name.removeprefix(CHANGED).rpartition("/")
        if not kind or not _is_number(degree):
            raise ValueError(f"{name!r} names no change: call it {CHANGED}KIND/DEGREE, such as {CHANGED}blur/0.5.")
        changed.setdefault(kind, {})[float(degree)] = as_tensor(arrays[name], name=name)
    return Embedded(
        embedding=_embedding(arrays),
        labels=labels,
        class_names=class_names,
        images=_text(arrays, "images"),
        image_root=str(arrays["image_root"]) if "image_root" in arrays else None,
        changed_levels=changed,
        gallery=gallery,
    )


def _embedding(arrays: Arrays) -> Embedding:
    semantic = as_tensor(_find(arrays, "semantic"), name="semantic")
    uncertainty = arrays.get("uncertainty")
    return Embedding(semantic, None if uncertainty is None else as_tensor(uncertainty, name="uncertainty"))


def _find(arrays: Arrays, name: str, *, place: str = "") -> Any:
    for known in (name, *ALIASES[name]):
        if known in arrays:
            return arrays[known]
    held = ", ".join(sorted(arrays)) or "nothing"
    raise ValueError(f"there is no '{place}{name}' in it, but {held}. Save the {name} under that name.")


def _text(arrays: Arrays, name: str) -> list[str] | None:
    return None if name not in arrays else [str(part) for part in arrays[name]]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _as_numbers(called: list[str], class_names: list[str], *, are_names: bool) -> Int[Tensor, " c"]:
    """The class number of each label: the place of its name, or the label itself, for a class may be called "7" too."""
    places = {name: place for place, name in enumerate(class_names)}
    numbers = []
    for label in called:
        number = places.get(label, -1) if are_names else int(label)
        if not 0 <= number < len(class_names):
            raise ValueError(f"label {label!r} is none of the {len(class_names)} class names: number classes from 0.")
        numbers.append(number)
    return torch.tensor(numbers, dtype=torch.long)


def _in_run(folder: Path) -> Path:
    for name in IN_A_RUN:
        if (folder / name).exists():
            return folder / name
    raise ValueError(f"the folder {folder} holds no {' or '.join(IN_A_RUN)}: give a finished run, or a file.")


def _load_npz(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = "it holds objects" if "Object arrays" in str(error) else "it is broken, or something else"
        raise ValueError(f"{path} cannot be read as .npz, {reason}: save plain arrays with numpy.savez.") from None


def _save_npz(path: Path, arrays: Arrays) -> None:
    as_numpy = {name: _numpy(part) if isinstance(part, Tensor) else np.array(part) for name, part in arrays.items()}
    np.savez(path, allow_pickle=False, **as_numpy)


def _numpy(tensor: Tensor) -> np.ndarray:
    """numpy has no bfloat16; float32 holds it exactly."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def _load_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            arrays: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            texts = file.metadata() or {}
            return arrays | {name: json.loads(texts[name]) for name in TEXTS if name in texts}
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read as .safetensors ({error}): was its writing interrupted?") from None


def _save_safetensors(path: Path, arrays: Arrays) -> None:
    tensors = {name: part for name, part in arrays.items() if isinstance(part, Tensor)}
    texts = {name: json.dumps(part) for name, part in arrays.items() if not isinstance(part, Tensor)}
    save_tensors(path, tensors, texts=texts)


Format = tuple[Callable[[Path], dict[str, Any]], Callable[[Path, Arrays], None]]
FORMATS: dict[str, Format] = {
    ".npz": (_load_npz, _save_npz),
    ".safetensors": (_load_safetensors, _save_safetensors),
}


def _format(path: Path) -> Format:
    if path.suffix not in FORMATS:
        raise ValueError(f"{path} ends in {path.suffix!r}: give a file that ends in {' or '.join(FORMATS)}.")
    return FORMATS[path.suffix]
