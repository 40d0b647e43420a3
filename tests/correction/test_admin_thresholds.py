"""What another threshold would have done: counted from the judged drafts, with the precision of its alarms, without storing anything."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from agents.models import Agent
from correction.gate.thresholds import failing, mark_result, scores_of, would_fail
from correction.models import AgentEvaluationConfig, CorrectionLog
from tests.console import HOSTILE, list_of, plain, queries, read, signed_in, staff, viewer
from tests.correction.config_page import own, url_of
from tests.correction.judged_drafts import MODEL, OFFLINE, make_log, verdict
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(settings: Settings) -> None:
    settings.JUDGE_MODEL = MODEL


def page_of(agent: Agent | None, query: str = "") -> str:
    return url_of(agent, "thresholds", query)


def panel(html: str, dimension: str = "adherence") -> str:
    return html.split(f'id="threshold-{dimension}"')[1].split("</section>")[0]


def numbers(html: str) -> dict[str, Any]:
    found = re.search(r"data-counts>(.*?)</script>", panel(html))
    assert found is not None
    return dict(json.loads(unescape(found[1])))


def judged(agent: Agent, *scores: float, mark: str = "", **fields: Any) -> None:
    for score in scores:
        log = make_log(agent, {"adherence": score}, **fields)
        if mark:
            mark_result(result=verdict(log), mark=mark, user=None)


# -- counting
@pytest.mark.parametrize("threshold", ["0", "0.1", "4.1", "4.6", "4.7", "5.0", "8.9", "9"])
def test_tenths_count_what_the_exact_scores_would(threshold: str) -> None:
    ada = make_agent()
    judged(ada, 0.0, 0.05, 0.1, 2.3, 4.1, 4.59, 4.6, 4.65, 4.7, 5.0, 5.7, 8.9, 9.0)
    _, found = scores_of(agent=ada, heuristic=False)
    exact = would_fail(agent=ada, dimension="adherence", threshold=Decimal(threshold), heuristic=False)

    assert failing(found["adherence"].drafts, Decimal(threshold)) == exact.failed


def test_only_first_drafts_that_were_really_about_to_be_said_count() -> None:
    ada, channel = make_agent(), make_channel()
    judged(ada, 3.0)
    judged(ada, 3.0, source="observe")
    judged(ada, 3.0, attempt=2)
    judged(ada, 3.0, source="external")
    judged(ada, 3.0, judge=OFFLINE)
    channel.synthetic = True
    channel.save()
    judged(ada, 3.0, channel=channel)
    total, found = scores_of(agent=ada, heuristic=False)

    assert (total, found["adherence"].logged, found["adherence"].observed) == (2, {30: 1}, {30: 1})


# -- the page
def test_a_typed_threshold_is_counted_with_precision_and_can_be_used(root: Client) -> None:
    ada = make_agent()
    judged(ada, 6.0, 8.0, 9.0)
    judged(ada, 1.0, 4.5, mark="right")
    judged(ada, 4.0, source="observe", mark="false_alarm")
    shown = read(root, page_of(ada))
    assert "3 of 6 (50 %) judged drafts would have failed." in plain(shown)
    assert "2 of 3 marked alarms below it were right, 67 % (95 % interval 21 to 94 %)" in plain(shown)

    html = read(root, page_of(ada, "?adherence=4.5"))
    text = plain(panel(html))
    assert "2 of 6 (33 %) judged drafts would have failed. With the 5 in effect: 3 of 6 (50 %)." in text
    assert "1 of 2 marked alarms below it were right, 50 %" in text
    assert numbers(html)["drafts"] == [[10, 1], [40, 1], [45, 1], [60, 1], [80, 1], [90, 1]]
    assert numbers(html)["marks"] == [[10, 1, 0], [40, 0, 1], [45, 1, 0]]
    use = re.search(r'href="([^"]*)" data-use', html)
    assert use is not None
    form = read(root, unescape(use[1]))
    assert 'name="gate_adherence_threshold" value="4.5"' in form
    assert not AgentEvaluationConfig.objects.exists(), "nothing is stored before somebody saves it"
    root.post(unescape(use[1]), {"_save": "", "seen-gate_adherence_threshold": "", "gate_adherence_threshold": "4.5"})
    assert own(ada) == {"gate_adherence_threshold": Decimal("4.5")}


def test_the_histogram_has_the_same_numbers_as_a_table(root: Client) -> None:
    ada = make_agent()
    judged(ada, 4.4, 4.5, 9.0)
    judged(ada, 4.9, source="observe")
    text = plain(panel(read(root, page_of(ada))))

    assert "judged by the gate" in text
    assert "4 to below 4.5 1 0" in text
    assert "4.5 to below 5 1 1" in text
    assert "8.5 to 9 1 0" in text
    assert 'class="pl-threshold"' in read(root, page_of(ada))


def test_the_defaults_are_tried_on_everybody_and_say_whom_it_would_hit(root: Client) -> None:
    ada, bob = make_agent(), make_agent("bob", display_name=HOSTILE)
    judged(ada, 2.0, 8.0)
    judged(bob, 8.0, 8.5, 9.0)
    html = read(root, page_of(None, "?adherence=8.2"))
    text = plain(panel(html))

    assert "3 of 5 (60 %) judged drafts would have failed." in text
    assert "Ada 2 of 2 (100 %)" in text
    assert "1 of 3 (33 %)" in text
    assert text.index("1 of 3") < text.index("2 of 2"), "those with the most drafts first"
    assert "<script>alert" not in html


def test_offline_scores_are_apart_and_marked_heuristic(root: Client) -> None:
    ada = make_agent()
    judged(ada, 2.0, judge=OFFLINE, mark="right")
    assert "No first draft was judged for adherence yet" in plain(read(root, page_of(ada)))

    text = plain(read(root, page_of(ada, "?judge=heuristic")))
    assert "judged offline heuristic" in text
    assert "1 of 1 (100 %)" in text
    assert "1 of 1 marked alarms" in text


def test_without_drafts_it_says_how_to_get_some(root: Client) -> None:
    text = plain(read(root, page_of(make_agent())))

    assert "manage.py configure ada gate_mode=observe gate_fluency_enabled=on" in text
    assert "no alarm below it was marked right or false alarm yet" in text
    assert "data-use" not in read(root, page_of(make_agent("bob")))


@pytest.mark.parametrize("typed", ["12", "-1", "nonsense", "%3Cscript%3Ealert(1)", "nan", "1e400", "4.55"])
def test_what_is_not_allowed_is_explained_and_the_one_in_effect_counts(root: Client, typed: str) -> None:
    ada = make_agent()
    judged(ada, 4.0, 8.0)
    html = read(root, page_of(ada, f"?adherence={typed}"))

    assert "allowed: 0 to 9" in html
    assert "1 of 2 (50 %)" in plain(html)
    assert "<script>alert" not in html


def test_numbers_lead_to_the_list_behind_them(root: Client) -> None:
    ada = make_agent()
    judged(ada, 2.0, mark="right")
    html = read(root, page_of(ada))

    for query in (f"?agent__id__exact={ada.pk}", f"?agent__id__exact={ada.pk}&mark=any"):
        url = list_of(CorrectionLog, query)
        assert url in unescape(html)
        assert "1 " in plain(read(root, url))


def test_the_page_is_reached_from_the_matrix_and_from_the_form(root: Client) -> None:
    ada = make_agent()

    assert page_of(None) in read(root, list_of(AgentEvaluationConfig))
    assert f"{page_of(ada)}#threshold-fluency" in read(root, url_of(ada))


def test_a_link_fills_in_thresholds_and_nothing_else(root: Client) -> None:
    html = read(root, url_of(make_agent(), query="?gate_mode=off&gate_fluency_threshold=7&reason=x"))

    assert 'name="gate_fluency_threshold" value="7"' in html
    assert not re.search(r'value="off"[^>]*checked', html)
    assert 'name="seen-gate_fluency_threshold" value=""' in html


# -- who may
def test_who_may_only_view_looks_and_who_may_not_is_refused() -> None:
    ada = make_agent()
    judged(ada, 2.0)
    html = read(signed_in(viewer()), page_of(ada))

    assert "1 of 1 (100 %)" in plain(html)
    assert "data-use" not in html
    assert signed_in(staff("correction.view_correctionlog")).get(page_of(ada)).status_code == 403
    assert Client().get(page_of(ada), secure=True).status_code == 302


def test_an_agent_that_is_none_is_not_found(root: Client) -> None:
    url = reverse("admin:correction_agentevaluationconfig_thresholds", args=["999"])
    assert root.get(url).status_code == 404


def test_the_number_of_queries_does_not_grow(root: Client) -> None:
    ada = make_agent()
    judged(ada, 2.0, mark="right")
    few = [len(queries(root, page_of(agent))) for agent in (ada, None)]
    for number in range(5):
        judged(make_agent(f"a{number}"), 1.0, 5.5, 8.0)
        judged(ada, number + 0.5)
    judged(ada, 1.0, 1.5, mark="false_alarm")

    assert [len(queries(root, page_of(agent))) for agent in (ada, None)] == few
