import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import small_cache

from idml import Embedding
from idml.evaluation.calibration import Calibration
from idml.evaluation.embedded import Embedded
from idml.models.embedder import Embedder


def save(path: Path, *, noise: float = 0.5, seed: int = 0, uncertain: bool = True) -> Path:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(60) % 6
    rows = torch.eye(6)[labels] + noise * torch.randn(60, 6, generator=generator)
    uncertainty = torch.rand(60, 2, generator=generator) if uncertain else None
    Embedded(embedding=Embedding(rows, uncertainty), labels=labels).save(path)
    return path


def test_one_source_prints_a_table_and_leaves_scores_and_a_report(idml, tmp_path):
    source = save(tmp_path / "test.npz")
    code, output, _ = idml("evaluate", source, "--ks", "1,10,100,1000", "--resamples", "50")
    assert code == 0
    assert "Recall@1000" in output
    assert "R-AUROC" in output
    scores = json.loads((tmp_path / "test-evaluation" / "scores.json").read_text())
    assert scores["recall"]["1000"] == 1.0
    assert scores["intervals"]["recall@1"][0] <= scores["recall"]["1"] <= scores["intervals"]["recall@1"][1]
    assert "<html" in (tmp_path / "test-evaluation" / "report.html").read_text()
    assert (tmp_path / "test-evaluation" / "queries.csv").read_text().count("\n") == 1 + 60


def test_a_single_class_is_refused_by_its_name(idml, tmp_path):
    rows = Embedding(torch.rand(4, 3), torch.rand(4, 2))
    Embedded(embedding=rows, labels=torch.ones(4).long(), class_names=["wren", "gull"]).save(tmp_path / "gulls.npz")
    code, _, errors = idml("evaluate", tmp_path / "gulls.npz")
    assert code == 1
    assert "gulls.npz: all 4 images are of one class, 'gull': give at least two classes." in " ".join(errors.split())


def test_a_single_class_without_a_name_is_told_by_its_number(idml, tmp_path):
    np.savez(tmp_path / "sevens.npz", semantic=np.random.rand(4, 3), labels=np.full(4, 7))
    code, _, errors = idml("evaluate", tmp_path / "sevens.npz")
    assert code == 1
    assert "all 4 images are of one class, '7'" in " ".join(errors.split())


def test_a_folder_of_photos_that_is_called_like_the_file_is_left_alone(idml, tmp_path):
    (tmp_path / "photos").mkdir()
    assert idml("evaluate", save(tmp_path / "photos.npz"), "--no-report", "--resamples", "0")[0] == 0
    assert not any((tmp_path / "photos").iterdir())


def test_a_run_keeps_its_own_scores_and_lends_its_images_and_its_calibration(idml, tmp_path):
    cache, run = small_cache(tmp_path), tmp_path / "run"
    calibration = Calibration(bias=1.0, weights_alpha=(-2.0,), weight_beta=-3.0)
    Embedder("test_resnet", 6, 2, image_size=32).save(run / "model", calibration=calibration)
    Embedded(
        embedding=Embedding(torch.randn(12, 6), torch.rand(12, 2)),
        labels=cache.labels,
        images=cache.names,
        image_root=str(cache.folder),
    ).save(run / "embeddings.safetensors")
    (run / "scores.json").write_text("own")
    (run / "report.html").write_text("own")
    code, output, errors = idml("evaluate", run, "--resamples", "10", "--no-clustering")
    assert code == 0, errors
    assert (run / "scores.json").read_text() == (run / "report.html").read_text() == "own"
    scores = json.loads((run / "evaluation" / "scores.json").read_text())
    assert scores["failures"]["calibration"] == calibration.to_dict()
    assert "data:image/png" in (run / "evaluation" / "report.html").read_text()
    assert "could not be opened" not in output


def test_json_is_all_that_is_printed_for_programs(idml, tmp_path):
    source = save(tmp_path / "test.safetensors", uncertain=False)
    code, output, _ = idml("evaluate", source, "--json", "--no-report", "--output", tmp_path / "out")
    assert code == 0
    assert json.loads(output) == json.loads((tmp_path / "out" / "scores.json").read_text())
    assert not (tmp_path / "out" / "report.html").exists()


def test_what_tells_failures_can_be_left_out(idml, tmp_path):
    source = save(tmp_path / "test.npz")
    quick = ("--no-report", "--no-clustering", "--resamples", "0")
    assert "R-AUROC, confidence" in idml("evaluate", source, *quick)[1]
    code, output, _ = idml("evaluate", source, *quick, "--no-failures")
    assert code == 0
    assert "R-AUROC, confidence" not in output
    assert "R-AUROC, level" in output


def test_seeds_are_compared_in_pairs(idml, tmp_path):
    ours = [save(tmp_path / f"ours{seed}.npz", noise=0.3, seed=seed) for seed in range(3)]
    theirs = [save(tmp_path / f"theirs{seed}.npz", noise=0.7, seed=seed) for seed in range(3)]
    against = [word for path in theirs for word in ("--against", path)]
    options = ("--resamples", "0", "--no-clustering")
    code, output, _ = idml("evaluate", *ours, *against, *options, "--output", tmp_path)
    assert code == 0
    assert "3 seeds" in output
    difference = json.loads((tmp_path / "comparison.json").read_text())["map_at_r"]["difference"]
    assert difference["mean"] > 0
    assert not difference["is_inside_noise"]
    _, output, _ = idml("evaluate", *ours, *(word for path in ours for word in ("--against", path)), *options)
    assert "inside the noise" in output


def test_images_from_elsewhere_are_told_from_those_inside(idml, tmp_path):
    source, train = (save(tmp_path / f"{name}.npz", seed=seed, noise=0.1) for seed, name in enumerate("ab"))
    elsewhere = -torch.eye(6).repeat(5, 1) + 0.1 * torch.randn(30, 6)
    np.savez(tmp_path / "c.npz", semantic=elsewhere.numpy(), uncertainty=np.full((30, 2), 9.0))  # without labels
    code, output, _ = idml(
        "evaluate", source, "--train", train, "--outside", tmp_path / "c.npz", "--no-report", "--by-class"
    )
    assert code == 0
    assert "Mahalanobis" in output
    found = json.loads((tmp_path / "a-evaluation" / "scores.json").read_text())["outside"]
    assert found["nearest"]["auroc"] == found["level"]["auroc"] == 1.0
    assert found["mean_level_outside"] > found["mean_level_inside"]


def test_the_introspective_distance_takes_its_options(idml, tmp_path):
    source = save(tmp_path / "a.npz")
    options = ("--distance", "introspective", "--json", "--no-report", "--no-clustering", "--resamples", "0")
    scores = [json.loads(idml("evaluate", source, *options, "--tau", tau)[1]) for tau in (0.5, 50)]
    assert [score["introspective"]["tau"] for score in scores] == [0.5, 50]
    assert scores[0]["map_at_r"] != scores[1]["map_at_r"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.npz"], "there is no file nowhere.npz"),
        (["{a}", "--ks", "1,x"], "--ks is '1,x'"),
        (["{a}", "--ks", "0"], "K is 0"),
        (["{a}", "--device", "abacus"], "device 'abacus' is not here"),
        (["{a}", "--train", "{a}"], "--train and --outside go together"),
        (["{a}", "--against", "{a}"], "one seed of each method"),
        (["{a}", "{b}", "--against", "{a}"], "give as many of each, and repeat the option, --against c.npz"),
        (["{a}", "{a}"], "a.npz is given twice: give each seed once"),
        (["{a}", "{b}", "--against", "{b}", "--against", "{b}"], "b.npz is given twice: give each seed once"),
        (["{a}", "{b}", "--against", "{b}", "--against", "{few}"], "are not of the same images (60 and 30 labels)"),
        (["{plain}", "--distance", "introspective"], "needs uncertainty"),
        (["{a}", "--output", "{a}/below-a-file"], "A file is in the way"),
        (["{a}", "--tau", "3"], "--tau is for --distance introspective"),
        (["{a}", "--memory", "0"], "--memory is 0 GiB"),
        (["{a}", "--memory", "inf"], "--memory is inf GiB"),
        (["{a}", "--device", "meta"], "device 'meta' is not here"),
        (["{a}", "--images", "nowhere"], "--images: there is no folder nowhere"),
        (["{a}", "{nan}"], "nan.npz: embedding row 0 holds NaN"),
    ],
)
def test_mistakes_are_told_in_a_line_or_two(idml, words, message, tmp_path):
    places = {"a": save(tmp_path / "a.npz"), "plain": save(tmp_path / "plain.npz", uncertain=False)}
    places["b"], few = save(tmp_path / "b.npz", seed=1), Embedded.load(places["a"])
    places["few"] = tmp_path / "few.npz"
    Embedded(embedding=few.embedding[:30], labels=few.labels[:30]).save(places["few"])
    places["nan"] = save(tmp_path / "nan.npz", noise=float("nan"))
    code, _, errors = idml("evaluate", "--no-report", *(word.format(**places) for word in words))
    assert code == 1
    assert message in errors
    assert len(errors.strip().splitlines()) <= 2


def test_a_misspelt_option_is_not_a_traceback(idml, tmp_path):
    code, _, errors = idml("evaluate", save(tmp_path / "a.npz"), "--distanse", "cosine")
    assert code == 2
    assert "--distanse" in errors
    assert "Traceback" not in errors


def test_a_full_disk_is_told_and_nothing_is_lost(idml, tmp_path, monkeypatch):
    source = save(tmp_path / "a.npz")
    (tmp_path / "a-evaluation").mkdir()
    (tmp_path / "a-evaluation" / "scores.json").write_text("old")

    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device", "scores.json")

    monkeypatch.setattr(os, "fsync", is_full)
    code, _, errors = idml("evaluate", source, "--no-report")
    assert code == 1
    assert "The disk is full" in errors
    assert (tmp_path / "a-evaluation" / "scores.json").read_text() == "old"


def test_results_are_safe_when_nobody_reads_the_table(tmp_path):
    source = save(tmp_path / "a.npz")
    command = f"{sys.executable} -m idml evaluate {source} --resamples 10 --no-clustering | true"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (tmp_path / "a-evaluation" / "scores.json").exists()
    assert (tmp_path / "a-evaluation" / "report.html").exists()
    assert "Traceback" not in found.stderr


def test_an_interruption_is_told(idml, tmp_path, monkeypatch):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("idml.cli.evaluate.scores_of", interrupt)
    code, _, errors = idml("evaluate", save(tmp_path / "a.npz"))
    assert code == 130
    assert "interrupted: nothing half-written was left behind" in errors


def test_the_module_runs_as_a_command():
    found = subprocess.run([sys.executable, "-m", "idml", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("idml ")
