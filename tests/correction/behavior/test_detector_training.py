"""The weights are what the sentences give, and the figures on sentences that were held apart are what the documentation says."""

from __future__ import annotations

import json
import sys

import pytest

from correction.behavior.lexicon import DATA
from correction.behavior.linear import WEIGHTS, model
from correction.behavior.training import TRAINING, as_text, read_examples, train

HARD = DATA / "hard_cases.jsonl"


def test_the_same_sentences_give_the_committed_weights() -> None:
    document, probabilities = train(read_examples())

    assert as_text(document) == WEIGHTS.read_text(encoding="utf-8")
    assert len(probabilities) == sum(document["examples"].values())


def test_training_does_not_depend_on_the_order_of_the_sentences() -> None:
    some = [*read_examples()[:60]]

    assert read_examples(TRAINING) == read_examples(tuple(reversed(TRAINING)))
    assert as_text(train(some)[0]) == as_text(train(list(some))[0])


def test_no_hard_case_is_trained_on() -> None:
    trained = {example.text for example in read_examples()}
    held_apart = {json.loads(line)["text"] for line in HARD.read_text(encoding="utf-8").splitlines() if line}

    assert len(held_apart) >= 200
    assert not trained & held_apart


def hard_figures() -> tuple[float, float]:
    """Recall and false-positive rate on the sentences held apart."""
    rows = [json.loads(line) for line in HARD.read_text(encoding="utf-8").splitlines() if line]
    asked = [(row["request"], model().find(row["text"]).has_request) for row in rows]
    requests = [found for request, found in asked if request]
    others = [found for request, found in asked if not request]
    return sum(requests) / len(requests), sum(others) / len(others)


def test_few_messages_that_ask_for_nothing_are_taken_for_requests(capsys: pytest.CaptureFixture[str]) -> None:
    recall, false_positives = hard_figures()

    with capsys.disabled():
        sys.stdout.write(f"\nhard cases: recall {recall:.3f}, false-positive rate {false_positives:.3f}\n")
    assert false_positives <= 0.05


@pytest.mark.xfail(strict=True, reason="figurative and elliptical requests are beyond it: docs/behavior-detection.md")
def test_three_of_four_hard_requests_are_found() -> None:
    assert hard_figures()[0] >= 0.75
