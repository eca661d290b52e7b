"""Write the features of `fusehash demo` as a file, so that the specification raw/emoji can be run on them.

    python benchmarks/emoji_features.py FOLDER
    fusehash bench run raw/emoji --data FOLDER

Pictures and names are encoded as a collection would, by encoders that learn from the training concepts only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def main() -> None:
    """Encode, and write FOLDER/emoji.npz."""
    from fusehash.commands.demo import learn_features

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    _, split, data = learn_features()
    parts = {"tr": split.train, "te": split.query, "db": split.database}
    names = {"I": data.views["image"], "T": data.views["text"], "L": data.labels}
    given.folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        f"{name}_{part}": np.asarray(rows)[chosen] for name, rows in names.items() for part, chosen in parts.items()
    }
    np.savez_compressed(given.folder / "emoji.npz", **arrays)
    print(f"{given.folder / 'emoji.npz'}: {data.split}")


if __name__ == "__main__":
    main()
