"""Requests generated from the OpenAPI document: the server never fails and answers only what is documented."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from fusehash.collection import Collection

TOKEN = "a-token-for-tests-only"
CASES = 800 if os.environ.get("FUSEHASH_STRESS") == "1" else 120  # per operation; seven of twelve have parameters


@pytest.mark.slow
def test_generated_requests_meet_no_server_error(
    own_collection: Collection, client_of: Callable[..., Any], optional: Callable[[str], ModuleType]
) -> None:
    schemathesis = optional("schemathesis")
    app = client_of(own_collection, writable=True, token=TOKEN, hosts=("testserver",)).app
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    checks = [
        schemathesis.checks.not_a_server_error,
        schemathesis.specs.openapi.checks.status_code_conformance,
        schemathesis.specs.openapi.checks.content_type_conformance,
        schemathesis.specs.openapi.checks.response_schema_conformance,
        schemathesis.specs.openapi.checks.negative_data_rejection,
    ]
    seen: dict[str, dict[int, int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        statuses = seen.setdefault(operation.label, {})
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            with contextlib.suppress(Unsatisfiable):  # a route without parameters has no invalid request
                _try(operation, mode, checks, statuses)
    assert sum(sum(statuses.values()) for statuses in seen.values()) >= 6 * CASES, seen


def _try(operation: Any, mode: Any, checks: list[Any], statuses: dict[int, int]) -> None:
    @settings(
        max_examples=CASES // 2,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"})
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
        case.validate_response(response, checks=checks)

    check()
