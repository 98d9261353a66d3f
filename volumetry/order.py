"""The order of trials: randomised blocks.

Each block holds every cell once, in an order drawn anew, so that a slow drift of the platform spreads over all
cells alike (randomised multiple interleaved trials: Abedi and Brecht, ICPE 2017).
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def blocks(cells: Sequence[tuple[T, int]], seed: int, lane: str) -> list[list[T]]:
    """Blocks 1, 2, ... of the cells; a cell with n repetitions is in the first n blocks.

    The same cells, seed and lane give the same order on every Python: a text seed goes through SHA-512.
    """
    drawn = []
    for block in range(1, max((count for _, count in cells), default=0) + 1):
        present = [cell for cell, count in cells if count >= block]
        random.Random(f"{seed}/{lane}/{block}").shuffle(present)  # noqa: S311 (an order, not a secret)
        drawn.append(present)
    return drawn
