import os

import pytest
import torch
from safetensors.torch import load_file

from idml.tensors import save_tensors


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_others_may_read_the_file_as_far_as_the_umask_lets_them(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        save_tensors(tmp_path / "rows.safetensors", {"rows": torch.ones(2, 3).t()})
    finally:
        os.umask(before)
    assert (tmp_path / "rows.safetensors").stat().st_mode & 0o777 == mode
    assert load_file(tmp_path / "rows.safetensors")["rows"].shape == (3, 2)
