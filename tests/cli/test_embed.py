import sys
from pathlib import Path

import pytest
from pictures import class_folders

from idml.cli.embed import found_images


def test_files_that_macos_leaves_are_not_embedded(tmp_path):
    images = class_folders(tmp_path)
    (images / "class0" / "._0.png").write_bytes(b"resource fork")
    assert len(found_images([images])) == 12


def test_a_list_of_images_may_begin_with_a_byte_order_mark_and_must_be_in_utf8(tmp_path):
    image = class_folders(tmp_path) / "class0" / "0.png"
    (tmp_path / "list.txt").write_text(f"{image}\n", encoding="utf-8-sig")
    assert found_images([tmp_path / "list.txt"]) == [image]
    (tmp_path / "list.txt").write_bytes(b"caf\xe9.png\n")
    with pytest.raises(ValueError, match=r"list.txt is not in UTF-8: save it as such"):
        found_images([tmp_path / "list.txt"])


def test_parquet_needs_pyarrow_and_says_so_before_any_work(idml, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("idml.cli.embed.found_images", None)
    code, _, errors = idml("embed", Path("model"), class_folders(tmp_path), "--output", "rows.parquet")
    assert code == 1
    assert ".parquet needs pyarrow: pip install 'idml[parquet]'" in errors
