import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from caches import draw_cache

from idml.data.cache import Cache
from idml.data.mixing import Mixing
from idml.distances import Introspective
from idml.evaluation.embedded import Embedded
from idml.losses import LOSSES
from idml.models.embedder import Embedder
from idml.recipes import recipe
from idml.training import checkpoint, loop
from idml.training.checkpoint import BEST, LAST, Place
from idml.training.config import Config
from idml.training.curves import PANELS
from idml.training.feeding import Batch
from idml.training.loop import Run, train
from idml.training.runs import RunFolder
from idml.training.watching import Silent
from idml.training.workshop import Workshop

TESTS = Path(__file__).parents[1]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Cache:
    return draw_cache(tmp_path_factory.mktemp("data"))


def small(*changes: str) -> Config:
    return recipe("digits").with_changes(["epochs=3", "batch=20", *changes])


def run_of(config: Config, cache: Cache, folder: Path | None = None, watch: Silent | None = None) -> Run:
    """A run without what follows it: the final scores take longer than a short run."""
    where = None if folder is None else RunFolder(folder)
    return Run(config, cache, CPU, Workshop(), watch=watch or Silent(), folder=where)


def copies(parameters) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def are_same(ones, others) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


class Interrupting(Silent):
    """Interrupts a run after so many of its steps, as a user does; notes whether the run ended properly."""

    def __init__(self, steps: int):
        self.left, self.has_ended = steps, False

    def step(self, *, images: int) -> None:  # noqa: ARG002
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def end(self) -> None:
        self.has_ended = True


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return Embedder.load(folder / "model").state_dict()


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


class Telling(Silent):
    """Keeps what a run says."""

    def __init__(self):
        self.words: list[str] = []

    def say(self, words: str) -> None:
        self.words.append(words)


def test_a_run_that_is_done_is_not_scored_a_second_time(cache, tmp_path, monkeypatch):
    first = train(small("epochs=1"), cache, tmp_path)
    watch = Telling()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "finish", None)
        assert train(small("epochs=1"), cache, tmp_path, watch=watch) == first
    assert watch.words == ["all epochs are trained already", "scored already"]
    (tmp_path / "report.html").unlink()  # as where it was killed before the last of its files
    assert train(small("epochs=1"), cache, tmp_path) == first
    assert (tmp_path / "report.html").exists()
    os.utime(RunFolder(tmp_path).checkpoint(LAST))  # trained anew since
    assert RunFolder(tmp_path).scores() is None


def test_a_run_leaves_a_model_scores_a_report_curves_and_a_log(cache, tmp_path):
    scores = train(small(), cache, tmp_path)
    assert json.loads(json.dumps(scores)) == json.loads((tmp_path / "scores.json").read_text())
    for name in ("report.html", "curves.png", "embeddings.safetensors", "log.jsonl", "config.json", "model/model.json"):
        assert (tmp_path / name).exists(), name
    records = RunFolder(tmp_path).records()
    assert [record["epoch"] for record in records] == [1, 2, 3]
    for name in ("level_clean", "level_mixed", "saturated_pairs", "gradient_backbone", "gradient_semantic_embedding"):
        assert name in records[-1]
    saved = json.loads((tmp_path / "config.json").read_text())
    assert Config.from_dict(saved["config"]) == small()
    assert saved["versions"]["torch"] == torch.__version__
    model = Embedder.load(tmp_path)
    assert model.distance == Introspective("cosine", tau=5.0, smoothing=1.0)  # the loss's base, not what it is alone
    assert Embedded.load(tmp_path).image_root == str(cache.folder.resolve())  # for the pictures of a later report
    trained = cache.labels[cache.rows("train")].unique().tolist()
    assert model.class_names == [cache.class_names[number] for number in trained]


def test_images_that_are_much_too_large_are_remarked_on(cache, tmp_path):
    told = []

    class Listening(Interrupting):
        def say(self, words: str) -> None:
            told.append(words)

    with pytest.raises(KeyboardInterrupt):
        train(small("image_size=16"), cache, tmp_path, watch=Listening(1))
    assert any("warning: " in words and "short side of 40 pixels where 18 are needed" in words for words in told)


@pytest.mark.parametrize("kind", ["random", "common"])
def test_controls_are_refused_where_ranks_would_draw_or_average_alone(cache, monkeypatch, kind):
    monkeypatch.setattr("idml.training.distributed.ranks", lambda: 2)
    with pytest.raises(ValueError, match=f"uncertainty={kind} draws or averages on each rank alone"):
        run_of(small(f"uncertainty={kind}"), cache)


def test_the_same_seed_gives_the_same_weights_and_another_one_others(cache):
    found = []
    for seed in (0, 0, 1):
        run = run_of(small(f"seed={seed}", "epochs=1"), cache)
        run.go()
        found.append(run.model.state_dict())
    assert_same(found[0], found[1])
    name = "heads.semantic.weight"
    assert not torch.equal(found[0][name], found[2][name])


def test_the_level_of_mixed_images_and_the_loss_follow_a_golden_curve(cache, tmp_path):
    """A refactoring must not change what training does."""
    train(small(), cache, tmp_path)
    records = RunFolder(tmp_path).records()
    golden = json.loads((TESTS / "golden" / "digits.json").read_text())
    for name, values in golden.items():
        assert [record[name] for record in records] == pytest.approx(values, rel=0.02), name


def test_validation_classes_are_not_trained_on_and_choose_the_epoch(cache, tmp_path):
    train(small("validation_share=0.5", "select=best"), cache, tmp_path)
    records = RunFolder(tmp_path).records()
    assert all("validation_map_at_r" in record for record in records)
    saved = torch.load(tmp_path / "checkpoints" / "best.pt", weights_only=True)
    best = max(range(3), key=lambda place: records[place]["validation_map_at_r"])
    assert saved["place"]["best_epoch"] == best
    assert saved["objective"]["proxies.semantic"].shape[0] == 2  # of four training classes
    assert Embedder.load(tmp_path / "model").calibration is not None


def test_a_plain_run_that_held_out_classes_knows_how_sure_to_be(cache, tmp_path):
    train(small("validation_share=0.5", "epochs=1").plain(), cache, tmp_path)
    calibration = Embedder.load(tmp_path / "model").calibration
    assert calibration is not None
    assert calibration.weight_beta == 0
    assert RunFolder(tmp_path).path.joinpath("scores.json").exists()


@pytest.mark.parametrize("changes", [[], ["average=0.5"]])
def test_the_best_epoch_becomes_the_model_and_not_the_last(cache, tmp_path, monkeypatch, changes):
    scores = iter([0.1, 0.9, 0.5])
    monkeypatch.setattr(Run, "_validate", lambda _run, _record: next(scores))
    run = run_of(small("validation_share=0.5", "select=best", *changes), cache, tmp_path)
    assert run.go()
    best, last = (torch.load(RunFolder(tmp_path).checkpoint(name), weights_only=True) for name in (BEST, LAST))
    assert best["place"]["epoch"] == 2
    expected = dict(best["model"])
    if changes:
        names = [name for name, _ in run.model.named_parameters()]
        expected |= dict(zip(names, best["average"]["averages"], strict=True))
    assert_same(run.model.state_dict(), expected)
    name = "heads.semantic.weight"
    assert not torch.equal(best["model"][name], last["model"][name])


@pytest.mark.parametrize("changes", [["accumulate=2"], ["cached_chunk=7"], ["schedule=cosine", "warm_up_epochs=1"]])
def test_other_ways_of_training_run(cache, changes):
    run = run_of(small("validation_half=second", *changes), cache)
    assert run.go()
    assert 0 < run.records[-1]["validation_map_at_r"] <= 1


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_gradients_are_looked_at_whatever_makes_a_step(cache, accumulate):
    run = run_of(small("epochs=1", "batch=10", f"accumulate={accumulate}"), cache)
    run.go()
    assert run.records[0]["gradient_backbone"] > 0


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(cache, loss):
    run = run_of(small("epochs=5", f"loss={loss}", "per_class=5", "mixed_labels=sets"), cache)
    run.go()
    assert run.records[-1]["loss"] < run.records[0]["loss"]


def test_a_step_of_accumulated_batches_follows_their_mean_gradient(cache, monkeypatch):
    noted = []

    def note(run: Run, **_options) -> None:  # and take no step
        noted.append(copies(parameter.grad for parameter in run.model.parameters()))
        run.optimiser.zero_grad()

    monkeypatch.setattr(Run, "_descend", note)
    for accumulate in (1, 4):
        run_of(small("batch=10", "epochs=1", f"accumulate={accumulate}"), cache).go()
    *each, together = noted
    assert len(each) == 4
    for found, *parts in zip(together, *each, strict=True):
        torch.testing.assert_close(found, torch.stack(parts).mean(dim=0))


def test_classes_are_mixed_as_a_whole_where_mixtures_are_classes(cache):
    changes = ["mixing=mixup", "loss=contrastive", "per_class=5", "epochs=1"]
    for labels, is_whole in (("classes", True), ("loss_shares", False)):
        run = run_of(small(*changes, f"mixed_labels={labels}"), cache)
        batches = list(run.feed.batches(0))
        partners = [batch.mixing.other_labels(batch.labels).reshape(-1, 5) for batch in batches if batch.mixing]
        assert all((own == own[:, :1]).all() for own in partners) == is_whole
        assert run.go()


def mixed_of(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, Mixing]:
    """Mixed images, the labels of those that were mixed, and how."""
    assert batch.mixed is not None
    assert batch.mixing is not None
    return batch.mixed, batch.first_labels, batch.mixing


@pytest.mark.parametrize("sampler", ["per_class=5", "per_class=none"])
def test_other_images_can_be_mixed_in_place_of_the_batch(cache, sampler):
    changes = ["mixing=mixup", "loss=contrastive", "epochs=1", sampler]
    usual, run = (run_of(small(*changes, f"mixed_from={source}"), cache) for source in ("batch", "others"))
    ones, others = list(usual.feed.batches(1)), list(run.feed.batches(1))
    for one, other in zip(ones, others, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.labels, one.first_labels)
        assert not torch.equal(mixed_of(one)[0], mixed_of(other)[0])
    labels = [mixed_of(batch)[1] for batch in others]
    assert any(not torch.equal(first, batch.labels) for first, batch in zip(labels, others, strict=True))
    if sampler == "per_class=5":
        assert all((first.reshape(-1, 5) == first[::5, None]).all() for first in labels)
    again = list(run.feed.batches(1, start=1))
    assert are_same((mixed_of(batch)[0] for batch in others[1:]), (mixed_of(batch)[0] for batch in again))
    assert run.go()


def test_other_images_are_cut_by_boxes_of_their_own(cache, monkeypatch):
    feed = run_of(small("mixing=mixup", "mixed_from=others"), cache).feed
    cuts, noted = feed._cuts, []
    monkeypatch.setattr(feed, "_cuts", lambda places, generator: noted.append(places) or cuts(places, generator))
    batches = list(feed.batches(0))
    assert len(noted) == 2 * len(batches)
    for batch, own, others in zip(batches, noted[::2], noted[1::2], strict=True):
        assert torch.equal(feed.labels[own], batch.labels)
        assert torch.equal(feed.labels[others], batch.first_labels)
        assert not torch.equal(own, others)


def test_other_images_that_are_hardly_mixed_are_those_of_their_labels(cache):
    """At a concentration near 0 one of two images is mostly all of the mixture: each is found among clean ones."""
    changes = ["mixing=mixup", "mixed_from=others", "concentration=0.02", "crop_scale=1,1", "flip=false"]
    feed = run_of(small(*changes), cache).feed
    clean = feed._crops(places := torch.arange(len(feed.labels)), *feed._cuts(places, torch.Generator()))
    found = [mixed_of(batch) for batch in feed.batches(0)]
    hardly_mixed = [one for one in found if abs(one[2].batch_share - 0.5) > 0.499]
    assert hardly_mixed
    for mixed, first, mixing in hardly_mixed:
        nearest = torch.cdist(mixed.flatten(1).float(), clean.flatten(1).float()).argmin(dim=1)
        labels = first if mixing.batch_share > 0.5 else mixing.other_labels(first)
        assert torch.equal(feed.labels[nearest], labels)


def test_frozen_layers_of_the_backbone_stay_as_they_are(cache):
    run = run_of(small("frozen_layers=conv1,bn1,layer1", "weight_decay=0.1", "average=0.9"), cache)
    network = run.model.backbone.network
    first, last = copies(network.layer1.parameters()), copies(network.layer4.parameters())
    run.go()
    assert are_same(network.layer1.parameters(), first)
    assert not are_same(network.layer4.parameters(), last)


def test_only_new_layers_are_trained_while_warming_up(cache):
    run = run_of(small("warm_up_epochs=2"), cache)
    backbone, heads = copies(run.model.backbone.parameters()), copies(run.model.heads.parameters())

    def after(record) -> bool:
        assert are_same(backbone, run.model.backbone.parameters())
        assert not are_same(heads, run.model.heads.parameters())
        return record["epoch"] == 3

    assert run.go(after)
    assert [record["epoch"] for record in run.records] == [1, 2, 3]
    assert not are_same(backbone, run.model.backbone.parameters())


def test_images_are_scored_at_their_own_size(cache, tmp_path, monkeypatch):
    seen = set()
    embed = loop.embed_all

    def noting(model, pixels, config):
        handle = model.register_forward_pre_hook(lambda _model, images: seen.add(images[0].shape[-1]))
        found = embed(model, pixels, config)
        handle.remove()
        return found

    monkeypatch.setattr(loop, "embed_all", noting)
    run = run_of(small("epochs=1", "test_size=40", "validation_half=second"), cache)
    run.go()
    run.model.save(tmp_path)
    assert seen == {40}
    assert Embedder.load(tmp_path).preprocessing.size == 40


def control(kind: str, cache) -> tuple[list[dict], bool]:
    """The records of a run with this kind of uncertainty, and whether its layer has learned."""
    run = run_of(small(f"uncertainty={kind}", "uncertainty_level=0.2"), cache)
    head = run.model.heads.uncertainty
    assert head is not None
    before = copies(head.parameters())
    assert run.go()
    return run.records, not are_same(before, head.parameters())


def test_a_random_uncertainty_is_a_control_that_learns_nothing(cache):
    records, has_learned = control("random", cache)
    assert not has_learned
    assert "gradient_uncertainty" not in records[-1]
    assert records[-1]["level_clean"] == pytest.approx(0.2, rel=0.3)
    assert records[-1]["level_deviation"] == pytest.approx(0.2 / 3**0.5, rel=0.3)  # lengths from 0 to 0.4
    assert records[-1]["loss"] < records[0]["loss"]


def test_a_common_uncertainty_learns_one_length_for_all_images(cache):
    records, has_learned = control("common", cache)
    assert has_learned
    assert records[-1]["level_deviation"] == pytest.approx(0.0, abs=1e-6)
    assert records[-1]["level_clean"] != records[0]["level_clean"]


def test_a_plain_run_has_no_uncertainty(cache, tmp_path):
    scores = train(small("epochs=1").plain(), cache, tmp_path)
    assert scores["uncertainty"] is None
    assert Embedder.load(tmp_path / "model").heads.uncertainty is None


RUN = """
import sys
sys.path.insert(0, sys.argv[3])
from idml.training import loop
from idml.training.config import Config
from idml.recipes import recipe
loop.LOOK_EVERY = 1
config = recipe("digits").with_changes(["epochs=3", "batch=20", "checkpoint_minutes=0", "average=0.9"])
loop.train(config, sys.argv[1], sys.argv[2])
print("finished", flush=True)
"""


def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(cache, tmp_path):
    """Killed for real, at several moments, and started again by the same command."""
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(RUN))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}

    def start(folder: Path) -> subprocess.Popen:
        words = [sys.executable, str(script), str(cache.folder), str(folder), str(TESTS)]
        return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL)

    assert start(tmp_path / "whole").wait(timeout=120) == 0
    killed = tmp_path / "killed"
    last = RunFolder(killed).checkpoint(LAST)
    for kill in range(2):
        run, before = start(killed), last.stat().st_mtime_ns if last.exists() else 0
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and run.poll() is None:
            if last.exists() and last.stat().st_mtime_ns > before:
                time.sleep(0.01 * kill)
                break
            time.sleep(0.001)
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert start(killed).wait(timeout=120) == 0
    assert_same(weights(tmp_path / "whole"), weights(killed))
    assert [record["epoch"] for record in RunFolder(killed).records()] == [1, 2, 3]


def test_a_run_trains_with_the_noise_of_its_config(cache, tmp_path):
    still, noisy = (small("epochs=1", "uncertainty_level=1", f"uncertainty_noise={noise}") for noise in (0, 0.5))
    found = []
    for number, config in enumerate((still, noisy, noisy)):
        run = run_of(config, cache, tmp_path / str(number))
        assert run.go()
        found.append(run.model.heads.semantic.weight)
    assert torch.equal(found[1], found[2])
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (3, ["average=0.9"]),
        (8, ["average=0.9"]),
        (7, ["accumulate=2", "loss=margin"]),
        (6, ["validation_half=first"]),
        (5, ["uncertainty_noise=0.5", "uncertainty_level=1"]),
    ],
)
def test_an_interrupted_run_ends_as_one_that_was_not_and_its_log_too(cache, tmp_path, monkeypatch, steps, changes):
    monkeypatch.setattr(loop, "LOOK_EVERY", 1)
    config = small("batch=10", "checkpoint_minutes=0", *changes)  # 4 batches an epoch, or 2
    watch = Interrupting(steps)
    with pytest.raises(KeyboardInterrupt):
        run_of(config, cache, tmp_path / "interrupted", watch).go()
    assert watch.has_ended
    runs = [run_of(config, cache, tmp_path / name) for name in ("interrupted", "whole")]
    assert all(run.go() for run in runs)
    assert_same(*(run.model.state_dict() for run in runs))
    logs = [RunFolder(tmp_path / name).records() for name in ("interrupted", "whole")]
    for record in logs[0] + logs[1]:
        assert record.pop("seconds") > 0
    assert logs[0] == logs[1]


def test_a_failure_is_told_after_the_watch_has_ended(cache):
    watch = Interrupting(0)
    with pytest.raises(ValueError, match="too long|NaN or infinity|the loss is"):
        run_of(small("lr=1e30", "clip=none"), cache, watch=watch).go()
    assert watch.has_ended


def test_a_loss_that_is_not_a_number_stops_the_run(cache, tmp_path):
    with pytest.raises(ValueError, match=r"the loss is (nan|inf|no number any more) in epoch 1: lower lr \(1e\+30\)"):
        train(small("lr=1e30", "clip=none", "mixing=none", "introspective=false"), cache, tmp_path)
    assert not RunFolder(tmp_path).checkpoint(LAST).exists()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_that_diverges_is_told_of_more_precision_where_there_is_more(cache, precision):
    with pytest.raises(ValueError, match="lower lr") as raised:
        run_of(
            small("lr=1e30", "clip=none", "mixing=none", "introspective=false", f"precision={precision}"), cache
        ).go()
    assert ("or use precision=float32" in str(raised.value)) == (precision != "float32")


def test_curves_are_of_what_an_epoch_notes(cache, monkeypatch):
    monkeypatch.setattr("math.isfinite", lambda _number: True)  # R-AUROC has no meaning where no query fails
    run = run_of(small("epochs=1", "validation_share=0.5", "batch=10"), cache)
    run.go()
    assert {name for names in PANELS.values() for name in names} <= run.records[0].keys()


@pytest.mark.parametrize("batch", [40, 10])  # the second step ends an epoch, or is in the middle of one
def test_a_step_that_spoils_the_model_is_not_saved(cache, tmp_path, monkeypatch, batch):
    """The loss of a batch is from before its step: with one batch an epoch, it is still fine when the epoch ends."""
    monkeypatch.setattr(loop, "LOOK_EVERY", 1)
    run = run_of(small(f"batch={batch}", "checkpoint_minutes=0", "mixing=none"), cache, tmp_path)

    class Spoiling(Silent):
        steps = 0

        def step(self, *, images: int) -> None:  # noqa: ARG002
            self.steps += 1
            if self.steps == 2:
                run.model.heads.semantic.weight.data.fill_(1e30)  # finite, and no good

    run.watch = Spoiling()
    with pytest.raises(ValueError, match="the loss is nan in epoch .: lower lr .*last.pt is from before"):
        run.go()
    saved = torch.load(RunFolder(tmp_path).checkpoint(LAST), weights_only=True)
    assert saved["place"]["step"] == 1
    assert saved["model"]["heads.semantic.weight"].abs().max() < 10


def test_a_damaged_checkpoint_is_named(cache, tmp_path):
    run_of(small("epochs=1"), cache, tmp_path).go()
    RunFolder(tmp_path).checkpoint(LAST).write_bytes(b"broken off")
    with pytest.raises(ValueError, match=r"last.pt cannot be continued from \(it is damaged\): start anew"):
        run_of(small("epochs=1"), cache, tmp_path).go()


def test_a_checkpoint_that_is_cut_off_anywhere_is_named(cache, tmp_path):
    run = run_of(small("epochs=1"), cache, tmp_path)
    run.go()
    last = RunFolder(tmp_path).checkpoint(LAST)
    whole = last.read_bytes()
    for length in (0, 1, 1000, len(whole) // 2, len(whole) - 700, len(whole) - 22, len(whole) - 1):
        last.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="cannot be continued from"):
            checkpoint.load(last, {"model": run.model}, device=CPU)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, "it lacks 'optimiser'"),
        ({"optimiser": 3}, "cannot be continued from"),
        ([1, 2], "cannot be continued from"),
    ],
)
def test_a_file_of_something_else_is_named_with_what_it_lacks(state, reason, tmp_path):
    torch.save(state, tmp_path / "other.pt")
    optimiser = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))])
    with pytest.raises(ValueError, match=f"other.pt.*{reason}"):
        checkpoint.load(tmp_path / "other.pt", {"optimiser": optimiser}, device=CPU)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RuntimeError("DefaultCPUAllocator: not enough")])
def test_want_of_memory_is_no_fault_of_the_checkpoint(error, tmp_path):
    class Large:
        def state_dict(self) -> dict:
            return {}

        def load_state_dict(self, _state: dict) -> None:
            raise error

    checkpoint.save(tmp_path / "last.pt", Place(), {"large": Large()})
    with pytest.raises(RuntimeError) as raised:
        checkpoint.load(tmp_path / "last.pt", {"large": Large()}, device=CPU)
    assert raised.value is error


def test_a_run_goes_on_where_a_setting_without_effect_is_another(cache, tmp_path):
    run_of(small("epochs=2", "pair_uncertainty=sum_of_norms"), cache, tmp_path).go()
    again = run_of(small("epochs=2"), cache, tmp_path)
    again.go()
    assert again.was_trained


@pytest.mark.parametrize("changes", [[], ["loss=margin", "per_class=5", "distance_scale=relative"]])
def test_what_uncertainty_does_to_the_loss_is_noted(cache, changes):
    run = run_of(small("epochs=1", "batch=20", *changes), cache)
    run.go()
    (record,) = run.records
    assert record["loss_without_uncertainty"] != record["loss_with_uncertainty"]
    assert record["loss_with_uncertainty"] == pytest.approx(record["loss_without_uncertainty"], rel=0.5)  # level 0.1
    plain = run_of(small("epochs=1", "batch=20").plain(), cache)
    plain.go()
    assert "loss_without_uncertainty" not in plain.records[0]


def test_a_layer_that_learns_too_fast_is_warned_of(cache):
    class Listening(Silent):
        told = ""

        def say(self, words: str) -> None:
            self.told += words

    watches = {factor: Listening() for factor in (0.1, 30)}
    for factor, watch in watches.items():
        run_of(small("epochs=3", "tau=1", f"uncertainty_factor={factor}"), cache, watch=watch).go()
    assert "it learns too fast. Lower uncertainty_factor" in watches[30].told
    assert "learns too fast" not in watches[0.1].told
