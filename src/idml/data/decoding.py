"""Decoding in this process, one image at a time, and in others, many at a time."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from idml.data import decoder
from idml.data.decoder import Decoded, Stored, decode_image


def decode(data: bytes, *, size: int | None = None, square: bool = False) -> UInt8[np.ndarray, "h w 3"]:
    """The RGB pixels that these bytes of an image file hold, as `decode_image` makes them."""
    return np.asarray(decode_image(data, size=size, square=square))


class Decoder:
    """Another process that decodes. It lives until `close`, or as long as this one."""

    def __init__(self, *, size: int, square: bool):
        command = [sys.executable, "-P", decoder.__file__, str(size), str(int(square))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, images: Sequence[Stored]) -> list[Decoded]:
        sender, receiver = self._process.stdin, self._process.stdout
        assert sender is not None
        assert receiver is not None
        try:
            pickle.dump(list(images), sender)
            sender.flush()
            return [Decoded(*fields) for fields in pickle.load(receiver)]
        except (EOFError, OSError, pickle.UnpicklingError):
            raise ValueError(
                f"a decoding process ended while at {images[0][0]} or the {len(images) - 1} after it, "
                "perhaps for want of memory: try fewer workers."
            ) from None

    def kill(self) -> None:
        """End it at once; a call that is under way raises."""
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.communicate()
