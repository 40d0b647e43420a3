"""Thresholds of the gate: what another one would have done, marks of people on its alarms, and the precision that follows."""

from __future__ import annotations

import json
import re
import uuid
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries, Settings

from agents.models import Agent
from correction.gate.thresholds import failing, mark_result, precision, scores_of, wilson_interval
from correction.models import AgentEvaluationConfig, CorrectionLog, GateDimensionResult
from tests.console import Browser, list_of, page_of, plain, queries, read, signed_in, staff, viewer
from tests.correction.config_page import own, url_of
from tests.correction.judged_drafts import MODEL, OFFLINE, make_log, verdict
from tests.correction.test_gate_statistics import attempt
from tests.evaluation.judged import cells
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(settings: Settings) -> None:
    settings.JUDGE_MODEL = MODEL


def thresholds_page(agent: Agent | None, query: str = "") -> str:
    return url_of(agent, "thresholds", query)


def panel(html: str, dimension: str = "adherence") -> str:
    return html.split(f'id="threshold-{dimension}"')[1].split("</section>")[0]


def numbers(html: str) -> dict[str, Any]:
    got = re.search(r"data-counts>(.*?)</script>", panel(html))
    assert got is not None
    return dict(json.loads(unescape(got[1])))


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
    _, by_dimension = scores_of(agent=ada, heuristic=False)
    exact = GateDimensionResult.objects.filter(score__lt=float(threshold)).count()

    assert failing(by_dimension["adherence"].drafts, Decimal(threshold)) == exact


def test_only_the_latest_drafts_are_read_of_one_agent_or_of_all() -> None:
    ada = make_agent()
    judged(ada, 1.0, 1.0, 9.0, 9.0, 1.0)
    judged(make_agent("bob"), 0.0)

    assert [scores_of(agent=agent, heuristic=False, limit=3)[0] for agent in (ada, None)] == [3, 3]
    assert scores_of(agent=ada, heuristic=False, limit=3)[1]["adherence"].logged == {90: 2, 10: 1}
    assert scores_of(agent=None, heuristic=False)[1]["adherence"].drafts.total() == 6


def test_what_only_rules_judged_counts_with_models_and_offline_judges() -> None:
    ada = make_agent()
    judged(ada, 1.0, judge=OFFLINE)
    judged(ada, 1.0, 9.0)
    judged(ada, 0.0, judge="", result={"judge": "rule"})

    totals = [scores_of(agent=ada, heuristic=kind)[1]["adherence"].drafts.total() for kind in (True, False)]
    assert totals == [2, 3]


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
    total, got = scores_of(agent=ada, heuristic=False)

    assert (total, got["adherence"].logged, got["adherence"].observed) == (2, {30: 1}, {30: 1})


# -- the page
def test_a_typed_threshold_is_counted_with_precision_and_can_be_used(root: Client) -> None:
    ada = make_agent()
    judged(ada, 6.0, 8.0, 9.0)
    judged(ada, 1.0, 4.5, mark="right")
    judged(ada, 4.0, source="observe", mark="false_alarm")
    shown = read(root, thresholds_page(ada))
    assert "3 of 6 (50 %) judged drafts would have failed." in plain(shown)
    assert "2 of 3 marked alarms below it were right, 67 % (95 % interval 21 to 94 %)" in plain(shown)

    html = read(root, thresholds_page(ada, "?adherence=4.5"))
    text = plain(panel(html))
    assert "2 of 6 (33 %) judged drafts would have failed. With the 5 in effect: 3 of 6 (50 %)." in text
    assert "1 of 2 marked alarms below it were right, 50 %" in text
    assert numbers(html)["drafts"] == [[10, 1], [40, 1], [45, 1], [60, 1], [80, 1], [90, 1]]
    assert numbers(html)["marks"] == [[10, 1, 0], [40, 0, 1], [45, 1, 0]]
    use = re.search(r'href="([^"]*)" data-use', html)
    assert use is not None
    form = read(root, unescape(use[1]))
    assert 'name="gate_adherence_threshold" value="4.5"' in form
    assert not AgentEvaluationConfig.objects.exists(), "nothing is stored before a person saves it"
    root.post(unescape(use[1]), {"_save": "", "seen-gate_adherence_threshold": "", "gate_adherence_threshold": "4.5"})
    assert own(ada) == {"gate_adherence_threshold": Decimal("4.5")}


def test_the_defaults_are_tried_on_the_drafts_of_all_agents(root: Client) -> None:
    judged(make_agent(), 2.0, 8.0)
    judged(make_agent("bob"), 8.0, 8.5, 9.0)

    text = plain(panel(read(root, thresholds_page(None, "?adherence=8.2"))))
    assert "3 of 5 (60 %) judged drafts would have failed." in text


def test_offline_scores_are_apart_and_marked_heuristic(root: Client) -> None:
    ada = make_agent()
    judged(ada, 2.0, judge=OFFLINE, mark="right")
    assert "No first draft was judged for adherence yet" in plain(read(root, thresholds_page(ada)))

    text = plain(read(root, thresholds_page(ada, "?judge=heuristic")))
    assert "judged offline heuristic" in text
    assert "1 of 1 (100 %)" in text
    assert "1 of 1 marked alarms" in text


@pytest.mark.parametrize("typed", ["12", "-1", "nonsense", "%3Cscript%3Ealert(1)", "nan", "1e400", "4.55"])
def test_what_is_not_allowed_is_explained_and_the_one_in_effect_counts(root: Client, typed: str) -> None:
    ada = make_agent()
    judged(ada, 4.0, 8.0)
    html = read(root, thresholds_page(ada, f"?adherence={typed}"))

    assert "allowed: 0 to 9" in html
    assert "1 of 2 (50 %)" in plain(html)
    assert "<script>alert" not in html


# -- who may
def test_who_may_only_view_looks_and_who_may_not_is_refused() -> None:
    ada = make_agent()
    judged(ada, 2.0)
    html = read(signed_in(viewer()), thresholds_page(ada))

    assert "1 of 1 (100 %)" in plain(html)
    assert "data-use" not in html
    assert signed_in(staff("correction.view_correctionlog")).get(thresholds_page(ada)).status_code == 403
    assert Client().get(thresholds_page(ada), secure=True).status_code == 302


def test_the_number_of_queries_does_not_grow(root: Client) -> None:
    ada = make_agent()
    judged(ada, 2.0, mark="right")
    few = [len(queries(root, thresholds_page(agent))) for agent in (ada, None)]
    for number in range(5):
        judged(make_agent(f"a{number}"), 1.0, 5.5, 8.0)
        judged(ada, number + 0.5)
    judged(ada, 1.0, 1.5, mark="false_alarm")

    assert [len(queries(root, thresholds_page(agent))) for agent in (ada, None)] == few


def failed(agent: Agent, dimension: str = "adherence", threshold: str = "5.0", **fields: str) -> GateDimensionResult:
    log = attempt(agent, uuid.uuid4(), 1, "corrected", dims={dimension: 2.0}, **fields)
    GateDimensionResult.objects.filter(log=log).update(threshold=Decimal(threshold))
    return log.dimension_results.get()


@pytest.mark.django_db
def test_precision_stands_per_dimension_threshold_and_judge(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    agent = make_agent()
    for mark in ["right"] * 7 + ["false_alarm"] * 3:
        mark_result(result=failed(agent), mark=mark, user=None)
    mark_result(result=failed(agent, threshold="6.5"), mark="right", user=None)
    mark_result(result=failed(agent, "fluency"), mark="false_alarm", user=None)
    mark_result(result=failed(agent, judge="offline:lexical-1"), mark="right", user=None)
    failed(agent)  # not marked: says nothing
    with django_assert_num_queries(1):
        got = precision()
    assert [(p.dimension, str(p.threshold), p.judge, p.right, p.false_alarms) for p in got] == [
        ("adherence", "5.0", "offline:lexical-1", 1, 0),
        ("adherence", "5.0", "test-model", 7, 3),
        ("adherence", "6.5", "test-model", 1, 0),
        ("fluency", "5.0", "test-model", 0, 1),
    ]
    assert got[1].precision == 0.7
    assert (round(got[1].low, 3), round(got[1].high, 3)) == (0.397, 0.892)  # as published tables have it
    assert [p.dimension for p in precision(agent=agent, dimension="fluency")] == ["fluency"]
    assert precision(agent=make_agent("bob")) == []


@given(st.integers(0, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilsons_interval_holds_the_share_and_stays_within_0_and_1(counted: tuple[int, int]) -> None:
    successes, total = counted
    low, high = wilson_interval(successes, total)
    assert 0 <= low <= high <= 1
    if total:
        assert low - 1e-12 <= successes / total <= high + 1e-12


# -- marks
def mark(client: Client, result: GateDimensionResult, value: str) -> Any:
    return client.post(reverse("admin:correction_mark", args=[result.pk]), {"mark": value})


def test_a_failed_dimension_is_marked_and_the_mark_taken_back(root: Client) -> None:
    log = make_log(make_agent(), {"adherence": 2.0, "fluency": 8.0})
    result = verdict(log)
    html = read(root, page_of(log))
    assert html.count('value="false_alarm"') == 1  # the passed dimension cannot be marked
    answer = mark(root, result, "false_alarm")

    assert answer["Location"] == f"{page_of(log)}#result-{result.pk}"
    result.refresh_from_db()
    assert (result.mark, str(result.marked_by)) == ("false_alarm", "root")
    assert "Marked false alarm root" in plain(read(root, page_of(log)))
    assert "· false alarm" in cells(read(root, list_of(CorrectionLog)), "verdicts")[0]
    mark(root, result, "")
    result.refresh_from_db()
    assert (result.mark, result.marked_by, result.marked_at) == ("", None, None)


def test_what_passed_is_not_marked_and_unknown_marks_are_refused(root: Client) -> None:
    log = make_log(make_agent(), {"adherence": 2.0, "fluency": 8.0})
    mark(root, verdict(log, "fluency"), "right")
    assert "fluency did not fail here" in plain(read(root, page_of(log)))
    mark(root, verdict(log), "nonsense")

    assert not GateDimensionResult.objects.exclude(mark="").exists()
    assert root.post(reverse("admin:correction_mark", args=[987654321]), {"mark": "right"}).status_code == 404
    assert root.get(reverse("admin:correction_mark", args=[verdict(log).pk])).status_code == 405


def test_marking_needs_its_own_permission_and_the_forms_token() -> None:
    log = make_log(make_agent(), {"adherence": 2.0})
    looking = signed_in(viewer())
    html = read(looking, page_of(log))
    assert 'name="mark"' not in html
    assert mark(looking, verdict(log), "right").status_code == 403
    marker = staff("correction.view_correctionlog", "correction.change_gatedimensionresult", username="marker")
    careful = Browser(enforce_csrf_checks=True)
    careful.force_login(marker)
    assert mark(careful, verdict(log), "right").status_code == 403
    assert mark(Browser(), verdict(log), "right")["Location"].startswith(reverse("admin:login"))
    assert verdict(log).mark == ""

    allowed = signed_in(marker)
    assert 'name="mark"' in read(allowed, page_of(log))
    mark(allowed, verdict(log), "right")
    assert verdict(log).mark == "right"
