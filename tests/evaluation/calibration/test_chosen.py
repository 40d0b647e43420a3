"""Judgements that a person chooses for others to label: from a message or a score, in no figure of the judge, assigned to a person."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from evaluation.calibration.agreement import calibration
from evaluation.calibration.labels import add_by_hand, draw_label_set, drawn_ids
from evaluation.calibration.models import JudgeCalibration, LabelSet
from evaluation.models import EvaluationScore
from tests.console import HOSTILE, page_of, plain, read, signed_in, staff, superuser
from tests.correction.judged_drafts import make_log
from tests.evaluation.calibration.labelled import KEY, judgements, label_all
from tests.evaluation.judged import LLM, make_run, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

CHOOSE = reverse("admin:calibration_labelset_choose")


@pytest.fixture
def root() -> Client:
    return signed_in(superuser())


def choose(client: Client, one: EvaluationScore, *more: EvaluationScore, name: str = "odd ones", **asked: Any) -> str:
    asked = asked or {"message": one.message_id}
    data = {"score": [each.pk for each in (one, *more)], "name": name}
    url = f"{CHOOSE}?{'&'.join(f'{key}={value}' for key, value in asked.items())}"
    return str(client.post(url, data, follow=True).content.decode())


def test_a_judgement_is_added_from_its_message_score_and_gate_log_and_once(root: Client) -> None:
    [score, other] = judgements([2, 8])
    log = make_log(score.message.agent if score.message else None, {"adherence": 2}, message=score.message)
    for page in (page_of(score), page_of(log), f"/admin/agents/message/{score.message_id}/change/"):
        assert CHOOSE in read(root, page)

    assert "1 judgement added to odd ones." in plain(choose(root, score))
    assert "0 judgements added" in plain(choose(root, score, score=score.pk))
    choose(root, other)
    label_set = LabelSet.objects.get()
    assert drawn_ids(label_set) == [score.pk, other.pk]
    assert label_set.by_hand
    text = plain(read(root, reverse("admin:calibration_labelset_label", args=[label_set.pk])))
    assert "0 of 2" in text


def test_the_page_shows_what_is_to_be_judged_and_not_what_the_judge_gave(root: Client) -> None:
    [score] = judgements([3], fields={"claim": f"Ada is dry {HOSTILE}"})
    html = read(root, f"{CHOOSE}?score={score.pk}")

    assert "Ada is dry" in html
    assert "Remark number 0." in html
    assert "weighed" not in html
    assert HOSTILE not in html


def test_a_message_that_nothing_scored_leads_to_an_evaluation(root: Client) -> None:
    ada = make_agent()
    message = say(make_channel(), ada, "Noted.")
    html = read(root, f"{CHOOSE}?message={message.pk}")

    assert "No judge scored this message yet." in html
    assert reverse("admin:evaluation_agent_evaluate", args=[ada.pk]) in html
    assert root.get(f"{CHOOSE}?message=999").status_code == 404
    assert root.get(CHOOSE).status_code == 404


def test_what_cannot_be_in_one_set_is_refused_by_name(root: Client) -> None:
    [score, other] = judgements([2, 8])
    drawn = draw_label_set(name="random", judge=LLM, dimension="adherence", n=1)
    elsewhere = make_score(
        make_run(score.evaluation_run.agent), 4, message=score.message, raw_score=4, dimension="fluency"
    )

    assert "was drawn at random; allowed: another name" in choose(root, score, name=drawn.name)
    assert "allowed: another name" in choose(root, score, elsewhere)
    assert "no judgement is chosen" in choose(root, other, message=score.message_id)
    assert "name" in choose(root, score, name="")
    choose(root, score)
    assert "is about" in choose(root, elsewhere)
    assert drawn_ids(LabelSet.objects.get(name="odd ones")) == [score.pk]


def test_labels_of_chosen_judgements_are_in_no_figure_of_the_judge() -> None:
    scores = judgements([1, 4, 8, 2, 6])
    draw_label_set(name="random", judge=LLM, dimension="adherence", n=5)
    more = judgements([9, 9], run=scores[0].evaluation_run)
    chosen, added = add_by_hand(name="odd ones", scores=[*more, scores[0]])
    label_all([*scores, *more], [1, 4, 8, 2, 6, 0, 0])

    assert added == 3
    figures = calibration(judge=LLM, dimension="adherence")
    assert (figures.labels, figures.by_hand) == (5, 2)
    assert any("chosen by hand" in note for note in figures.notes())
    assert [mean.label_set for mean in figures.prediction_powered] == ["random"]
    assert calibration(judge=LLM, dimension="adherence", label_set=chosen).labels == 3
    assert JudgeCalibration.objects.get(**KEY._asdict()).is_stale


def test_a_set_is_assigned_and_waits_in_the_queue_of_that_person_until_all_is_labelled(root: Client) -> None:
    [score] = judgements([2])
    label_set, _ = add_by_hand(name="odd ones", scores=[score])
    pam = staff("calibration.add_scorelabel", username="pam")
    page = read(root, page_of(label_set))
    assert 'name="assign"' in page
    html = root.post(page_of(label_set, "assign"), {"assign": str(pam.pk)}, follow=True).content.decode()

    assert "Assigned to pam." in html
    assert "odd ones" in read(signed_in(pam), "/admin/review/")
    assert "odd ones" not in read(root, "/admin/review/").split("pl-review")[1], "it waits for pam"
    label_all([score], [4], annotator="pam", user=User.objects.get(username="pam"))
    assert "Nothing waits for you" in read(signed_in(pam), "/admin/review/")


def test_only_who_may_add_label_sets_and_read_messages_chooses() -> None:
    [score] = judgements([2])
    for n, permission in enumerate(("calibration.add_labelset", "agents.view_message")):
        client = signed_in(staff(permission, "evaluation.view_evaluationscore", username=f"p{n}"))
        assert client.get(f"{CHOOSE}?score={score.pk}").status_code == 403
        assert CHOOSE not in read(client, page_of(score))
