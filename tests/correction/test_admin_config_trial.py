"""What a threshold would change, the precision beside it, and the history to go back in."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from correction.config.configure import config_history
from correction.gate.thresholds import mark_result
from correction.models import AgentEvaluationConfig
from tests.console import HOSTILE, plain, read
from tests.correction.config_page import own, save, url_of
from tests.correction.judged_drafts import OFFLINE, make_log, verdict
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


# -- what would change
def test_the_threshold_in_effect_and_the_typed_one_are_tried_on_the_logged_drafts(
    root: Client, settings: Settings
) -> None:
    settings.JUDGE_MODEL = "claude-haiku-5-5"
    ada = make_agent()
    for score in (2.0, 4.0, 6.0, 8.0):
        make_log(ada, {"adherence": score})
    make_log(ada, {"adherence": 0.0}, judge=OFFLINE)
    assert "With a threshold of 5, 2 of 4 (50 %) judged drafts would have failed." in plain(read(root, url_of(ada)))

    answer = root.post(url_of(ada), {"_try": "", "gate_adherence_threshold": "7", "reason": "just looking"})
    text = plain(answer.content.decode())
    assert "With a threshold of 5, 2 of 4 (50 %)" in text
    assert "With a threshold of 7, 3 of 4 (75 %)" in text
    assert not AgentEvaluationConfig.objects.exists()

    piece = read(root, url_of(ada, "try", "?dimension=adherence&gate_adherence_threshold=8.5"))
    assert "With a threshold of 8.5, 4 of 4 (100 %)" in plain(piece)
    everybody = read(root, url_of(None, "try", "?dimension=adherence&gate_adherence_threshold="))
    assert "With a threshold of 5, 2 of 4 (50 %)" in plain(everybody)
    assert "of all agents" in plain(everybody)


def test_drafts_judged_offline_are_marked_heuristic(root: Client, settings: Settings) -> None:
    settings.JUDGE_MODEL = OFFLINE
    ada = make_agent()
    make_log(ada, {"adherence": 4.0}, judge=OFFLINE)
    make_log(ada, {"adherence": 4.0})
    piece = plain(read(root, url_of(ada, "try", "?dimension=adherence")))

    assert "1 of 1 (100 %) judged drafts would have failed. heuristic" in piece


def test_without_drafts_it_says_how_to_get_some(root: Client) -> None:
    assert "the observe mode collects some" in read(root, url_of(make_agent(), "try", "?dimension=fluency"))


def test_a_threshold_that_is_not_allowed_is_explained_and_not_tried(root: Client) -> None:
    query = "?dimension=fluency&gate_fluency_threshold=%3Cscript%3Ealert(1)%3C/script%3E"
    html = read(root, url_of(make_agent(), "try", query))

    assert "allowed: 0 to 9" in html
    assert "<script" not in html
    assert root.get(url_of(None, "try", "?dimension=nonsense")).status_code == 404


# -- precision
def test_the_precision_of_marked_alarms_stands_beside_the_threshold(root: Client) -> None:
    ada, person = make_agent(), User.objects.create_user("grace")
    for mark in ("right", "right", "right", "false_alarm"):
        mark_result(result=verdict(make_log(ada, {"adherence": 2.0})), mark=mark, user=person)
    mark_result(result=verdict(make_log(make_agent("bob"), {"adherence": 2.0})), mark="right", user=person)
    text = plain(read(root, url_of(ada)))

    assert "Below 5: 3 of 4 marked alarms were right, 75 % (95 % interval 30 to 95 %) claude-haiku-5-5" in text
    assert "4 of 5 marked alarms were right" in plain(read(root, url_of(None)))


# -- history
def test_the_history_says_who_changed_what_and_goes_back(root: Client) -> None:
    ada = make_agent()
    save(root, ada, gate_adherence_enabled="on", reason=HOSTILE)
    entry = config_history(ada)[0].history_id
    save(root, ada, gate_adherence_enabled="off", gate_fluency_enabled="on")
    html = read(root, url_of(ada, "target_history"))

    text = plain(html)
    assert "root changed present state" in text
    assert "adherence enabled: on → became off" in text
    assert "adherence enabled: inherit → became on" in text
    assert "<script>alert" not in html
    answer = root.post(url_of(ada, "target_history"), {"history_id": str(entry)}, follow=True)
    assert f"Ada: back to entry {entry}." in plain(answer.content.decode())
    assert own(ada) == {"gate_adherence_enabled": True}
    assert config_history(ada)[0].user == "root"


@pytest.mark.parametrize("entry", ["0", "nonsense", "99999999999999999999", ""])
def test_an_entry_that_is_not_in_this_history_is_refused(root: Client, entry: str) -> None:
    ada = make_agent()
    answer = root.post(url_of(ada, "target_history"), {"history_id": entry}, follow=True)

    assert "the history of ada has no entry" in plain(answer.content.decode())
    assert not AgentEvaluationConfig.objects.exists()
