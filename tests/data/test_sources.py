import os
import pickle
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pictures import class_folders, picture, save
from PIL import Image

from idml.data.decoder import decode_stored
from idml.data.sources import SOURCES, cars, cifar, cub, find_source, folders, inshop, products, tables, tars
from idml.data.sources.records import Record

BIRDS = ["001.Black_footed_Albatross", "100.Brown_Pelican", "101.White_Pelican", "200.Common_Yellowthroat"]


def counts(records: list[Record]) -> dict[str, int]:
    return dict(Counter(record.split for record in records))


def pixels(record: Record) -> np.ndarray:
    found = decode_stored(record.stored, size=20, square=False)
    assert found.problem is None
    return np.frombuffer(found.pixels, dtype=np.uint8).reshape(found.height, found.width, 3)


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def cub_folder(root: Path) -> Path:
    names = [f"{bird}/{bird[4:]}_{number:04}.png" for bird in BIRDS for number in range(2)]
    for seed, name in enumerate(names):
        save(root / "CUB_200_2011" / "images" / name, seed=seed)
    write(root / "CUB_200_2011" / "images.txt", [f"{place} {name}" for place, name in enumerate(names, start=1)])
    labels = [f"{place} {int(name[:3])}" for place, name in enumerate(names, start=1)]
    write(root / "CUB_200_2011" / "image_class_labels.txt", labels)
    return root


def matlab(path: Path, annotations: list[tuple[str, int]], field: str) -> None:
    from scipy.io import savemat

    kind = [(field, object), ("class", object)]
    path.parent.mkdir(parents=True, exist_ok=True)
    class_names = np.array([f"Car {number}" for number in range(1, 197)], dtype=object)
    savemat(path, {"annotations": np.array(annotations, dtype=kind)[None], "class_names": class_names[None]})


def cars_folder(root: Path) -> Path:
    """The first release: all in one file."""
    listed = [(f"car_ims/{number:06}.png", label) for number, label in enumerate([196, 1, 98, 99], start=1)]
    for seed, (name, _) in enumerate(listed):
        save(root / name, seed=seed)
    matlab(root / "cars_annos.mat", listed, "relative_im_path")
    return root


def cars_devkit(root: Path) -> Path:
    """The later release: the official training and test images, whose classes are the same."""
    for folder, file in cars.FOLDERS.items():
        listed = [(f"{number:05}.png", label) for number, label in enumerate([98, 99], start=1)]
        for seed, (name, _) in enumerate(listed):
            save(root / file / name, seed=seed)
        matlab(root / "devkit" / folder, listed, "fname")
    matlab(root / "devkit" / cars.META, [], "fname")
    return root


def products_folder(root: Path) -> Path:
    for first, (split, labels) in zip((1, 4), (("train", [1, 1, 2]), ("test", [3, 3])), strict=True):
        lines = ["image_id class_id super_class_id path"]
        for number, label in enumerate(labels, start=first):
            save(root / "Stanford_Online_Products" / "chair_final" / f"{label}_{number}.png", seed=number)
            lines.append(f"{number} {label} 1 chair_final/{label}_{number}.png")
        write(root / "Stanford_Online_Products" / f"Ebay_{split}.txt", lines)
    return root


def inshop_folder(root: Path) -> Path:
    lines = ["4", "image_name item_id evaluation_status"]
    for number, (item, split) in enumerate(
        [("id_1", "train"), ("id_2", "query"), ("id_2", "gallery"), ("id_3", "train")]
    ):
        save(root / "Img" / "img" / "WOMEN" / item / f"{number}.png", seed=number)
        lines.append(f"img/WOMEN/{item}/{number}.png   {item}   {split}")
    write(root / "Eval" / "list_eval_partition.txt", lines)
    return root


def cifar_planes(number: int, seed: int) -> np.ndarray:
    """Rows of all red, then all green, then all blue pixels."""
    images = [picture(32, 32, seed * 100 + place).transpose(2, 0, 1).reshape(-1) for place in range(number)]
    return np.stack(images)


def cifar_folder(root: Path, layout: cifar.Layout, number: int = 2) -> Path:
    place = root / layout.folder
    place.mkdir(parents=True)
    for seed, file in enumerate(layout.files):
        planes, labels = cifar_planes(number, seed), [place % 3 for place in range(number)]
        if layout.labels_key:
            names = [f"{file}_{one}.png".encode() for one in range(number)]
            content = {b"data": planes, layout.labels_key: labels, b"filenames": names}
            (place / file).write_bytes(pickle.dumps(content, protocol=2))
        else:
            before = [[9] * (layout.label_bytes - 1) + [label] for label in labels]
            (place / file).write_bytes(np.hstack([np.array(before, dtype=np.uint8), planes]).tobytes())
    class_names = ["cat", "dog", "frog"]
    if layout.names_key:
        encoded = [name.encode() for name in class_names]
        (place / layout.names).write_bytes(pickle.dumps({layout.names_key: encoded}, protocol=2))
    else:
        write(place / layout.names, class_names)
    return root


def shards(root: Path, classes: list[str], number: int = 2) -> Path:
    """Images of each class go to the shards in turn."""
    root.mkdir(parents=True, exist_ok=True)
    for shard in range(number):
        with tarfile.open(root / f"shard-{shard}.tar", "w") as archive:
            for place, name in enumerate(classes):
                file = save(root.parent / "loose" / name / f"{shard}.png", seed=10 * shard + place)
                archive.add(file, f"{name}/{shard}.png")
    return root


def test_cub_is_split_by_class_number(tmp_path):
    records = cub.records(cub_folder(tmp_path), expected={"train": 4, "test": 4})
    assert counts(records) == {"train": 4, "test": 4}
    assert [record.class_name for record in records[::2]] == BIRDS
    assert {record.class_name for record in records if record.split == "train"} == set(BIRDS[:2])
    assert np.array_equal(pixels(records[5]), picture(seed=5))


def test_missing_birds_are_named(tmp_path):
    folder = cub_folder(tmp_path)
    (folder / "CUB_200_2011/images/100.Brown_Pelican/Brown_Pelican_0001.png").unlink()
    with pytest.raises(
        ValueError, match=r"3 of 4 train, 4 of 4 test .*1 image \(100.Brown_Pelican/Brown_Pelican_0001.png\)"
    ):
        cub.records(folder, expected={"train": 4, "test": 4})


def test_the_standard_sizes_are_asserted(tmp_path):
    with pytest.raises(
        ValueError, match=r"4 of 5,864 train, 4 of 5,924 test.*4 classes lack images: 001.Black.* has 2 of 60"
    ):
        cub.records(cub_folder(tmp_path / "cub"))
    with pytest.raises(ValueError, match="2 of 8,054 train, 2 of 8,131 test"):
        cars.records(cars_folder(tmp_path / "cars"))
    with pytest.raises(ValueError, match="3 of 59,551 train, 2 of 60,502 test"):
        products.records(products_folder(tmp_path / "products"))
    with pytest.raises(ValueError, match="2 of 25,882 train, 1 of 14,218 query, 1 of 12,612 gallery"):
        inshop.records(inshop_folder(tmp_path / "inshop"))
    with pytest.raises(ValueError, match="10 of 50,000 train, 2 of 10,000 test"):
        SOURCES["cifar10"].records(cifar_folder(tmp_path / "cifar", cifar.TEN[0]))


def test_the_images_of_cub_add_up():
    assert sum(cub.images_of(f"{number:03}.Bird") for number in range(1, 101)) == cub.EXPECTED["train"]
    assert sum(cub.images_of(f"{number:03}.Bird") for number in range(101, 201)) == cub.EXPECTED["test"]


def test_cars_of_the_first_release(tmp_path):
    records = cars.records(cars_folder(tmp_path), expected={"train": 2, "test": 2})
    assert [record.class_name for record in records] == ["001.Car 1", "098.Car 98", "099.Car 99", "196.Car 196"]
    assert [record.split for record in records] == ["train", "train", "test", "test"]
    assert np.array_equal(pixels(records[0]), picture(seed=1))


def test_cars_of_the_devkit_are_parted_by_class_not_by_folder(tmp_path):
    records = cars.records(cars_devkit(tmp_path), expected={"train": 2, "test": 2})
    assert [record.name for record in records if record.split == "train"] == [
        "cars_test/00001.png",
        "cars_train/00001.png",
    ]


def test_a_devkit_without_test_labels_says_so(tmp_path):
    folder = cars_devkit(tmp_path)
    (folder / "devkit" / cars.TEST_LIST).unlink()
    with pytest.raises(ValueError, match=f"no {cars.TEST_LIST}"):
        cars.records(folder)


def test_products_follow_their_lists(tmp_path):
    records = products.records(products_folder(tmp_path), expected={"train": 3, "test": 2})
    assert counts(records) == {"train": 3, "test": 2}
    assert [record.class_name for record in records] == ["1", "1", "2", "3", "3"]
    assert np.array_equal(pixels(records[4]), picture(seed=5))


def test_missing_products_are_named(tmp_path):
    folder = products_folder(tmp_path)
    (folder / "Stanford_Online_Products/chair_final/2_3.png").unlink()
    with pytest.raises(ValueError, match=r"2 of 3 train.*1 image \(chair_final/2_3.png\)"):
        products.records(folder, expected={"train": 3, "test": 2})


def test_inshop_has_queries_and_a_gallery(tmp_path):
    records = inshop.records(inshop_folder(tmp_path), expected={"train": 2, "query": 1, "gallery": 1})
    assert counts(records) == {"train": 2, "query": 1, "gallery": 1}
    assert records[1].class_name == records[2].class_name == "id_2"


@pytest.mark.parametrize(
    ("kind", "layout"), [*(("cifar10", one) for one in cifar.TEN), *(("cifar100", one) for one in cifar.HUNDRED)]
)
def test_cifar_as_pickles_and_as_binary_files(kind, layout, tmp_path):
    folder = cifar_folder(tmp_path, layout)
    assert find_source(folder) == kind
    assert find_source(folder / layout.folder) == kind
    train = 2 * (len(layout.files) - 1)
    records = cifar.records(folder, title=kind, layouts=(layout,), expected={"train": train, "test": 2})
    assert [record.class_name for record in records[:2]] == ["cat", "dog"]
    assert [record.split for record in records[-3:]] == ["train", "test", "test"]
    found = decode_stored(records[1].stored, size=32, square=False)
    assert found.pixels == picture(32, 32, 1).tobytes()


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch evil",)

    folder = cifar_folder(tmp_path, cifar.TEN[0])
    (folder / cifar.TEN[0].folder / "test_batch").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(ValueError, match="it asks for .*system"):
        SOURCES["cifar10"].records(folder)


def test_an_absent_batch_of_cifar_is_named(tmp_path):
    folder = cifar_folder(tmp_path, cifar.TEN[1])
    (folder / cifar.TEN[1].folder / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match="Missing files: data_batch_3.bin"):
        SOURCES["cifar10"].records(folder)


def test_a_folder_per_class_is_all_for_training(tmp_path):
    (class_folders(tmp_path) / "class0" / "notes.txt").write_text("not an image")
    records = folders.records(tmp_path)
    assert counts(records) == {"train": 12}
    assert [record.name for record in records[:4]] == ["class0/0.png", "class0/1.png", "class0/2.png", "class1/0.png"]
    assert [record.class_name for record in records[::3]] == [f"class{number}" for number in range(4)]


def test_folders_named_as_splits_are_splits(tmp_path):
    for split in ("train", "test"):
        class_folders(tmp_path / split, classes=2)
    records = folders.records(tmp_path)
    assert counts(records) == {"train": 6, "test": 6}
    assert {record.class_name for record in records} == {"class0", "class1"}


def test_a_csv_lists_paths_labels_and_splits(tmp_path):
    class_folders(tmp_path)
    table = tmp_path / "list.csv"
    write(table, ["label,path,split", "a,class0/0.png,train", "b,class1/0.png,test", "a,class2/0.png,"])
    records = tables.records(table)
    assert [(record.class_name, record.split) for record in records] == [("a", "train"), ("b", "test"), ("a", "train")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["file,label"], "has no column path"),
        (["path,label"], "lists no images"),
        (["path,label", "a.png,cat", "b.png,dog"], r"lists 2 images \(a.png, b.png\) that are not below"),
        (["path,label", "class0/0.png,"], "line 2: give each image a path and a label"),
        (["path,label,split", "class0/0.png,cat,dev"], "line 2: split 'dev' is none of train, test"),
    ],
)
def test_a_wrong_csv_says_where(lines, message, tmp_path):
    class_folders(tmp_path)
    write(tmp_path / "list.csv", lines)
    with pytest.raises(ValueError, match=message):
        tables.records(tmp_path / "list.csv")


def test_tar_shards_are_read_in_place(tmp_path):
    records = tars.records(shards(tmp_path / "tars", ["cat", "dog"]))
    assert [record.name for record in records] == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    assert np.array_equal(pixels(records[3]), picture(seed=11))
    assert [record.name for record in tars.records(tmp_path / "tars" / "shard-1.tar")] == ["cat/1.png", "dog/1.png"]


def test_an_image_in_two_shards_is_refused(tmp_path):
    folder = shards(tmp_path / "tars", ["cat"])
    (folder / "copy.tar").write_bytes((folder / "shard-0.tar").read_bytes())
    with pytest.raises(ValueError, match="cat/0.png is in .* and in"):
        tars.records(folder)


def test_a_cut_tar_is_told(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"not a tar" * 100)
    with pytest.raises(ValueError, match="cannot be read as an uncompressed tar"):
        tars.records(tmp_path / "a.tar")


def test_cub_in_tar_shards_has_its_split(tmp_path):
    folder = shards(tmp_path / "tars", BIRDS)
    assert find_source(folder) == "cub200-tar"
    records = tars.bird_records(folder, expected={"train": 4, "test": 4})
    assert {record.class_name for record in records if record.split == "test"} == set(BIRDS[2:])
    with pytest.raises(ValueError, match=r"001.Black_footed_Albatross has 2 of 60.*Are all shards there\?"):
        tars.bird_records(folder)


MAKERS = {
    "cub200": cub_folder,
    "cars196": cars_folder,
    "products": products_folder,
    "inshop": inshop_folder,
    "tar": lambda root: shards(root / "tars", ["cat", "dog"]),
    "folder": class_folders,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_source_is_recognised_by_what_it_holds(kind, tmp_path):
    place = MAKERS[kind](tmp_path)
    assert find_source(place) == kind
    assert find_source(place, kind=kind) == kind


def test_both_releases_of_cars_are_recognised(tmp_path):
    assert find_source(cars_devkit(tmp_path)) == "cars196"


def test_an_unknown_source_says_what_was_looked_for(tmp_path):
    with pytest.raises(ValueError, match="is empty: give a folder with one folder of images a class"):
        find_source(tmp_path)
    (tmp_path / "notes.md").write_text("no dataset")
    with pytest.raises(ValueError, match=r"holds no dataset that is known \(cub200, .*, folder\): give a folder with"):
        find_source(tmp_path)
    with pytest.raises(ValueError, match=r"notes.md is no dataset that is known: give a .csv or .tar, or a folder"):
        find_source(tmp_path / "notes.md")
    with pytest.raises(ValueError, match="there is no .*nowhere"):
        find_source(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="did you mean 'cars196'"):
        find_source(tmp_path, kind="cars")
    with pytest.raises(ValueError, match="is not CUB-200-2011: looked for images.txt"):
        find_source(tmp_path, kind="cub200")


def test_loose_images_without_classes_are_no_dataset(tmp_path):
    Image.fromarray(picture()).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="holds images, and no folders of them: put those of each class into one"):
        find_source(tmp_path)


def test_a_record_is_the_same_wherever_it_is_read_from(tmp_path):
    record = folders.records(class_folders(tmp_path))[0]
    data = Path(record.path).read_bytes()
    assert np.array_equal(pixels(record), pixels(replace(record, path="", data=data)))
