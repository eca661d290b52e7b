"""Requests generated from the OpenAPI document: the server never fails, and document and answers agree."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test

from fusehash.collection import Collection
from hostile.scale import ATTACK, cases

TOKEN = "a-token-for-tests-only"
PER_OPERATION = cases(120, 800)  # seven of twelve have parameters
STEPS = 10  # of one walk along the links
HYPOTHESIS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.generate],
}


class Api:
    """A schema of a writable app, the checks of its answers, and how many there were."""

    def __init__(self, schemathesis: ModuleType, collection: Collection, client: Any, picture: bytes) -> None:
        self.statuses: dict[str, Counter[int]] = {}
        self._path, self._picture = str(collection.path).encode(), base64.b64encode(picture).decode()
        self.schema = schemathesis.openapi.from_asgi("/api/openapi.json", client.app)
        openapi = schemathesis.specs.openapi.checks
        self.checks = [
            schemathesis.checks.not_a_server_error,
            openapi.status_code_conformance,
            openapi.content_type_conformance,
            openapi.response_headers_conformance,
            openapi.response_schema_conformance,
            openapi.negative_data_rejection,
            openapi.use_after_free,
            self.agree,
        ]

    def give_images(self, case: Any) -> None:
        """Random bytes are no image: every second valid request gets one."""
        items = case.body.get("items") if isinstance(case.body, dict) else None
        if _is_valid(case) and isinstance(items, list):
            for number, item in enumerate(items):
                if item.get("image"):
                    item["image"] = None if number % 2 else self._picture

    def total(self) -> int:
        return sum(counts.total() for counts in self.statuses.values())

    def agree(self, context: Any, response: Any, case: Any) -> None:
        """What the checks of Schemathesis leave open."""
        statuses = self.statuses.setdefault(case.operation.label, Counter())
        statuses[response.status_code] += 1
        assert self._path not in response.content
        if response.status_code == 405:
            assert case.method not in response.headers["allow"][0].split(", ")
        if not _is_valid(case) or response.status_code < 400:
            return
        code = response.json()["error"]["code"]
        asked = {name for name, value in (case.query or {}).items() if value not in ([], None)}
        parts = asked & {"text", "like", "unlike", "picture"}
        if case.operation.label == "GET /api/search" and bool(parts) == ("code" in asked):
            assert response.status_code in (400, 422)  # a rule that the document can only tell in words; no such day
        else:
            assert response.status_code in (404, 422), response.text
            assert code in ("not_found", "no_image", "nothing_to_undo", "unusable"), response.text


def _is_valid(case: Any) -> bool:
    return case.meta is not None and case.meta.generation.mode.is_positive


@pytest.fixture
def api(
    own_collection: Collection,
    client_of: Callable[..., Any],
    optional: Callable[[str], ModuleType],
    draw: Callable[..., bytes],
) -> Api:
    schemathesis = optional("schemathesis")
    client = client_of(own_collection, writable=True, token=TOKEN, hosts=("testserver",))
    return Api(schemathesis, own_collection, client, draw("red", "circle"))


@pytest.mark.slow
def test_document_and_answers_agree(api: Api, optional: Callable[[str], ModuleType]) -> None:
    modes = optional("schemathesis").GenerationMode
    for result in api.schema.get_all_operations():
        for mode in (modes.POSITIVE, modes.NEGATIVE):
            with contextlib.suppress(Unsatisfiable):  # a route without parameters has no invalid request
                _try(api, result.ok(), mode)
    _store("requests", api.statuses)
    assert api.total() >= 6 * PER_OPERATION, api.statuses


def _try(api: Api, operation: Any, mode: Any) -> None:
    @settings(max_examples=PER_OPERATION // 2, derandomize=not ATTACK, **HYPOTHESIS)
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        api.give_images(case)
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
        case.validate_response(response, checks=api.checks)

    check()


@pytest.mark.slow
def test_walks_along_the_links(api: Api) -> None:
    """A hit leads to its item, its thumbnail and its neighbors; what was added can be read, found and removed."""

    class Walk(api.schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {TOKEN}"}}

        def before_call(self, case: Any) -> None:
            api.give_images(case)

        def validate_response(self, response: Any, case: Any, **options: Any) -> None:
            try:
                case.validate_response(response, checks=api.checks)
            except BaseException as failure:
                failures.append(failure)
                raise

    count, failures, start = cases(300, 20_000), list[BaseException](), 0
    while api.total() < count and not failures:
        start += 1
        # What a walk meets depends on what earlier ones have added and removed, which Hypothesis may call flaky.
        with contextlib.suppress(Flaky):
            size = settings(max_examples=count // STEPS, stateful_step_count=STEPS, **HYPOTHESIS)
            run_state_machine_as_test(seed(start)(Walk), settings=size)
    assert not failures, failures
    _store("walks", api.statuses)
    reached = {label for label, counts in api.statuses.items() if counts[200]}
    assert {"GET /api/items/{id}", "GET /api/items/{id}/thumbnail", "GET /api/search"} <= reached, api.statuses


def _store(name: str, statuses: dict[str, Counter[int]]) -> None:
    """Add to the figures of the campaign."""
    folder = os.environ.get("FUSEHASH_ATTACK_OUT")
    if folder:
        path = Path(folder) / "server.json"
        figures = json.loads(path.read_text()) if path.exists() else {}
        total = Counter[int]()
        for counts in statuses.values():
            total.update(counts)
        figures[name] = {"cases": total.total(), "statuses": {str(s): total[s] for s in sorted(total)}, "5xx": sum(
            count for status, count in total.items() if status >= 500
        )}  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n")
