"""What the API takes and answers, as pydantic models; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fusehash.collection import Hit, Item, Report
from fusehash.collection.items import storable_text

BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

# A character that is no space. Spelled out, because JSON Schema, Python and the server's regex differ about "\s".
NOT_BLANK = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"

MAX_ID = 2**53 - 1  # JavaScript rounds larger numbers
MAX_CHANGED = 1_000  # items that one request may change

Id = Annotated[int, Field(ge=1, le=MAX_ID)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=MAX_CHANGED)]
Labels = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=100)]


class ApiModel(BaseModel):
    """Base of all models: no fields but the named ones."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(ApiModel):
    code: str = Field(
        description="A word for programs. Of 422, `invalid`: the request breaks this document; `unusable`: its content "
        "does not suit the collection, such as an image that cannot be read, unknown words, or a key that exists.",
        examples=["not_found"],
    )
    message: str = Field(description="One sentence for people.")


class ErrorAnswer(ApiModel):
    """The shape of every error."""

    error: ErrorDetail


class ItemRecord(ApiModel):
    id: int
    key: str
    text: str | None
    labels: list[str]
    width: int = Field(description="Of the image, in pixels; 0 without one.")
    height: int
    day: str = Field(description="When its picture was taken, else when the file was changed; YYYY-MM-DD or nothing.")
    path: str | None = Field(description="Where its image was read from, if this server shows paths; or null.")
    thumbnail: str | None = Field(description="Address of a small picture, or null.")
    image: str | None = Field(description="Address of the original picture, or null.")

    @classmethod
    def of(cls, item: Item, *, show_path: bool = False) -> ItemRecord:
        values = {name: getattr(item, name) for name in ("id", "key", "text", "labels", "width", "height", "day")}
        address = f"/api/items/{item.id}"
        return cls(
            **values,
            path=storable_text(str(item.path)) if show_path and item.path is not None else None,
            thumbnail=f"{address}/thumbnail" if item.has_image else None,
            image=f"{address}/image" if item.has_image and item.path is not None else None,
        )


class HitRecord(ApiModel):
    item: ItemRecord
    distance: int = Field(description="Bits in which its code differs from the query's.")
    score: float = Field(description="From -1 to 1; results of equal confidence are sorted by it.")
    confidence: float | None = Field(
        description="In a search by words: how likely somebody who describes this item uses a word of the query, by "
        "its picture and its caption, to two digits; the results are sorted by it. Null if it is not known."
    )
    matched: list[str] = Field(description="Words of its caption that the query asks for.")
    same_image: bool = Field(description="Whether its image is the one that was searched with, byte by byte.")
    code: str = Field(description="Its code in hexadecimal; bit j is bit j % 8 (lowest first) of byte j // 8.")

    @classmethod
    def of(cls, hit: Hit, *, show_path: bool = False) -> HitRecord:
        return cls(
            item=ItemRecord.of(hit.item, show_path=show_path),
            distance=hit.distance,
            score=round(hit.score, 6),
            confidence=None if hit.confidence is None else round(hit.confidence, 2),
            matched=list(hit.matched),
            same_image=hit.same_image,
            code=hit.code.hex(),
        )


class SearchAnswer(ApiModel):
    code: str = Field(description="The query's code in hexadecimal; nothing if the query only filters.")
    n_bits: int
    generation: int = Field(description="Of all codes here; codes of different generations cannot be compared.")
    like: list[ItemRecord] = Field(description="The items that the results should be like.")
    unlike: list[ItemRecord] = Field(description="The items that the results should not be like.")
    total: int = Field(description="Items that the filters of the query leave.")
    matching: int | None = Field(description="Of these, items whose captions have all words; null without words.")
    missing: list[str] = Field(description="Words of the query that no caption has.")
    note: str = Field(description="One sentence about what the results are worth, or nothing.")
    picture: str = Field(description="Stands for the images of this query in a later one, as `picture`; or nothing.")
    offset: int
    hits: list[HitRecord]


class ItemsAnswer(ApiModel):
    """A page of items."""

    total: int
    offset: int
    items: list[ItemRecord]


class LabelRecord(ApiModel):
    name: str
    count: int


class LabelsAnswer(ApiModel):
    """All labels, most frequent first."""

    labels: list[LabelRecord]


class FolderRecord(ApiModel):
    name: str
    count: int


class YearRecord(ApiModel):
    year: int
    count: int


class FacetsAnswer(ApiModel):
    """What the items can be filtered by, and how many there are of each kind."""

    labels: list[LabelRecord] = Field(description="Most frequent first.")
    folders: list[FolderRecord]
    years: list[YearRecord] = Field(description="Newest first.")
    with_text: int
    without_text: int


class NearRecord(ApiModel):
    item: ItemRecord
    distance: int = Field(description="Bits in which the codes differ.")
    same_image: bool = Field(description="Whether the pictures are equal byte by byte.")


class DetailsAnswer(ApiModel):
    """One item with all that is known about it."""

    item: ItemRecord
    bytes: int = Field(description="Of the original picture; 0 without one.")
    exif: dict[str, str] = Field(description="What the camera wrote into the picture, without the place.")
    near: list[NearRecord] = Field(description="Items with the same picture or one that looks the same, nearest first.")


class DuplicatesAnswer(ApiModel):
    """Groups of items with the same picture, or with pictures that look the same, largest first."""

    total: int = Field(description="Groups in all.")
    groups: list[list[ItemRecord]]


class ClusterRecord(ApiModel):
    """A group of items with similar codes."""

    words: list[str]
    size: int
    examples: list[ItemRecord]


class ClustersAnswer(ApiModel):
    """Groups of similar items, largest first."""

    clusters: list[ClusterRecord]


class CodesAnswer(ApiModel):
    """How the codes use their bits."""

    codes: int
    n_bits: int
    distinct: int = Field(description="Different codes.")
    bit_means: list[float] = Field(description="Mean of each bit as -1 or +1; 0 is a bit that halves the collection.")
    bit_entropy: list[float]
    distances: list[float] = Field(description="Share of random pairs at distance 0, 1, 2, ...")


class LimitsRecord(ApiModel):
    upload_bytes: int
    text_length: int
    results: int
    max_offset: int


class StatsAnswer(ApiModel):
    """What the collection holds."""

    name: str
    items: int
    images: int
    texts: int
    pairs: int
    codes: int = Field(description="Items that can be found.")
    n_bits: int
    generation: int = Field(description="The current generation; changes with a switch.")
    trained: bool
    after_training: int
    advice: str
    image_encoder: str
    text_encoder: str
    bytes: int
    writable: bool
    limits: LimitsRecord


class HealthAnswer(ApiModel):
    """The server runs and can read the collection."""

    status: str
    version: str
    items: int


class NewItemRecord(ApiModel):
    """Something to add: an image, a text, or both."""

    key: str = Field(min_length=1, max_length=500, pattern=NOT_BLANK, description="A name that no other item has.")
    text: str | None = Field(default=None, max_length=20_000)
    labels: Labels = []
    image: str | None = Field(default=None, min_length=4, pattern=BASE64, description="An image file in base64.")


class AddRequest(ApiModel):
    """Items to add, all or none."""

    items: list[NewItemRecord] = Field(min_length=1)


class EditRequest(ApiModel):
    """What an item gets; null leaves it as it is."""

    text: str | None = Field(default=None, max_length=20_000)
    labels: Labels | None = None


class RemoveRequest(ApiModel):
    """Items to remove, all or none."""

    ids: Ids


class LabelRequest(ApiModel):
    """Labels that items lose, then labels that they get, all or none."""

    ids: Ids
    add: Labels = []
    remove: Labels = []


class ReportAnswer(ApiModel):
    added: int
    changed: int
    removed: int
    ids: list[int]
    skipped: dict[str, str] = Field(description="Key -> why the item cannot be used.")
    notes: list[str]

    @classmethod
    def of(cls, report: Report) -> ReportAnswer:
        return cls(**{name: getattr(report, name) for name in cls.model_fields})
