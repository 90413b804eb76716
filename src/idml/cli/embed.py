"""`idml embed`: images in, embeddings with their uncertainty out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from idml.cli.devices import chosen_device
from idml.cli.progress import Stages
from idml.data.cache import named
from idml.data.sources.records import IMAGE_SUFFIXES, is_image
from idml.embedding import Embedding
from idml.evaluation.embedded import FORMATS, Embedded
from idml.evaluation.inputs import as_class_numbers
from idml.models.embedder import Embedder

PARQUET = ".parquet"


def embed(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that trained it.")],
    images: Annotated[
        list[Path], typer.Argument(help="Images, folders of them (searched through), or .txt lists, one path a line.")
    ],
    output: Annotated[
        Path, typer.Option(help="File to write: .npz, .safetensors, or .parquet (pip install 'idml[parquet]').")
    ] = Path("embeddings.npz"),
    batch: Annotated[int, typer.Option(min=1, help="Images at once.")] = 64,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Embed images: ids (their paths), semantic and uncertainty embeddings, and the level of each.

    The name of the folder that an image lies in is taken for its class, so that `idml evaluate` can score
    the result.
    """
    if output.suffix not in (*FORMATS, PARQUET):
        raise ValueError(f"--output {output} ends in {output.suffix!r}: give {', '.join(FORMATS)} or {PARQUET}.")
    if output.suffix == PARQUET:
        _check_parquet()
    paths = found_images(images)
    with Stages(is_quiet=as_json) as stages:
        stages.begin(f"{len(paths):,} images")
        network = Embedder.load(model).to(chosen_device(device))
        problems: dict[Path | str, str] | None = {} if skip_bad else None
        embedding = network.embed_files(paths, batch=batch, problems=problems, progress=stages.progress)
        if problems:
            stages.say(f"left out {named(list(map(str, problems)), what='image')} that cannot be read")
            paths = [path for path in paths if path not in problems]
        write(output, paths, embedding)
        stages.say(f"wrote {output}: {len(paths):,} images")
    if as_json:
        typer.echo(json.dumps({"output": str(output), "images": len(paths)}))


def found_images(places: list[Path]) -> list[Path]:
    """All image files that these name, in order, each once."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(path for path in place.rglob("*") if is_image(path))
        elif place.suffix == ".txt" and place.exists():
            found += _listed(place)
        else:
            found.append(place)
    for path in found:
        if not path.is_file():
            raise ValueError(f"there is no image {path}: give images, folders of images, or .txt lists of paths.")
    if not found:
        raise ValueError(
            f"there are no images in {', '.join(map(str, places))}: {', '.join(sorted(IMAGE_SUFFIXES))} are known."
        )
    return list(dict.fromkeys(found))


def _listed(place: Path) -> list[Path]:
    try:
        return [Path(line) for line in place.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise ValueError(f"{place} is not in UTF-8: save it as such.") from None


def write(output: Path, paths: list[Path], embedding: Embedding) -> None:
    if output.suffix == PARQUET:
        _write_parquet(output, paths, embedding)
        return
    labels, _, names = as_class_numbers([path.parent.name for path in paths])
    images = [str(path.resolve()) for path in paths]
    Embedded(embedding=embedding, labels=labels, class_names=names, images=images).save(output)


def _write_parquet(output: Path, paths: list[Path], embedding: Embedding) -> None:
    import pyarrow  # pyright: ignore[reportMissingImports]
    import pyarrow.parquet  # pyright: ignore[reportMissingImports]

    from idml.atomic import writing

    columns = {"id": [str(path) for path in paths], "semantic": embedding.semantic.cpu().tolist()}
    if embedding.uncertainty is not None:
        columns |= {"uncertainty": embedding.uncertainty.cpu().tolist(), "level": embedding.level.cpu().tolist()}
    with writing(output) as unfinished:
        pyarrow.parquet.write_table(pyarrow.table(columns), unfinished)


def _check_parquet() -> None:
    """Before hours of work, not after."""
    try:
        import pyarrow.parquet  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ValueError(".parquet needs pyarrow: pip install 'idml[parquet]', or write .npz.") from None
