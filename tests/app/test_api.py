"""The API: what it answers, and the one shape of its errors."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fusehash.app import Limits
from fusehash.collection import Collection, read_folder
from fusehash.errors import DataError

SMALL: dict[str, Any] = {"image_encoder": "classical:n_words=8,n_keypoints=20", "text_encoder": "tfidf"}
TOKEN = "a-token-for-tests-only"


def error_of(response: Any) -> str:
    """The code of an error; everything else about its shape is checked."""
    content = response.json()
    assert set(content) == {"error"}
    assert set(content["error"]) == {"code", "message"}
    assert content["error"]["message"].endswith(".")
    assert "\n" not in content["error"]["message"]
    return str(content["error"]["code"])


def test_text_finds_what_it_says(client: Any) -> None:
    found = client.get("/api/search", params={"text": "a green triangle on the left", "k": 5}).json()
    assert len(found["hits"]) == 5
    texts = [hit["item"]["text"] for hit in found["hits"]]
    assert texts[0] == "a green triangle on the left"
    assert all(len({"green", "triangle", "left"} & set(text.split())) >= 2 for text in texts)


def test_every_caption_finds_itself_first(client: Any) -> None:
    for item in client.get("/api/items", params={"limit": 100}).json()["items"]:
        if item["text"]:
            first = client.get("/api/search", params={"text": item["text"], "k": 1}).json()["hits"][0]
            assert first["item"]["text"] == item["text"]


def test_distance_is_the_number_of_bits_that_differ(client: Any) -> None:
    found = client.get("/api/search", params={"text": "a blue square", "k": 20}).json()
    query = int.from_bytes(bytes.fromhex(found["code"]), "little")
    for hit in found["hits"]:
        assert (query ^ int.from_bytes(bytes.fromhex(hit["code"]), "little")).bit_count() == hit["distance"]
    assert found["n_bits"] == 4 * len(found["code"]) == 64


def test_search_like_an_item_leaves_it_out(client: Any) -> None:
    found = client.get("/api/search", params={"like": 1, "k": 10}).json()
    assert [item["id"] for item in found["like"]] == [1]
    assert 1 not in [hit["item"]["id"] for hit in found["hits"]]
    by_code = client.get("/api/search", params={"code": found["code"], "k": 62}).json()
    assert by_code["hits"][0]["distance"] == 0
    assert 1 in [hit["item"]["id"] for hit in by_code["hits"] if hit["distance"] == 0]


def test_search_by_image(client: Any, collection: Collection, draw: Callable[..., bytes]) -> None:
    image = draw("yellow", "circle", "on the left")
    found = client.post("/api/search?k=6", files={"image": ("../../etc/passwd", image, "text/html")}).json()
    assert "a yellow circle on the left" in [hit["item"]["text"] for hit in found["hits"]]
    assert (found["hits"][0]["same_image"], found["hits"][0]["distance"]) == (True, 0)
    assert found["hits"][0]["item"]["text"] == "a yellow circle on the left"
    other = client.post("/api/search?k=6", files={"image": image + b" "}).json()
    assert other["code"] == collection.query_code(image=image).hex()
    again = client.get("/api/search", params={"picture": other["picture"], "k": 6}).json()
    assert [hit["item"]["id"] for hit in again["hits"]] == [hit["item"]["id"] for hit in other["hits"]]


def test_label_and_rerank(client: Any) -> None:
    found = client.get("/api/search", params={"text": "red", "label": "square", "k": 50}).json()
    assert len(found["hits"]) == 20
    assert all("square" in hit["item"]["labels"] for hit in found["hits"])
    plain = client.get("/api/search", params={"text": "red", "rerank": "false"}).json()
    distances = [hit["distance"] for hit in plain["hits"]]
    assert distances == sorted(distances)
    assert client.get("/api/search", params={"text": "red", "label": "none such"}).json()["hits"] == []


def test_items_and_pages(client: Any) -> None:
    first = client.get("/api/items", params={"limit": 40}).json()
    second = client.get("/api/items", params={"limit": 40, "offset": 40}).json()
    assert first["total"] == second["total"] == 62
    ids = [item["id"] for item in first["items"] + second["items"]]
    assert ids == sorted(set(ids))
    assert len(ids) == 62
    assert client.get("/api/items", params={"label": "red"}).json()["total"] == 15
    assert client.get("/api/items/1").json() == first["items"][0]


def test_thumbnails(client: Any) -> None:
    answer = client.get("/api/items/1/thumbnail")
    assert answer.headers["content-type"] == "image/webp"
    assert answer.content[8:12] == b"WEBP"
    again = client.get("/api/items/1/thumbnail", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    note = next(item for item in client.get("/api/items?label=note").json()["items"])
    assert note["thumbnail"] is None
    assert error_of(client.get(f"/api/items/{note['id']}/thumbnail")) == "no_image"


def test_the_collection_at_a_glance(client: Any, collection: Collection) -> None:
    stats = client.get("/api/stats").json()
    assert (stats["name"], stats["items"], stats["writable"]) == ("shapes", 62, False)
    assert "path" not in stats
    assert str(collection.path) not in client.get("/api/stats").text
    labels = client.get("/api/labels").json()["labels"]
    assert {"name": "circle", "count": 20} in labels
    groups = client.get("/api/clusters").json()["clusters"]
    assert sum(group["size"] for group in groups) == 62
    codes = client.get("/api/codes").json()
    assert len(codes["bit_means"]) == 64
    assert sum(codes["distances"]) == pytest.approx(1.0, abs=1e-3)
    assert client.get("/api/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nothing", 404, "not_found"),
        ("/api/nothing", 404, "not_found"),
        ("/static/%2e%2e/app.js", 404, "not_found"),
        ("/..%2fapp.js", 404, "not_found"),
        ("/api/items/999999", 404, "not_found"),
        ("/api/items/0", 422, "invalid"),
        ("/api/items/9223372036854775808", 422, "invalid"),
        ("/api/items/one", 422, "invalid"),
        ("/api/items?limit=100000", 422, "invalid"),
        ("/api/search", 400, "bad_request"),
        ("/api/search?text=a&code=12", 400, "bad_request"),
        ("/api/search?text=before:noon", 422, "unusable"),
        ("/api/search?picture=AAAA", 422, "unusable"),
        ("/api/search?text=a&after=2020-02-30", 422, "unusable"),
        ("/api/search?text=a&offset=20001", 422, "invalid"),
        ("/api/items?order=random", 422, "invalid"),
        ("/api/items/1/image", 404, "no_image"),
        ("/api/items/999999/image", 404, "no_image"),
        ("/api/items/999999/details", 404, "not_found"),
        ("/api/search?text=" + 1001 * "x", 422, "invalid"),
        ("/api/search?text=%20%20", 422, "invalid"),
        ("/api/search?text=qqqqzzzz", 422, "unusable"),
        ("/api/search?text=red&k=0", 422, "invalid"),
        ("/api/search?text=red&k=201", 422, "invalid"),
        ("/api/search?code=12", 422, "unusable"),
        ("/api/search?code=zzzzzzzz", 422, "invalid"),
        ("/api/search?like=4242", 404, "not_found"),
        ("/docs", 404, "not_found"),
    ],
)
def test_errors_have_one_shape(client: Any, path: str, status: int, code: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, error_of(answer)) == (status, code)


def test_wrong_methods(client: Any) -> None:
    methods = {
        "/": "GET, HEAD",
        "/api/search": "GET, POST",
        "/api/items": "GET, POST",
        "/api/items/1": "GET, PATCH, DELETE",
    }
    for path, allowed in methods.items():
        for method in ("PUT", "OPTIONS"):
            answer = client.request(method, path)
            assert (answer.status_code, error_of(answer)) == (405, "method_not_allowed")
            assert answer.headers["allow"] == allowed


def test_a_failure_inside_tells_nothing_of_the_machine(
    collection: Collection, client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret of /home/someone")

    client = client_of(collection)
    monkeypatch.setattr(collection, "labels", fail, raising=False)
    answer = client.get("/api/labels")
    assert (answer.status_code, error_of(answer)) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_collection_that_cannot_be_reached(own_collection: Collection, client_of: Callable[..., Any]) -> None:
    client = client_of(own_collection)
    own_collection.close()
    answer = client.get("/api/items")
    assert (answer.status_code, error_of(answer)) == (503, "unavailable")
    assert str(own_collection.path) not in answer.text


def test_writing_needs_permission_and_the_token(client: Any, writer: Any) -> None:
    item = {"items": [{"key": "new", "text": "a red circle"}]}
    for answer in (client.post("/api/items", json=item), client.delete("/api/items/1")):
        assert (answer.status_code, error_of(answer)) == (403, "read_only")
    for shown in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \u00e9".encode()):
        answer = writer.post("/api/items", json=item, headers={"Authorization": shown})
        assert (answer.status_code, error_of(answer)) == (401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert writer.get("/api/health").json()["items"] == 62


def test_items_come_and_go(writer: Any, draw: Callable[..., bytes]) -> None:
    image = base64.b64encode(draw("green", "circle", "at the top")).decode()
    new = [{"key": "../../up.png", "image": image, "text": "a green circle", "labels": ["new"]}, {"key": "empty"}]
    done = writer.post("/api/items", json={"items": new}).json()
    assert (done["added"], list(done["skipped"])) == (1, ["empty"])
    (id,) = done["ids"]
    assert writer.get(f"/api/items/{id}").json()["key"] == "../../up.png"
    assert writer.get(f"/api/items/{id}/thumbnail").status_code == 200
    found = writer.get("/api/search", params={"text": "green circle", "label": "new"}).json()
    assert [hit["item"]["id"] for hit in found["hits"]] == [id]
    assert error_of(writer.post("/api/items", json={"items": new[:1]})) == "unusable"  # the key is there already
    assert writer.delete(f"/api/items/{id}").json()["removed"] == 1
    assert error_of(writer.delete(f"/api/items/{id}")) == "not_found"
    assert writer.get(f"/api/items/{id}").status_code == 404


def test_edit_remove_and_undo(writer: Any) -> None:
    before = writer.get("/api/items/1").json()
    assert writer.patch("/api/items/1", json={"text": "an old oak", "labels": ["tree"]}).json()["changed"] == 1
    edited = writer.get("/api/items/1").json()
    assert (edited["text"], edited["labels"]) == ("an old oak", ["tree"])
    hits = writer.get("/api/search", params={"text": "oak"}).json()["hits"]
    assert [hit["item"]["id"] for hit in hits if hit["matched"]] == [1]
    assert writer.patch("/api/items/1", json={"text": ""}).json()["changed"] == 1
    assert writer.get("/api/items/1").json()["text"] is None
    assert writer.delete("/api/items/1").json()["removed"] == 1
    added = writer.post("/api/items", json={"items": [{"key": "more", "text": "a blue square"}]}).json()["ids"]
    for state in (62, 62, 62, 62):
        assert writer.post("/api/undo", json={}).status_code == 200
        assert writer.get("/api/stats").json()["items"] <= state
    assert writer.get("/api/items/1").json() == before
    assert writer.get(f"/api/items/{added[0]}").status_code == 404
    assert writer.get("/api/items/1/thumbnail").status_code == 200
    assert writer.get("/api/search", params={"text": before["text"], "k": 1}).json()["hits"][0]["item"]["id"] == 1
    assert error_of(writer.post("/api/undo", json={})) == "nothing_to_undo"
    assert error_of(writer.patch("/api/items/4711", json={"text": "x"})) == "not_found"
    note = writer.get("/api/items?label=note").json()["items"][0]["id"]
    assert error_of(writer.patch(f"/api/items/{note}", json={"text": " "})) == "unusable"


def labels_of(client: Any, *ids: int) -> list[list[str]]:
    return [client.get(f"/api/items/{id}").json()["labels"] for id in ids]


def test_several_items_change_at_once_and_are_undone_as_one(writer: Any) -> None:
    before = labels_of(writer, 1, 2, 3)
    change = {"ids": [1, 2, 3, 2], "add": ["best", " round "], "remove": ["red", "none has it"]}
    assert writer.post("/api/label", json=change).json()["changed"] == 3
    kept = [[label for label in labels if label != "red"] for labels in before]
    assert labels_of(writer, 1, 2, 3) == [[*labels, "best", "round"] for labels in kept]
    assert writer.get("/api/items?label=best").json()["total"] == 3
    assert writer.post("/api/label", json={"ids": [1, 2], "add": ["best"]}).json()["changed"] == 0  # no step to undo
    assert writer.patch("/api/items/1", json={"labels": labels_of(writer, 1)[0]}).json()["changed"] == 0
    assert writer.post("/api/remove", json={"ids": [3, 1]}).json()["removed"] == 2
    assert [writer.get(f"/api/items/{id}").status_code for id in (1, 2, 3)] == [404, 200, 404]
    assert writer.post("/api/undo", json={}).json()["added"] == 2
    assert writer.post("/api/undo", json={}).json()["changed"] == 3
    assert labels_of(writer, 1, 2, 3) == before
    assert error_of(writer.post("/api/undo", json={})) == "nothing_to_undo"


@pytest.mark.parametrize("address", ["/api/remove", "/api/label"])
def test_several_items_change_all_or_none(client: Any, writer: Any, address: str) -> None:
    before, body = labels_of(writer, 1, 2), {"ids": [1]}
    for ids, code in (([1, 4711], "not_found"), ([], "invalid"), ([0], "invalid"), (None, "invalid")):
        assert error_of(writer.post(address, json={"ids": ids})) == code
    assert error_of(writer.post(address, json={"ids": list(range(1, 1002))})) == "invalid"
    assert error_of(client.post(address, json=body)) == "read_only"
    assert error_of(writer.post(address, json=body, headers={"Authorization": "Bearer wrong"})) == "unauthorized"
    assert error_of(writer.post(address, json=body, headers={"Origin": "http://other.example"})) == "cross_site"
    assert error_of(writer.post(address, content=b"{}", headers={"Content-Type": "x/y"})) == "unsupported_media_type"
    assert labels_of(writer, 1, 2) == before


def test_labels_are_several_strings(own_collection: Collection) -> None:
    with pytest.raises(DataError, match="several strings"):
        own_collection.label([1], add="beach")
    with pytest.raises(DataError, match="4711"):
        own_collection.label([1, 4711], add=["beach"])
    assert own_collection.label(iter([2, 2]), remove=["none has it"]).unchanged == 1


def test_undo_keeps_a_bounded_number_of_items(writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("fusehash.app.routes.writing"), "MAX_KEPT", 4)
    for label, ids in (("one", [1]), ("two", [1, 2]), ("three", [1, 2, 3])):
        writer.post("/api/label", json={"ids": ids, "add": [label]})
    assert writer.post("/api/undo", json={}).status_code == 200
    assert error_of(writer.post("/api/undo", json={})) == "nothing_to_undo"  # 1 + 2 + 3 items were too many
    writer.post("/api/label", json={"ids": [1, 2, 3, 4, 5], "add": ["five"]})
    assert writer.post("/api/undo", json={}).status_code == 200  # the last change always can


def test_only_this_site_may_write(writer: Any) -> None:
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
    ):
        for answer in (
            writer.delete("/api/items/1", headers=headers),
            writer.patch("/api/items/1", json={"text": "x"}, headers=headers),
            writer.post("/api/undo", json={}, headers=headers),
        ):
            assert (answer.status_code, error_of(answer)) == (403, "cross_site")
    own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}
    assert writer.patch("/api/items/1", json={"text": "x"}, headers=own).status_code == 200
    assert error_of(writer.patch("/api/items/1", content=b"{}", headers={"Content-Type": "text/plain"}))
    assert error_of(writer.patch("/api/items/1", json={"text": "x" * 250_000})) == "too_large"


def test_originals_are_streamed_from_their_folder(
    photo_collection: Path, photo_folder: Path, client_of: Callable[..., Any]
) -> None:
    content = (photo_folder / "blue0.png").read_bytes()
    with Collection.open(photo_collection) as opened:
        client = client_of(opened)
        answer = client.get("/api/items/1/image")
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["content-length"] == str(len(content))
        tag = answer.headers["etag"]
        assert client.get("/api/items/1/image", headers={"If-None-Match": tag}).status_code == 304
        size = len(content)
        for asked, first, last in (
            ("bytes=0-0", 0, 0),
            ("bytes=10-19", 10, 19),
            (f"bytes={size - 3}-", size - 3, size - 1),
            ("bytes=-5", size - 5, size - 1),
            (f"bytes=5-{10 * size}", 5, size - 1),
            (f"bytes=-{10 * size}", 0, size - 1),
        ):
            part = client.get("/api/items/1/image", headers={"Range": asked})
            assert (part.status_code, part.content) == (206, content[first : last + 1])
            assert part.headers["content-range"] == f"bytes {first}-{last}/{size}"
        for asked in ("bytes=9-2", "bytes=0-1,4-5", "lines=1-2", "bytes=x-y", "bytes=-"):
            assert client.get("/api/items/1/image", headers={"Range": asked}).content == content
        for asked in (f"bytes={size}-", "bytes=-0"):
            refused = client.get("/api/items/1/image", headers={"Range": asked})
            assert (refused.status_code, error_of(refused)) == (416, "no_range")
            assert refused.headers["content-range"] == f"bytes */{size}"
        stale = client.get("/api/items/1/image", headers={"Range": "bytes=0-1", "If-Range": '"other"'})
        assert (stale.status_code, stale.content) == (200, content)


def test_details(photo_collection: Path, photo_folder: Path, client_of: Callable[..., Any]) -> None:
    with Collection.open(photo_collection) as opened:
        details = client_of(opened).get("/api/items/1/details").json()
        assert details["exif"] == {"Camera maker": "Maker <b>"}  # and not the place
        assert details["bytes"] == (photo_folder / "blue0.png").stat().st_size
        assert [near["item"]["key"] for near in details["near"] if near["same_image"]] == ["zcopy.png"]
        assert details["item"]["path"] is None
        shown = client_of(opened, show_paths=True)
        assert shown.get("/api/items/1").json()["path"] == str(photo_folder / "blue0.png")
        groups = shown.get("/api/duplicates").json()["groups"]
        assert any({"blue0.png", "zcopy.png"} <= {item["key"] for item in group} for group in groups)


def test_an_original_that_is_not_what_was_indexed_stays_where_it_is(
    photo_collection: Path, photo_folder: Path, client_of: Callable[..., Any], tmp_path: Path
) -> None:
    folder, photos = tmp_path / "own.collection", tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    with Collection.create(folder, n_bits=32, **SMALL) as own:
        own.build(read_folder(photos))
        client = client_of(own)
        assert client.get("/api/items/1/image").status_code == 200
        (photos / "blue0.png").write_bytes(b"a secret")
        assert error_of(client.get("/api/items/1/image")) == "no_image"
        (photos / "blue0.png").unlink()
        (photos / "blue0.png").symlink_to("/etc/hostname")
        assert error_of(client.get("/api/items/1/image")) == "no_image"
        assert client.get("/api/items/1/details").json()["exif"] == {}
        (photos / "blue0.png").unlink()
        assert error_of(client.get("/api/items/1/image")) == "no_image"
        assert client.get("/api/items/1/thumbnail").status_code == 200


def test_facets_filters_and_pages(client: Any) -> None:
    facets = client.get("/api/facets").json()
    assert {"name": "circle", "count": 20} in facets["labels"]
    assert (facets["with_text"], facets["without_text"]) == (61, 1)
    assert [item["key"] for item in client.get("/api/items?has_text=false").json()["items"]] == ["wordless.png"]
    assert client.get("/api/items?folder=nowhere").json()["total"] == 0
    assert client.get("/api/items?order=added&limit=1").json()["items"][0]["key"] == "wordless.png"
    pages = [client.get(f"/api/search?text=red&k=25&offset={offset}").json() for offset in (0, 25, 50)]
    ids = [hit["item"]["id"] for page in pages for hit in page["hits"]]
    assert len(ids) == len(set(ids)) == 62
    assert pages[0]["matching"] == 16
    castle = client.get("/api/search?text=castle+circle").json()
    assert (castle["missing"], castle["total"]) == (["castle"], 62)
    assert castle["note"] == "No caption contains “castle”; showing what looks closest."
    hits = client.get("/api/search?text=red&k=62").json()["hits"]
    sure = client.get("/api/search?text=red&k=62&min_confidence=0.6").json()["hits"]
    assert 0 < len(sure) < 62
    assert sure == [hit for hit in hits if hit["confidence"] >= 0.6]


def test_composed_queries(client: Any, collection: Collection, draw: Callable[..., bytes]) -> None:
    found = client.get("/api/search?text=triangle&like=1&like=2&unlike=3&k=5").json()
    expected = collection.search("triangle", like=[1, 2], unlike=3, k=5)
    assert [hit["item"]["id"] for hit in found["hits"]] == [hit.id for hit in expected]
    assert ([item["id"] for item in found["like"]], [item["id"] for item in found["unlike"]]) == ([1, 2], [3])
    image = draw("red", "circle") + b" "
    both = client.post("/api/search?text=blue&k=5", files={"image": image}).json()
    assert [hit["item"]["id"] for hit in both["hits"]] == [
        hit.id for hit in collection.search("blue", image=image, k=5)
    ]
    assert error_of(client.get("/api/search?like=1&unlike=4242")) == "not_found"


def test_the_glance_follows_changes(writer: Any) -> None:
    before = writer.get("/api/codes").json()["codes"]
    writer.post("/api/items", json={"items": [{"key": "more", "text": "a blue square"}]})
    assert writer.get("/api/codes").json()["codes"] == before + 1


@pytest.mark.parametrize(
    "body",
    [
        {"items": []},
        {"items": [{"key": ""}]},
        {"items": [{"key": "a", "text": "a", "path": "/etc/passwd"}]},
        {"items": [{"key": "a", "image": "/etc/passwd"}]},
        {"items": [{"key": "a", "image": "http://127.0.0.1/"}]},
        {"items": [{"key": "a", "image": base64.b64encode(b"<svg onload='x'/>").decode()}]},
        {"items": [{"key": "a", "text": "x"}, {"key": "a", "text": "y"}]},
        {"items": [{"key": "a", "text": "x", "labels": ["y" * 201]}]},
        {"items": [{"key": "a", "text": "\ud800"}]},
        [],
    ],
)
def test_items_that_cannot_be_added(writer: Any, body: Any) -> None:
    headers = {"Content-Type": "application/json"}
    answer = writer.post("/api/items", content=json.dumps(body), headers=headers)
    assert answer.status_code == 422
    error_of(answer)
    assert writer.get("/api/health").json()["items"] == 62


def test_batches_are_bounded(own_collection: Collection, client_of: Callable[..., Any]) -> None:
    limits = Limits(batch_items=2, batch_bytes=2_000)
    client = client_of(own_collection, writable=True, token=TOKEN, limits=limits)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    many = {"items": [{"key": str(i), "text": "red"} for i in range(3)]}
    assert error_of(client.post("/api/items", json=many)) == "too_many"
    long = {"items": [{"key": "a", "text": "red " * 1000}]}
    assert error_of(client.post("/api/items", json=long)) == "too_large"
    assert len(own_collection) == 62


def test_writable_without_a_token_is_refused(collection: Collection, client_of: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="token"):
        client_of(collection, writable=True)


def test_description_and_docs_load_nothing_from_elsewhere(client: Any) -> None:
    described = client.get("/api/openapi.json").json()
    assert {"/api/search", "/api/items", "/api/items/{id}", "/api/items/{id}/thumbnail"} <= set(described["paths"])
    assert "HTTPValidationError" not in str(described)
    for path in ("/", "/api/docs", "/app.js", "/app.css", "/docs.js", "/charts.js", "/tools.js", "/icon.svg"):
        answer = client.get(path)
        assert answer.status_code == 200
        outside = answer.text.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1:8000", "")
        assert "http://" not in outside
        assert "https://" not in outside
        again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


@pytest.mark.parametrize("pattern", ["model-*", "text-*"])
def test_a_collection_that_is_damaged_while_it_is_served(
    own_collection: Collection, client_of: Callable[..., Any], caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    client = client_of(own_collection)  # has not read the file yet
    assert client.get("/api/items").status_code == 200
    (file,) = own_collection.path.glob(pattern)
    file.write_bytes(file.read_bytes()[:1000])
    for address in ("/api/search?text=red", "/api/health"):
        answer = client.get(address)
        assert (answer.status_code, error_of(answer)) == (503, "damaged")
        assert str(own_collection.path) not in answer.text
    assert "is damaged; a reindex makes it again" in caplog.text
    assert file.name in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("place", ["replaced", "removed"])
def test_a_collection_whose_folder_was_replaced_or_removed_is_unavailable(
    own_collection: Collection, writer: Any, pictures: Path, place: str
) -> None:
    assert writer.get("/api/health").status_code == 200
    own_collection.path.rename(own_collection.path.with_name("away"))
    if place == "replaced":
        shutil.copytree(pictures, own_collection.path)
    for address in ("/api/health", "/api/stats", "/api/items", "/api/items/1", "/api/labels", "/api/search?text=red"):
        assert writer.get(address).status_code == 503, address
    answer = writer.post("/api/items", json={"items": [{"key": "new", "text": "a red circle"}]})
    assert (answer.status_code, error_of(answer)) == (503, "unavailable")
    assert writer.delete("/api/items/1").status_code == 503
    own_collection.path.with_name("away").rename(own_collection.path.with_name("back"))
    if place == "replaced":
        shutil.rmtree(own_collection.path)
    own_collection.path.with_name("back").rename(own_collection.path)
    assert writer.get("/api/health").status_code == 200
