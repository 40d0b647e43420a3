"""Beside a message: how it was judged in its newest evaluation; and what people look for in lists of scores."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from agents.models import Message
from evaluation.models import EvaluationRun, EvaluationScore
from tests.api_client import program
from tests.console import HOSTILE, list_of, page_of, plain, queries, read, signed_in, staff
from tests.evaluation.judged import cells, make_run, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def judged_message(scores: dict[str, int | None], *, runs: int = 1) -> Message:
    agent = make_agent()
    message = say(make_channel(), agent, "Noted.")
    for _ in range(runs):
        run = make_run(agent)
        for proposition, score in scores.items():
            make_score(run, score, message=message, proposition_id=proposition, reason="" if score else "too late")
    return message


def note(html: str) -> str:
    found = re.search(r'<details class="pl-gate" id="scores-.*?\n</details>', html, flags=re.S)
    assert found is not None
    return plain(found.group())


def test_the_lowest_scores_of_the_newest_evaluation_come_first(root: Client) -> None:
    message = judged_message({"dry": 8, "careful": 2, "late": None}, runs=2)
    text = note(read(root, page_of(message.channel, "transcript")))

    assert text.startswith("lowest 2 of 9 2 scored")
    assert text.index("careful adherence 2") < text.index("dry adherence 8") < text.index("late adherence unscored")
    assert "too late" in text
    newest = EvaluationRun.objects.latest("pk").pk
    assert f"In evaluation {newest} , the newest. 6 scores of this message in all." in text


def test_unscored_is_said_and_is_no_zero(root: Client) -> None:
    message = judged_message({"late": None})

    text = note(read(root, page_of(message.channel, "transcript")))
    assert "not scored" in text
    assert "0 scored" in text


def test_without_the_right_to_messages_neither_text_nor_quotes_show() -> None:
    message = judged_message({"dry": 2})
    EvaluationScore.objects.update(reasoning="It said: a secret.", flaws=["a secret"])
    Message.objects.filter(pk=message.pk).update(text="A SECRET")
    score = EvaluationScore.objects.get()
    EvaluationScore.objects.update(context_snippet="A SECRET", justification="a secret", recommendations="a secret")
    user = staff("evaluation.view_evaluationrun", "evaluation.view_evaluationscore", "agents.view_channel")
    scores = signed_in(user)

    for url in (list_of(EvaluationScore), page_of(score)):
        html = read(scores, url)
        assert "secret" not in html.lower()
        assert f"message {message.position}" in html
    assert "secret" not in read(scores, page_of(score.evaluation_run)).lower()
    for route in ("", "scores/", "scores/?blind=true"):
        answer = program(user).get(f"/api/evaluations/{score.evaluation_run_id}/{route}")
        assert answer.status_code == 200
        assert "secret" not in answer.content.decode().lower()
    assert scores.get(page_of(message.channel, "transcript")).status_code == 403


def test_without_the_right_to_scores_a_transcript_shows_none() -> None:
    message = judged_message({"dry": 2})
    reader = signed_in(staff("agents.view_channel", "agents.view_message"))

    assert "scored" not in plain(read(reader, page_of(message.channel, "transcript")))


def test_a_transcript_takes_no_more_queries_for_more_judged_messages(root: Client) -> None:
    message = judged_message({"dry": 2})
    few = len(queries(root, page_of(message.channel, "transcript")))
    for _ in range(5):
        later = say(message.channel, message.agent, HOSTILE)  # type: ignore[arg-type]
        for proposition in ("dry", "careful"):
            make_score(make_run(later.agent), 3, message=later, proposition_id=proposition, reasoning=HOSTILE)

    assert len(queries(root, page_of(message.channel, "transcript"))) == few
    assert HOSTILE not in read(root, page_of(message.channel, "transcript"))


def test_scores_are_found_by_their_height_and_the_tags_of_messages(root: Client) -> None:
    message = judged_message({"low": 3, "middle": 4, "high": 9, "late": None})
    Message.objects.filter(pk=message.pk).update(tags={"build": "41"})
    make_score(make_run(make_agent("bob")), 3, proposition_id="untagged")

    def found(query: str) -> set[str]:
        return {cell.split()[0] for cell in cells(read(root, list_of(EvaluationScore, query)), "claimed")}

    assert found("?height=low") == {"low", "untagged"}
    assert found("?height=middle&tag=build%3D41") == {"middle"}
    assert found("?height=high") == {"high"}
    assert found("?tag=build%3D41") == {"low", "middle", "high", "late"}


def test_evaluations_are_found_by_dimension_error_and_tags(root: Client) -> None:
    agent = make_agent()
    make_run(agent, dimensions=["adherence", "fluency"], where={"build": "41"})
    make_run(agent, dimensions=["ideas_quantity"], status="failed", error="no message")

    def found(query: str) -> int:
        return len(cells(read(root, list_of(EvaluationRun, query)), "status"))

    assert [found(f"?dimension={value}") for value in ("adherence", "fluency", "ideas_quantity", "convergence")] == [
        *(1, 1, 1, 0)
    ]
    assert (found("?error=yes"), found("?error=no"), found("?tag=build%3D41"), found("?tag=build%3D4")) == (1, 1, 1, 0)
