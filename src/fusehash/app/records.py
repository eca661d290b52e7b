"""What the API takes and answers, as pydantic models; the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fusehash.collection import Hit, Item, Report

BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"

# A character that is no space. Spelled out, because JSON Schema, Python and the server's regex differ about "\s".
NOT_BLANK = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"


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
    thumbnail: str | None = Field(description="Address of a small JPEG, or null.")

    @classmethod
    def of(cls, item: Item) -> ItemRecord:
        values = {name: getattr(item, name) for name in cls.model_fields if name != "thumbnail"}
        return cls(**values, thumbnail=f"/api/items/{item.id}/thumbnail" if item.has_image else None)


class HitRecord(ApiModel):
    item: ItemRecord
    distance: int = Field(description="Bits in which its code differs from the query's.")
    score: float = Field(description="From -1 to 1; the results are sorted by it.")
    code: str = Field(description="Its code in hexadecimal; bit j is bit j % 8 (lowest first) of byte j // 8.")

    @classmethod
    def of(cls, hit: Hit) -> HitRecord:
        return cls(item=ItemRecord.of(hit.item), distance=hit.distance, score=round(hit.score, 6), code=hit.code.hex())


class SearchAnswer(ApiModel):
    code: str = Field(description="The query's code in hexadecimal.")
    n_bits: int
    generation: int = Field(description="Of all codes here; codes of different generations cannot be compared.")
    like: ItemRecord | None = Field(description="The item that was searched by, or null.")
    hits: list[HitRecord]


class ItemsAnswer(ApiModel):
    """A page of items, in order of id."""

    total: int
    offset: int
    items: list[ItemRecord]


class LabelRecord(ApiModel):
    name: str
    count: int


class LabelsAnswer(ApiModel):
    """All labels, most frequent first."""

    labels: list[LabelRecord]


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
    labels: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=100)
    image: str | None = Field(default=None, min_length=4, pattern=BASE64, description="An image file in base64.")


class AddRequest(ApiModel):
    """Items to add, all or none."""

    items: list[NewItemRecord] = Field(min_length=1)


class ReportAnswer(ApiModel):
    added: int
    removed: int
    ids: list[int]
    skipped: dict[str, str] = Field(description="Key -> why the item cannot be used.")
    notes: list[str]

    @classmethod
    def of(cls, report: Report) -> ReportAnswer:
        return cls(**{name: getattr(report, name) for name in cls.model_fields})
