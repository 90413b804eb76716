import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from idml import Embedding, evaluate
from idml.distances import Introspective
from idml.evaluation.comparing import Comparison
from idml.evaluation.embedded import Embedded
from idml.evaluation.neighbours import nearest
from idml.evaluation.ood import ood_scores
from idml.evaluation.report import neighbourhood, page, write_report
from idml.evaluation.report.confusions import ALL_CLASSES, MOST_CLASSES, Confusion, Confusions
from idml.evaluation.report.elements import percent
from idml.evaluation.report.grid import chosen_groups
from idml.evaluation.report.neighbourhood import nearest_of, nearest_of_all
from idml.evaluation.report.pictures import LONGEST_SIDE, Pictures
from idml.evaluation.report.tables import MEANINGS
from idml.evaluation.scores import Queries, Scores

MEMORY = 1 << 20
HOSTILE = ["<script>alert(1)</script>", '"><img src=//evil.example/x>', "a & b\x00 $x_$ \ud800", "雀"]
NEVER_CLOSED = ("img", "meta")


class Parsed(HTMLParser):
    """Tags with their attributes, all text, and a check that what is opened is closed."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in NEVER_CLOSED:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str, class_: str | None = None) -> list[dict[str, str]]:
        found = [attributes for name, attributes in self.tags if name == tag]
        return [each for each in found if class_ is None or class_ in each.get("class", "").split()]


def embedding(n: int = 24, *, uncertain: bool = True, seed: int = 0) -> Embedding:
    generator = torch.Generator().manual_seed(seed)
    semantic = torch.randn(n, 5, generator=generator)
    return Embedding(semantic, torch.randn(n, 3, generator=generator) if uncertain else None)


def embedded(n: int = 24, *, classes: int = 4, uncertain: bool = True, **options) -> Embedded:
    return Embedded(embedding=embedding(n, uncertain=uncertain), labels=torch.arange(n) % classes, **options)


def scored(images: Embedded, **options) -> Scores:
    if images.gallery is not None:
        options |= {"gallery": images.gallery.embedding, "gallery_labels": images.gallery.labels}
    return evaluate(images.embedding, images.labels, resamples=20, clustering=False, **options)


def queries_of(images: Embedded) -> Queries:
    queries = scored(images).queries
    assert queries is not None
    return queries


def written(folder: Path, images: Embedded, scores: Scores | None = None, **options) -> tuple[Parsed, str, list[str]]:
    file = folder / "report.html"
    remarks = write_report(file, scores or scored(images), images, title="birds", **options)
    text = file.read_text(encoding="utf-8")
    return Parsed(text), text, remarks


def picture_files(folder: Path, n: int) -> list[str]:
    for row in range(n):
        Image.fromarray(np.full((200, 300, 3), 10 * row, dtype=np.uint8)).save(folder / f"{row}.jpg")
    return [f"{row}.jpg" for row in range(n)]


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> tuple[Parsed, str, list[str], Scores]:
    """A report with all that it may hold."""
    folder = tmp_path_factory.mktemp("full")
    levels = embedding().level
    images = embedded(
        class_names=HOSTILE,
        images=picture_files(folder, 24),
        changed_levels={"blur": {0.5: levels + 1, 1.0: levels - 0.5}, "<b>mix</b>": {0.5: levels.roll(1)}},
    )
    outside = ood_scores(embedding(seed=1), images.embedding, embedding(seed=2))
    scores = scored(images)
    return *written(folder, images, scores, image_root=folder, outside=outside), scores


def test_the_report_is_one_file_that_fetches_nothing_and_runs_nothing(full):
    parsed, text, remarks, _ = full
    assert not remarks
    assert not re.search(r"https?://|url\(|@import", text)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in parsed.tags}
    assert {found["src"][:11] for found in parsed.all("img")} == {"data:image/"}
    assert not {"href", "srcset", "onerror", "onload"} & {name for _, found in parsed.tags for name in found}
    assert "default-src 'none'" in parsed.all("meta")[1]["content"]
    assert len(text) < 3_000_000


def test_figures_fetch_nothing_either_and_show_names_as_text(full):
    figures = [found["src"].split(",")[1] for found in full[0].all("img") if "svg" in found["src"][:30]]
    assert len(figures) == 3 + 2 + 1  # errors, changes, confusions
    drawn = [base64.b64decode(figure).decode() for figure in figures]
    for svg in drawn:
        assert not re.search(r"<script|<b>|(href|src)=\"(?!#|data:)", svg)
        assert "prefers-color-scheme:dark" in svg
    assert "&lt;script&gt;" in drawn[-1]
    assert "$x_$" in drawn[-1]


def test_every_score_is_in_the_report_with_its_interval_and_what_it_says(full):
    parsed, text, _, scores = full
    for row in scores.rows():
        assert row.name in parsed.text
        assert row.key.startswith("recall@") or MEANINGS[row.key] in parsed.text
        if row.is_share:
            assert percent(row.value) in parsed.text
            assert row.interval is None or f"{100 * row.interval.low:.2f} to {100 * row.interval.high:.2f}" in text
    assert text.count("lower is better") >= sum(row.lower_is_better for row in scores.rows())


def test_names_and_title_are_shown_and_not_obeyed(tmp_path):
    images = embedded(uncertain=False, class_names=HOSTILE, images=[f"<i>{row}</i>" for row in range(24)])
    file = tmp_path / "report.html"
    write_report(file, scored(images), images, title="</title><script>alert(2)</script>")
    parsed = Parsed(file.read_text(encoding="utf-8"))
    assert not parsed.all("script")
    assert not parsed.all("i")
    for words in ("</title><script>alert(2)</script>", HOSTILE[0], HOSTILE[1], "a & b\ufffd $x_$ \ufffd", "雀"):
        assert words in parsed.text


def test_every_picture_has_words_for_those_who_cannot_see_it(full):
    parsed = full[0]
    assert all(found["alt"] for found in parsed.all("img"))
    assert len(parsed.all("img")) > 6 + 16 * 9 - 1  # figures, and four queries of four kinds beside eight neighbours
    assert parsed.text.count("✓") > 1
    assert parsed.text.count("✗") > 1


def test_the_report_tells_of_changed_images_and_of_images_from_elsewhere(full):
    assert "blur100.00\u202f%0.00\u202f%" in full[0].text  # rise, at degrees 0.5 and 1
    assert "FPR95" in full[0].text


def test_levels_are_told_beside_the_share_of_images_that_they_are_above(tmp_path):
    images = embedded(uncertain=False)
    level = torch.linspace(1.0, 1.001, len(images.labels)).flip(0)  # too near to each other for three digits
    semantic = images.embedding.semantic
    parsed, _, _ = written(tmp_path, replace(images, embedding=Embedding(semantic, level[:, None])))
    told = parsed.text[parsed.text.index("Most certain") :]
    assert "level 1.00, above 0\u202f%" in told
    assert "level 1.00, above 96\u202f%" in told  # the highest, of 24


def test_without_uncertainty_images_and_names_the_report_says_so(tmp_path):
    parsed, _, remarks = written(tmp_path, embedded(uncertain=False))
    assert remarks == []
    assert "no uncertainty" in parsed.text
    assert "Risk over coverage" in parsed.text  # by the confidence, which plain embeddings have too
    assert "the highest confidence" in parsed.text
    assert "Images from elsewhere" not in parsed.text
    assert "#0" in parsed.text  # in a tile, for a picture
    assert "class 3" in parsed.text
    assert "level" not in re.sub(r"no level", "", parsed.text[parsed.text.index("Retrieved images") :])


def test_scores_without_meaning_are_a_dash_with_a_reason(tmp_path):
    rows = torch.eye(4).repeat_interleave(3, dim=0) + 0.01 * torch.rand(12, 4)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5])  # three are alone in their classes
    images = Embedded(embedding=Embedding(rows, torch.ones(12, 2)), labels=labels)
    parsed, _, _ = written(tmp_path, images)
    for name in (
        "R-AUROC, level",
        "R-AUROC, semantic length",
        "R-AUROC, nearest distance",
        "R-AUROC, neighbours",
        "R-AUROC, confidence",
        "R-AUROC, gap between classes",
    ):
        assert f"{name}–––: needs right and wrong queries" in parsed.text
    assert "lone queries, left out3" in parsed.text
    assert "None: the nearest image of every query" in parsed.text
    assert "nan" not in parsed.text.lower()


def test_a_single_query_can_be_reported(tmp_path):
    gallery = Embedded(embedding=embedding(3), labels=torch.tensor([0, 1, 2]), images=["a.png", "b.png", "c.png"])
    images = Embedded(embedding=embedding(1, seed=3), labels=torch.tensor([0]), gallery=gallery)
    parsed, _, remarks = written(tmp_path, images, image_root=tmp_path)
    assert len(parsed.all("figure", "query")) == 4
    assert "needs queries of several classes" in parsed.text
    assert remarks[0].startswith("3 of 3 images could not be opened")


def test_missing_and_broken_images_are_counted_and_do_not_stop_the_report(tmp_path):
    names = picture_files(tmp_path, 4)
    (tmp_path / "1.jpg").unlink()
    (tmp_path / "2.jpg").write_bytes(b"no picture at all")
    whole = (tmp_path / "3.jpg").read_bytes()
    (tmp_path / "3.jpg").write_bytes(whole[: len(whole) // 2])
    parsed, _, remarks = written(tmp_path, embedded(4, classes=2, images=names), image_root=tmp_path)
    assert remarks[0].startswith(f"3 of 4 images could not be opened, as {tmp_path / '1.jpg'}")
    assert remarks[0] in parsed.text
    assert {found["title"] for found in parsed.all("div", "missing")} == {"1.jpg", "2.jpg", "3.jpg"}


GREYS = {"L": 128, "P": (128,) * 3, "LA": (128, 255), "RGBA": (0, 0, 0, 127), "CMYK": (0, 0, 0, 127), "I;16": 0x8000}


@pytest.mark.parametrize("mode", GREYS)
def test_thumbnails_are_small_and_as_bright_as_the_picture_whatever_its_kind(mode, tmp_path):
    Image.new(mode, (1000, 400), GREYS[mode]).save(tmp_path / "a.tif")
    thumbnail = Pictures(tmp_path).thumbnail("a.tif")
    assert thumbnail is not None
    with Image.open(BytesIO(base64.b64decode(thumbnail.split(",")[1]))) as small:
        assert small.size == (LONGEST_SIDE, round(LONGEST_SIDE * 0.4))
        assert small.getpixel((9, 9)) == pytest.approx((128,) * 3, abs=2)


def test_photos_beside_a_foreign_description_are_found_in_their_folder(tmp_path):
    (tmp_path / "meta.json").write_text("{}")
    Image.new("L", (5, 4)).save(tmp_path / "a.png")
    assert Pictures(tmp_path).thumbnail("a.png") is not None


def test_an_absolute_path_needs_no_root_and_a_folder_is_no_picture(tmp_path):
    picture_files(tmp_path, 1)
    pictures = Pictures(Path("/nowhere"))
    assert pictures.thumbnail(str(tmp_path / "0.jpg"))
    assert pictures.remarks() == []
    assert pictures.thumbnail(str(tmp_path)) is None
    assert pictures.thumbnail("a\x00b") is None
    assert pictures.remarks()[0].startswith("2 of 3 images")


@pytest.mark.parametrize("place", ["score_content", "_page"])
def test_a_report_that_fails_midway_leaves_the_old_one(place, tmp_path, monkeypatch):
    file = tmp_path / "report.html"
    file.write_text("the old one")
    images = embedded(uncertain=False)

    def fail(*_):
        raise RuntimeError("midway")

    monkeypatch.setattr(page, place, fail)
    with pytest.raises(RuntimeError, match="midway"):
        write_report(file, scored(images), images, title="birds")
    assert file.read_text() == "the old one"
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("introspective", [None, Introspective(tau=2.0)])
@pytest.mark.parametrize("k", [1, 3, 29, 100])
def test_pictured_neighbours_are_the_exact_nearest_and_never_the_query(introspective, k):
    """Also among duplicates, of which there are more than neighbours asked for."""
    rows = embedding(30)
    same = torch.cat([torch.zeros(10, dtype=torch.long), torch.arange(10, 30)])
    images = Embedded(embedding=rows[same], labels=torch.arange(30) % 3)
    chosen = torch.tensor([9, 0, 5, 17, 9, 29])
    found = nearest_of(chosen, images, k=k, introspective=introspective, memory=MEMORY)
    every = nearest(Comparison.of(images.embedding, introspective=introspective), min(k, 29))[0]
    assert torch.equal(found, every[chosen])
    assert (found != chosen[:, None]).all()


def test_a_query_that_is_in_the_gallery_too_is_found_there():
    images = embedded(6, gallery=embedded(6))
    found = nearest_of(torch.tensor([4, 1]), images, k=2, introspective=None, memory=MEMORY)
    assert found[:, 0].tolist() == [4, 1]


def test_the_nearest_of_all_is_the_same_whether_known_or_searched():
    images = embedded()
    queries = queries_of(images)
    known = nearest_of_all(queries, images, introspective=None, memory=MEMORY)
    searched = nearest_of_all(replace(queries, nearest=None), images, introspective=None, memory=MEMORY)
    assert known is not None
    assert searched is not None
    assert torch.equal(known.place, searched.place)
    torch.testing.assert_close(known.distance, searched.distance)


def test_of_too_many_queries_confusions_are_left_out_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(neighbourhood, "MOST_QUERIES", 10)
    images = embedded(uncertain=False)
    scores = evaluate(images.embedding, images.labels, failures=False, resamples=0)
    parsed, _, _ = written(tmp_path, images, scores)
    assert "Left out: nearest images are searched for at most" in parsed.text
    assert "What tells queries that fail was not asked for" in parsed.text
    assert len(parsed.all("figure", "query")) == 8


def test_without_uncertainty_queries_are_chosen_by_their_confidence():
    images = embedded(60, classes=3, uncertain=False)
    queries = queries_of(images)
    assert queries.confidence is not None
    groups = {group.title: group for group in chosen_groups(queries, None, rows=4)}
    order = queries.confidence.argsort()
    assert set(groups["Least certain"].rows.tolist()) == set(order[:4].tolist())
    assert set(groups["Most certain"].rows.tolist()) == set(order[-4:].tolist())
    assert groups["Most certain"].explanation == "the highest confidence"


def test_queries_are_chosen_by_their_precision_and_level_and_among_equals_by_distance():
    images = embedded(60, classes=3)
    queries = queries_of(images)
    precision = (10 * queries.average_precision_at_r).round()  # so that many are equal
    queries = replace(queries, average_precision_at_r=precision)
    closest = nearest_of_all(queries, images, introspective=None, memory=MEMORY)
    assert closest is not None
    assert queries.level is not None
    best, worst, certain, uncertain = (group.rows.tolist() for group in chosen_groups(queries, closest))
    by = list(zip(precision.tolist(), closest.distance.tolist(), queries.level.tolist(), strict=True))
    assert best == sorted(range(60), key=lambda row: (-by[row][0], by[row][1]))[:4]
    assert worst == sorted(range(60), key=lambda row: by[row][:2])[:4]
    assert certain == sorted(range(60), key=lambda row: by[row][2])[:4]
    assert uncertain == sorted(range(60), key=lambda row: -by[row][2])[:4]


def test_queries_alone_in_their_class_are_neither_best_nor_worst():
    images = Embedded(embedding=embedding(6), labels=torch.tensor([0, 0, 1, 2, 3, 4]))
    best, worst, certain, _ = chosen_groups(queries_of(images), None)
    assert sorted(best.rows.tolist()) == sorted(worst.rows.tolist()) == [0, 1]
    assert len(certain.rows) == 4


def test_confusions_count_queries_by_the_class_of_what_they_find():
    own = torch.tensor([7, 7, 7, 7, 2, 2, 5])
    taken_for = torch.tensor([2, 2, 7, 5, 7, 2, 5])
    found = Confusions.of(own, taken_for)
    assert found.most_frequent() == [
        Confusion(7, 2, number=2, share=0.5, back=1),
        Confusion(2, 7, number=1, share=0.5, back=2),
        Confusion(7, 5, number=1, share=0.25, back=0),
    ]
    expected = torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(found.shares(found.classes_to_show()), expected)


def test_of_many_classes_those_with_the_most_errors_are_shown():
    own = torch.arange(ALL_CLASSES + 1).repeat(2)
    taken_for = own.clone()
    taken_for[:20] = 60 - own[:20]
    shown = Confusions.of(own, taken_for).classes_to_show()
    assert len(set(shown)) == MOST_CLASSES
    assert set(shown) <= {*range(20), *range(41, 61)}


def test_mistakes_are_named_with_a_remedy(tmp_path):
    images = embedded()
    scores = scored(images)
    file = tmp_path / "report.html"
    with pytest.raises(ValueError, match="neighbours is 0: show at least 1"):
        write_report(file, scores, images, title="birds", neighbours=0)
    with pytest.raises(ValueError, match="do not know their queries: give the scores that `evaluate` returned"):
        write_report(file, replace(scores, queries=None), images, title="birds")
    with pytest.raises(ValueError, match="scores of 24 queries in a gallery of 23, and there are 12 and 11"):
        write_report(file, scores, embedded(12), title="birds")
    assert not file.exists()
