"""Groups of duplicates as one self-contained HTML page: small copies of the pictures side by side, no scripts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape

from fusehash.dedupe.perceptual import as_hex
from fusehash.dedupe.pictures import Member, PictureGroups
from fusehash.encoders.reading import ImageError, open_image, thumbnail
from fusehash.search.rows import Ids

_SIDE = 192
MAX_PICTURES = 2000  # a page with more would be slow; the CSV file has all
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --keep: #2a7d46; --away: #b3472e }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem }
h1 { font-size: 1.5rem }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; border-top: 1px solid var(--line); padding-top: 1rem }
.group { display: flex; flex-wrap: wrap; gap: 1rem } figure { margin: 0; width: 12rem }
img { width: 12rem; height: 12rem; object-fit: contain; background: #8882; border-radius: 6px }
figcaption { overflow-wrap: anywhere; font-size: .85rem } .keep { color: var(--keep) } .duplicate { color: var(--away) }
.none { display: grid; place-items: center; width: 12rem; height: 12rem; background: #8882; border-radius: 6px }
small { opacity: .75 } code { font-size: .8rem }
"""


def picture_page(found: PictureGroups, progress: Callable[[int, int, str], None] = lambda *_: None) -> str:
    """The page for groups of pictures."""
    shown: list[str] = []
    n_shown = 0
    total = sum(map(len, found.groups))
    for number, group in enumerate(found.groups, start=1):
        if n_shown + len(group) > MAX_PICTURES and shown:
            break
        figures: list[str] = []
        for member in group[:MAX_PICTURES]:
            figures.append(_figure(found, member))
            n_shown += 1
            progress(n_shown, min(total, MAX_PICTURES), "page")
        shown.append(f'<h2>Group {number} · {len(group)} pictures</h2>\n<div class="group">{"".join(figures)}</div>')
    facts = (
        f"{found.n_pictures:,} pictures, {len(found.groups):,} groups, {len(found.duplicates):,} duplicates · "
        f"{found.method}, radius {found.radius}"
    )
    left_out = len(found.groups) - len(shown)
    notes = [f"{left_out:,} more groups are not shown; the CSV file lists them."] if left_out else []
    if found.plain:
        notes.append(f"{len(found.plain):,} pictures have too little structure to be compared.")
    if found.unreadable:
        notes.append(f"{len(found.unreadable):,} files could not be read.")
    return _page(f"Duplicates in {found.folder.name or found.folder}", facts, notes, shown)


def code_page(name: str, radius: int, groups: Sequence[Ids]) -> str:
    """The page for groups of codes: their ids."""
    shown = [
        f"<h2>Group {number} · {len(ids):,} codes</h2>\n<p>{', '.join(map(str, ids[:MAX_PICTURES].tolist()))}</p>"
        for number, ids in enumerate(groups[:MAX_PICTURES], start=1)
    ]
    left_out = len(groups) - len(shown)
    notes = [f"{left_out:,} more groups are not shown; the CSV file lists them."] if left_out else []
    return _page(f"Near-duplicates in {name}", f"{len(groups):,} groups · radius {radius}", notes, shown)


def _figure(found: PictureGroups, member: Member) -> str:
    picture = member.picture
    try:
        content = base64.b64encode(thumbnail(open_image(found.folder / picture.path, side=_SIDE), _SIDE)).decode()
        shown = f'<img loading="lazy" alt="" src="data:image/jpeg;base64,{content}">'
    except ImageError:
        shown = '<div class="none">gone</div>'
    return (
        f'<figure>{shown}<figcaption><b class="{member.kind}">{member.kind}</b> · {member.distance} bits<br>'
        f"{escape(picture.path.as_posix().encode('utf-8', 'replace').decode())}<br>"
        f"<small>{picture.width} × {picture.height} · {picture.size:,} bytes<br>"
        f"<code>{as_hex(picture.code)}</code></small>"
        "</figcaption></figure>"
    )


def _page(title: str, facts: str, notes: Sequence[str], groups: Sequence[str]) -> str:
    body = "\n".join([f"<p>{escape(note)}</p>" for note in (facts, *notes)] + list(groups))
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n{body}\n</html>\n"
    )
