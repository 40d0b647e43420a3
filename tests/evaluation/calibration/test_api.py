"""Labels over the API: one's own, blind until saved, and nobody is led by what others gave."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from evaluation.calibration.models import ScoreLabel
from evaluation.models import EvaluationScore
from tests.api_client import LABELS, Program, listed, program, queries, refused
from tests.console import staff, superuser, viewer
from tests.evaluation.judged import OFFLINE, make_run, make_score
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def eve() -> User:
    return superuser("eve")


@pytest.fixture
def client(eve: User) -> Program:
    return program(eve)


@pytest.fixture
def score() -> EvaluationScore:
    return make_score(make_run(make_agent("ada")), 3, raw_score=6)


def give(client: Program, **body: Any) -> Any:
    return client.post(LABELS, body)


def test_a_saved_label_stands_beside_the_judges_score(client: Program, eve: User, score: EvaluationScore) -> None:
    given = give(client, score=score.pk, value=8, note="dry as ever")

    assert given.status_code == 201
    label = given.json()
    assert (label["annotator"], label["value"], label["note"], label["blind"]) == ("eve", 8, "dry as ever", True)
    assert (label["judge_raw_score"], label["judge_score"], label["judge"]) == (6, 3, score.judge)
    assert (label["dimension"], label["proposition_id"], label["heuristic"]) == ("adherence", "dry", False)
    assert ScoreLabel.objects.get().user == eve
    assert client.get(LABELS).json()["results"] == [label]


def test_it_may_be_that_it_cannot_be_told(client: Program, score: EvaluationScore) -> None:
    assert give(client, score=score.pk, value=None).json()["value"] is None


def test_one_that_is_given_again_replaces_and_is_not_blind_any_more(client: Program, score: EvaluationScore) -> None:
    give(client, score=score.pk, value=8)

    again = give(client, score=score.pk, value=6)

    assert (again.status_code, again.json()["value"], again.json()["blind"]) == (200, 6, False)
    assert ScoreLabel.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"score": None, "status": "unscored"}, "it is unscored"),
        ({"score": 9, "status": "trivial"}, "it is trivial"),
        ({"score": None, "count": 4, "status": "scored", "dimension": "ideas_quantity"}, "is a count"),
        ({"score": 9, "raw_score": 9, "judge": "rule"}, "an exact rule scored it"),
    ],
)
def test_what_no_judge_scored_cannot_be_labelled(client: Program, fields: dict[str, Any], says: str) -> None:
    number = fields.pop("score")
    judgement = make_score(make_run(make_agent("ada")), number, **fields)

    assert says in refused(give(client, score=judgement.pk, value=5), 409)["detail"][0]


def test_nobody_who_labels_sees_what_others_gave_before(client: Program, score: EvaluationScore) -> None:
    bob = program(staff("calibration.add_scorelabel", "calibration.view_scorelabel", username="bob"))
    mine = give(client, score=score.pk, value=8).json()["id"]
    reader = program(viewer())

    assert listed(bob, LABELS) == []
    assert listed(reader, LABELS) == [mine], "who may not label cannot be led"

    his = give(bob, score=score.pk, value=2).json()["id"]
    assert listed(bob, LABELS) == listed(client, LABELS) == [his, mine]


def test_the_list_is_narrowed(client: Program, score: EvaluationScore) -> None:
    other = make_score(make_run(make_agent("bea"), judge=OFFLINE), 5, raw_score=5, dimension="fluency")
    one, two = (give(client, score=s.pk, value=5).json()["id"] for s in (score, other))

    for query, expected in {
        "": [two, one],
        f"score={score.pk}": [one],
        f"run={other.evaluation_run_id}": [two],
        "annotator=eve": [two, one],
        "annotator=bob": [],
        "dimension=fluency": [two],
        f"score={10**17}": [],
    }.items():
        assert listed(client, f"{LABELS}?{query}") == expected, query
    assert "score 'x': allowed: the id" in refused(client.get(f"{LABELS}?score=x"))["score"][0]
    assert client.get(f"{LABELS}?dimension=fluency").json()["results"][0]["heuristic"] is True


def test_the_list_costs_the_same_queries_however_long(client: Program, score: EvaluationScore) -> None:
    give(client, score=score.pk, value=8)
    few = queries(client, LABELS)
    for n in range(8):
        give(client, score=make_score(score.evaluation_run, 5, raw_score=5, proposition_id=f"p{n}").pk, value=5)

    assert queries(client, LABELS) == few
