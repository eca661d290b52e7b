"""Find duplicates.

Copies of a picture in other sizes and formats have perceptual hashes that differ in a few bits. The command line does
the same: `fusehash dedupe photos`; nothing is deleted unless you ask.
"""

# %%
# A folder of 200 pictures. Every tenth comes twice: smaller, and as JPEG.
import io
from pathlib import Path

from PIL import Image

import fusehash as fh
from fusehash.datasets.emoji import load_emoji

folder = Path("photos")
folder.mkdir()
for number, item in enumerate(load_emoji()[::9][:200]):
    picture = Image.new("RGB", (160, 160), "white")
    emoji = Image.open(io.BytesIO(item.image)).convert("RGBA").resize((160, 160))
    picture.paste(emoji, mask=emoji)
    picture.save(folder / f"{number:03}.png")
    if number % 10 == 0:
        picture.resize((96, 96)).save(folder / f"{number:03} small.jpg", quality=70)
print(len(list(folder.iterdir())), "files")

# %%
# Each group begins with the picture to keep. Emoji that differ by a detail, such as a mouth, are near, too.
from fusehash.dedupe.pictures import find

found = find(folder, radius=4)
for group in found.groups[:6]:
    print(*(f"{member.picture.path} ({member.kind}, {member.distance} bits)" for member in group), sep="   ")
print(len(found.duplicates), "duplicates,", len(found.plain), "pictures without structure left out")

# %%
# A contact sheet, one group per row, the picture to keep first.
groups = found.groups[:4]
sheet = Image.new("RGB", (90 * max(map(len, groups)), 90 * len(groups)), "white")
for row, group in enumerate(groups):
    for column, member in enumerate(group):
        sheet.paste(Image.open(folder / member.picture.path).convert("RGB").resize((80, 80)), (90 * column, 90 * row))
sheet

# %%
# The same for any codes: all near pairs of an index, without comparing every code with every other.
index = fh.HammingIndex(n_bits=64)
model = fh.FuseHash(n_bits=64, random_state=0)
data = fh.datasets.make_paired(n_samples=600, random_state=0)
index.add(model.fit(data.views).codes_)
print(sum(len(ids) for ids, _, _ in index.pairs(radius=2)), "pairs within 2 bits")
print(index.groups(radius=2)[0])
