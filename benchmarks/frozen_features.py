"""Recall of a frozen backbone's pooled features on the test classes of CUB-200-2011: is the backbone what it says?

    python benchmarks/frozen_features.py SHARDS [--backbone resnet50_v1] [--weights FILE] [--threads 2]

SHARDS is a folder of tar files that hold `NNN.Class_name/File_name` images, shorter side 256. Cosine
distance, average pooling, centre crop of the backbone's size.
"""

import argparse
import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from idml import evaluate
from idml.models.embedder import Embedder

FIRST_TEST_CLASS = 101
KS = (1, 2, 4, 8)


def test_images(shards: Path) -> Iterator[tuple[int, bytes]]:
    """Class number and encoded image, of the classes from 101 on."""
    for shard in sorted(shards.glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                folder = Path(member.name).parent.name
                if member.isfile() and int(folder.split(".")[0]) >= FIRST_TEST_CLASS:
                    yield int(folder.split(".")[0]), tar.extractfile(member).read()  # pyright: ignore[reportOptionalMemberAccess]


def centre_crop(encoded: bytes, size: int) -> Tensor:
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)  # as `crops.centre_boxes`
    return torch.from_numpy(np.array(image.crop((left, top, left + size, top + size)))).permute(2, 0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shards", type=Path)
    parser.add_argument("--backbone", default="resnet50_v1")
    parser.add_argument("--weights", default="pretrained")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = Embedder(options.backbone, weights=options.weights, pooling="average").eval().to(options.device)
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    labels, encoded = zip(*test_images(options.shards), strict=True)
    start = time.perf_counter()
    features = []
    with torch.inference_mode():
        for place in range(0, len(encoded), options.batch):
            some = [centre_crop(one, model.preprocessing.size) for one in encoded[place : place + options.batch]]
            features.append(model.features(torch.stack(some).to(options.device)))
    rate = len(labels) / (time.perf_counter() - start)
    scores = evaluate(
        torch.cat(features),
        torch.tensor(labels),
        ks=KS,
        distance="cosine",
        clustering=False,
        failures=False,
        resamples=0,
    )
    recalls = " / ".join(f"{100 * scores.recall[k]:.2f}" for k in KS)
    print(f"{options.backbone}: {len(labels)} images at {rate:.1f} img/s, R@1/2/4/8 = {recalls}")


if __name__ == "__main__":
    main()
