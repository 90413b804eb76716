import json
import os
import subprocess
import sys

import pytest
import torch

from idml import Embedding, evaluate

RUN = """
import json, sys, torch
import torch.distributed as dist
from idml import Embedding, evaluate
from idml.evaluation import ranks, neighbours
ranks.TILE = neighbours.MOST_ROWS = 16  # so that there is something to share
dist.init_process_group("gloo")
saved = torch.load(sys.argv[1])
scores = evaluate(Embedding(saved["s"], saved["u"]), saved["labels"], resamples=10, clustering=False, shared=True)
with open(f"{sys.argv[1]}.{dist.get_rank()}", "w") as file:
    json.dump([scores.to_dict(), scores.queries.nearest.tolist(), scores.queries.first_rank.tolist()], file)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("classes", [9, 2])
def test_processes_that_share_the_search_find_what_one_finds_alone(tmp_path, classes):
    """Also where classes are so large that ranks are sorted for."""
    generator = torch.Generator().manual_seed(0)
    rows = {"s": torch.randn(150, 5, generator=generator), "u": torch.rand(150, 3, generator=generator)}
    rows["labels"] = torch.arange(150) % classes
    torch.save(rows, tmp_path / "rows")
    (tmp_path / "run.py").write_text(RUN)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*words, str(tmp_path / "run.py"), str(tmp_path / "rows")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    alone = evaluate(Embedding(rows["s"], rows["u"]), rows["labels"], resamples=10, clustering=False)
    assert alone.queries is not None
    assert alone.queries.nearest is not None
    expected = [alone.to_dict(), alone.queries.nearest.tolist(), alone.queries.first_rank.tolist()]
    for rank in range(2):
        assert json.loads((tmp_path / f"rows.{rank}").read_text()) == json.loads(json.dumps(expected))
