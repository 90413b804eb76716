"""Stanford Cars (Krause et al., 2013), as Cars196: classes 1 to 98 train, 99 to 196 test (Song et al., CVPR 2016).

The first release lists all images in cars_annos.mat; the later one in two files of its devkit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idml.data.sources.records import Record, Source, check_counts, file_records, first_holding
from idml.data.splits import TEST, TRAIN

TITLE = "Cars196"
EXPECTED = {TRAIN: 8_054, TEST: 8_131}
TRAINING_CLASSES = 98
ALL, ALL_IMAGES = "cars_annos.mat", 16_185
TRAIN_LIST, TEST_LIST, META = "cars_train_annos.mat", "cars_test_annos_withlabels.mat", "cars_meta.mat"
BELOW = ("devkit", "car_devkit/devkit", "stanford_cars")
FOLDERS = {TRAIN_LIST: "cars_train", TEST_LIST: "cars_test"}


def recognises(folder: Path) -> bool:
    return first_holding(folder, ALL) is not None or first_holding(folder, TRAIN_LIST, BELOW) is not None


def records(folder: Path, *, expected: Mapping[str, int] = EXPECTED) -> list[Record]:
    """As the annotations list them: car_ims/000001.jpg, or cars_train/00001.jpg and cars_test/00001.jpg."""
    listed: list[tuple[str, int]] = []
    if (folder / ALL).exists():
        content = _matlab(folder / ALL)
        names = _class_names(content)
        listed = [(str(one.relative_im_path), int(getattr(one, "class"))) for one in content["annotations"].flat]
    else:
        names = _class_names(_matlab(_place(folder, META)))
        for file, images in FOLDERS.items():
            annotations = _matlab(_place(folder, file))["annotations"]
            listed += [(f"{images}/{one.fname}", int(getattr(one, "class"))) for one in annotations.flat]
    listed.sort(key=lambda one: (one[1], one[0]))
    rows = [(name, names[number - 1], TRAIN if number <= TRAINING_CLASSES else TEST) for name, number in listed]
    found, missing = file_records(folder, rows)
    check_counts(TITLE, found, expected, missing=missing)
    return found


def _place(folder: Path, file: str) -> Path:
    root = first_holding(folder, file, BELOW)
    if root is None:
        raise ValueError(f"{folder} holds no {file}, neither in itself nor in {', '.join(BELOW)}: add that of {TITLE}.")
    return root / file


def _matlab(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return loadmat(path, squeeze_me=True, struct_as_record=False)
    except (MatReadError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"{path} cannot be read as MATLAB data ({error}): download it again.") from None


def _class_names(content: dict[str, Any]) -> list[str]:
    return [f"{number:03}.{name}" for number, name in enumerate(content["class_names"].flat, start=1)]


SOURCE = Source(title=TITLE, looked_for=f"{ALL}, or {TRAIN_LIST}", recognises=recognises, records=records)
