"""The bench of the clarifier claims nothing that its data do not show."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.bench.clarify import EXAMPLE, asks_back, auc, calibrations, estimates, read_requests, shown
from tests.llm_server import LLMServer


@pytest.mark.parametrize(
    ("scores", "labels", "area"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 1.0),
        ([4, 3, 2, 1], [0, 0, 1, 1], 0.0),
        ([1, 1, 1, 1], [0, 1, 0, 1], 0.5),
        ([1, 3, 2, 4], [0, 0, 1, 1], 0.75),
        ([1, 2, 2, 3], [0, 0, 1, 1], 0.875),
    ],
)
def test_the_area_is_the_share_of_pairs_in_the_right_order(scores: list[float], labels: list[int], area: float) -> None:
    assert auc(np.asarray(scores, dtype=float), np.asarray(labels, dtype=bool)) == area


def test_nothing_is_claimed_where_the_interval_holds_chance() -> None:
    rng = random.Random(1)
    labels = [rng.random() < 0.5 for _ in range(200)]
    noise, good = [rng.random() for _ in labels], [rng.random() + label / 2 for label in labels]

    of_noise, of_good, difference = estimates([noise, good], labels)

    assert shown(of_noise, chance=0.5)[2] == "no claim"
    assert shown(of_good, chance=0.5)[2] == "better than chance"
    assert shown(difference, chance=0.0)[2] == "length is better"


def test_requests_that_all_have_the_same_label_show_nothing() -> None:
    [first, *_] = estimates([[0.1, 0.9], [1.0, 2.0]], [True, True])

    assert shown(first, chance=0.5) == ("-", "-", "no claim: all requests have the same label")


def test_of_the_shipped_requests_rules_ask_back_none_that_is_clear() -> None:
    rows = read_requests(EXAMPLE)
    who, seen = calibrations([request for request, _ in rows])

    asked = [asks_back(request, calibration) for (request, _), calibration in zip(rows, seen, strict=True)]

    assert "heuristic" in who
    assert not any(asks for asks, (_, needs) in zip(asked, rows, strict=True) if not needs)


@pytest.mark.django_db
def test_where_a_model_is_configured_its_risk_is_measured(llm_server: LLMServer) -> None:
    llm_server.always(json={"risk": 0.7})

    who, seen = calibrations(["Which one?", "Why?"])

    assert (who, [calibration.risk for calibration in seen]) == ("test-model", [0.7, 0.7])
    assert "Which one?" in str(llm_server.bodies[0]["messages"])


@pytest.mark.parametrize("line", ["{}", "[1]", "no JSON", '{"request": "x", "needs_clarification": "yes"}'])
def test_a_line_of_another_form_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text('{"request": "x", "needs_clarification": true}\n' + line)

    with pytest.raises(ValueError, match=r"requests\.jsonl, line 2: .*allowed: request"):
        read_requests(path)
