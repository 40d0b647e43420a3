"""Batches in the console: what is out, what came back, and what became of each question."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.kit.models import LLMBatch, LLMBatchRequest
from tests.console import HOSTILE, page_of, plain, read, signed_in, viewer

pytestmark = pytest.mark.django_db


def handed_in(work: int, **fields: object) -> LLMBatch:
    batch: LLMBatch = LLMBatch.objects.create(
        work_id=f"evaluation_run:{work}", role="judge", model="m", base_url="https://judge.example",
        requests=3, answered=2, next_look_at=timezone.now(), **fields,
    )  # fmt: skip
    for number, result in enumerate(("succeeded", "expired", "")):
        LLMBatchRequest.objects.create(
            batch=batch, custom_id=f"{work}-{number}", work_id=batch.work_id, request_key=str(number), label={},
            result=result,
        )  # fmt: skip
    return batch


def test_the_page_of_a_batch_counts_outcomes_and_shows_errors_as_text() -> None:
    batch = handed_in(7, error=HOSTILE)
    page = read(signed_in(viewer()), page_of(batch))
    assert "1 waiting, 1 not answered within a day, 1 answered" in plain(page)
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
