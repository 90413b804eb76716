"""Where images come from: one file a kind of dataset on disk. SOURCES names them, the more particular first."""

from pathlib import Path

from idml.data.sources import cars, cifar, cub, folders, inshop, products, tables, tars
from idml.data.sources.records import Record, Source, is_image
from idml.errors import unknown_name

__all__ = ["SOURCES", "Record", "Source", "find_source"]

SOURCES: dict[str, Source] = {
    "cub200": cub.SOURCE,
    "cars196": cars.SOURCE,
    "products": products.SOURCE,
    "inshop": inshop.SOURCE,
    "cifar10": cifar.SOURCE_10,
    "cifar100": cifar.SOURCE_100,
    "cub200-tar": tars.BIRDS,
    "tar": tars.SOURCE,
    "csv": tables.SOURCE,
    "folder": folders.SOURCE,
}


def find_source(place: Path, *, kind: str | None = None) -> str:
    """The kind of the dataset at this place: the first that recognises it, unless it is given."""
    if not place.exists():
        raise ValueError(f"there is no {place}: give the folder, .csv or .tar of a dataset.")
    if kind is not None:
        if kind not in SOURCES:
            raise unknown_name("kind of dataset", kind, SOURCES)
        if not SOURCES[kind].recognises(place):
            raise ValueError(f"{place} is not {SOURCES[kind].title}: looked for {SOURCES[kind].looked_for}.")
        return kind
    for name, source in SOURCES.items():
        if source.recognises(place):
            return name
    if place.is_file():
        raise ValueError(f"{place} is no dataset that is known: give a .csv or .tar, or a folder.")
    if any(is_image(path) for path in place.iterdir()):
        raise ValueError(f"{place} holds images, and no folders of them: put those of each class into one of its own.")
    wanted = "give a folder with one folder of images a class"
    if not any(path.is_file() for path in place.rglob("*")):
        raise ValueError(f"{place} is empty: {wanted}.")
    kinds = ", ".join(SOURCES)
    raise ValueError(
        f"{place} holds no dataset that is known ({kinds}): {wanted}, or tell `idml prepare` with --kind what it is, "
        "and hear what is missing."
    )
