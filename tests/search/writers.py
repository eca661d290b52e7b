"""One of several writers of an index: `python writers.py PATH ROUNDS`. Prints the ids it was given and has kept."""

from __future__ import annotations

import json
import sys

import numpy as np

from fusehash.search import HammingIndex

if __name__ == "__main__":
    path, rounds = sys.argv[1], int(sys.argv[2])
    mine: list[int] = []
    with HammingIndex.open(path, 32, warm=False) as index:
        for number in range(rounds):
            if number % 5 == 4:
                index.remove([mine.pop(number % len(mine))])
            else:
                codes = np.full((1 + number % 3, 4), number % 256, np.uint8)
                mine += index.add(codes).tolist()
    sys.stdout.write(json.dumps(mine))
