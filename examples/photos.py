"""A folder of pictures becomes a collection.

Write pictures and captions into a folder, index it, and search it by words and by a picture. The command line does the
same: `fusehash index photos --captions captions.csv --out my.collection`.
"""

# %%
# A small folder: 300 emoji as PNG files, every second one with a caption.
import csv
from pathlib import Path

from PIL import Image

import fusehash as fh
from fusehash.datasets.emoji import load_emoji

emoji = [item for item in load_emoji() if item.labels[0] in ("Animals & Nature", "Food & Drink")]
folder = Path("photos")
folder.mkdir()
for item in emoji:
    (folder / f"{item.key}.png").write_bytes(item.image)
with open("captions.csv", "w", encoding="utf-8", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["image", "caption"])
    rows.writerows((f"{item.key}.png", item.text) for item in emoji[::2])
print(len(emoji), "pictures,", len(emoji[::2]), "captions")

# %%
# `Collection.build` encodes, learns and stores; a second build processes only what has changed.
from fusehash.datasets.folders import read_folder

collection = fh.Collection.create("my.collection")
report = collection.build(read_folder(folder, captions="captions.csv"))
print(report.added, "items,", f"{len(report.skipped)} of them skipped")

# %%
# Words find pictures, also those without a caption.
names = {f"{item.key}.png": item.character for item in emoji}
for query in ("fruit", "bird", "hot drink"):
    print(f"{query:<10}", *(names.get(Path(hit.item.key).name, "?") for hit in collection.search(query, k=8)))

# %%
# A picture finds what looks and means alike.
whale = next(item for item in emoji if item.name == "whale")
print(*(names.get(Path(hit.item.key).name, "?") for hit in collection.search(image=whale.image, k=8)))

# %%
# What was found, one query per row: words, then the picture of a whale.
found = [collection.search(query, k=8) for query in ("fruit", "bird", "hot drink")]
found.append(collection.search(image=whale.image, k=8))
sheet = Image.new("RGB", (64 * 8, 64 * len(found)), "white")
for row, hits in enumerate(found):
    for column, hit in enumerate(hits):
        picture = Image.open(folder / Path(hit.item.key).name).convert("RGBA").resize((56, 56))
        sheet.paste(picture, (64 * column, 64 * row), picture)
collection.close()
sheet
