import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from idml.models.weights import load_weights, read_weights


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def weights() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return network().state_dict()


@pytest.mark.parametrize("wrapped", [lambda state: state, lambda state: {"state_dict": state, "epoch": 3}])
def test_a_state_dict_is_found_in_what_training_scripts_save(tmp_path, wrapped):
    state = {f"module.{name}": tensor for name, tensor in weights().items()}
    torch.save(wrapped(state), tmp_path / "weights.pt")
    found = read_weights(tmp_path / "weights.pt")
    assert all(torch.equal(found[name], tensor) for name, tensor in weights().items())


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(tmp_path, half):
    save_file({"a": torch.ones(2, dtype=half), "b": torch.ones(2, dtype=torch.int64)}, tmp_path / "weights.safetensors")
    found = read_weights(tmp_path / "weights.safetensors")
    assert (found["a"].dtype, found["b"].dtype) == (torch.float32, torch.int64)


def test_a_classifier_and_a_missing_count_do_not_matter():
    given = weights() | {"head.fc.weight": torch.ones(5, 2)}
    del given["1.num_batches_tracked"]
    model = network()
    load_weights(model, given, source="file", ignored=["head.fc"])
    assert torch.equal(model.state_dict()["0.weight"], given["0.weight"])


def test_what_does_not_fit_is_named_and_nothing_is_loaded():
    model, given = network(), weights()
    before = model.state_dict()["0.bias"].clone()
    given |= {"0.weight": torch.ones(4, 4), "2.weight": torch.ones(1)}
    del given["1.running_var"]
    message = (
        r"file does not fit this network\. missing: 1\.running_var; unexpected: 2\.weight; "
        r"of other shape: 0\.weight \(4, 4\) instead of \(2, 3\)\. Give"
    )
    with pytest.raises(ValueError, match=message):
        load_weights(model, given, source="file")
    assert torch.equal(model.state_dict()["0.bias"], before)


def test_many_that_do_not_fit_are_counted():
    with pytest.raises(ValueError, match=r"missing: 0\.weight, 0\.bias, 1\.weight and 3 more"):
        load_weights(network(), {}, source="file")


class Harmful:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_a_file_is_never_executed(tmp_path):
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"weight": Harmful()}, protocol=2))
    torch.save({"weight": Harmful()}, tmp_path / "new.pt")
    for name in ("old.pt", "new.pt"):
        with pytest.raises(ValueError, match="other objects are not loaded, for they may run code"):
            read_weights(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.safetensors", b"junk", "cannot be read as .safetensors"),
        ("a.pt", b"", "cannot be read as PyTorch weights"),
        ("folder", None, "there is no file"),
    ],
)
def test_files_that_hold_no_weights_are_told(tmp_path, name, content, message):
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_weights(path)


def test_a_file_without_a_state_dict_is_told(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="holds no state dict"):
        read_weights(tmp_path / "a.pt")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_of_a_diverged_model_are_refused(value):
    given = weights()
    given["0.bias"][0] = value
    with pytest.raises(ValueError, match=r"file holds NaN or infinity in 0\.bias: its training diverged"):
        load_weights(network(), given, source="file")
