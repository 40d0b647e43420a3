"""Thresholds of the gate: what another one would have done, marks of people on its alarms, and the precision that follows."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries, Settings

from agents.models import Agent, Channel, Message
from correction.admin.display import share
from correction.gate.thresholds import Scores, failing, mark_result, precision, replay, wilson_interval
from correction.models import CorrectionLog, GateDimensionResult, GateSession
from evaluation.windows import MessageWindow
from tests.console import list_of, page_of, plain, read, signed_in, staff, viewer
from tests.correction.judged_drafts import MODEL, OFFLINE, make_log, verdict
from tests.correction.test_gate_statistics import attempt
from tests.evaluation.judged import cells, make_run, make_score
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _model(settings: Settings) -> None:
    settings.JUDGE_MODEL = MODEL


def judged(agent: Agent, *scores: float, mark: str = "", **fields: Any) -> list[Message]:
    """Messages of the agent whose first drafts got these scores for adherence."""
    channel = fields.pop("channel", None) or Channel.objects.filter(slug="office").first() or make_channel()
    messages = []
    for score in scores:
        message = say(channel, agent, f"Remark {score}.", synthetic=channel.synthetic)
        log = make_log(agent, {"adherence": score}, message=message, channel=channel, **fields)
        if mark:
            mark_result(result=verdict(log), mark=mark, user=None)
        messages.append(message)
    return messages


def of_adherence(agent: Agent | None, *, heuristic: bool = False, last: int = 50) -> Scores:
    return replay(agent=agent, heuristic=heuristic, last=last).dimensions.get("adherence", Scores())


@pytest.mark.parametrize("threshold", ["0", "0.1", "4.6", "9"])
def test_tenths_count_what_the_exact_scores_would(threshold: str) -> None:
    ada = make_agent()
    judged(ada, 0.0, 0.05, 0.1, 2.3, 4.1, 4.59, 4.6, 4.65, 4.7, 5.0, 5.7, 8.9, 9.0)
    exact = GateDimensionResult.objects.filter(score__lt=float(threshold)).count()

    assert failing(of_adherence(ada).messages, Decimal(threshold)) == exact


def test_only_the_latest_messages_are_read_of_one_agent_or_of_all() -> None:
    ada = make_agent()
    judged(ada, 1.0, 1.0, 9.0, 9.0, 1.0)
    judged(make_agent("bob"), 0.0)

    assert [len(replay(agent=agent, heuristic=False, last=3).messages) for agent in (ada, None)] == [3, 3]
    assert of_adherence(ada, last=3).messages == {90: 2, 10: 1}
    assert of_adherence(None).messages.total() == 6


def test_what_only_rules_judged_counts_with_models_and_offline_judges() -> None:
    ada = make_agent()
    judged(ada, 1.0, judge=OFFLINE)
    judged(ada, 1.0, 9.0)
    judged(ada, 0.0, judge="", result={"judge": "rule"})

    assert [of_adherence(ada, heuristic=kind).messages.total() for kind in (True, False)] == [2, 3]


def test_only_first_drafts_of_real_messages_count() -> None:
    ada, played = make_agent(), make_channel("played")
    judged(ada, 3.0)
    judged(ada, 4.0, source="observe")
    judged(ada, 3.0, attempt=2)
    judged(ada, 3.0, source="external")
    judged(ada, 3.0, judge=OFFLINE)
    make_log(ada, {"adherence": 3.0})  # a draft that was never sent
    played.synthetic = True
    played.save()
    judged(ada, 3.0, channel=played)
    got = replay(agent=ada, heuristic=False)

    assert len(got.messages) == 5
    assert got.dimensions["adherence"].by_origin == {"gate": {30: 1}, "observed": {40: 1}, "evaluated": {}}
    assert len(got.unjudged(["adherence"])) == 3
    assert len(got.unjudged(["adherence", "fluency"])) == 5


def test_unscored_messages_are_not_asked_again_but_failed_ones_are() -> None:
    ada = make_agent()
    unscored, late = judged(ada, 2.0, 2.0)
    for message, status in ((unscored, "unscored"), (late, "timeout")):
        columns = {"status": status, "score": None, "passed": True}
        GateDimensionResult.objects.filter(log__session__message=message).update(**columns)
    got = replay(agent=ada, heuristic=False)

    assert got.dimensions == {}
    assert got.unjudged(["adherence"]) == [late.pk]


def test_an_evaluation_is_combined_as_the_gate_combines() -> None:
    ada = make_agent()
    judged_by_gate, evaluated, rule_broken = judged(ada, 2.0, 2.0, 2.0)
    CorrectionLog.objects.exclude(session__message=judged_by_gate).delete()
    old, new = make_run(ada), make_run(ada)
    for run, score in ((old, 1), (new, 6)):
        make_score(run, score, message=evaluated)
        make_score(run, score + 1, message=evaluated, proposition_id="other")
        make_score(run, 9, message=judged_by_gate)
    make_score(new, 8, message=rule_broken)
    make_score(new, 0, message=rule_broken, proposition_id="no-lists", judge="rule")
    for apart in ({"hard": True}, {"swap_test": "own-words"}, {"simulated": True}, {"judge": OFFLINE}):
        make_score(make_run(ada, **apart), 0, message=evaluated)
    got = replay(agent=ada, heuristic=False)

    assert [got.messages[m.pk]["adherence"].tenths for m in (judged_by_gate, evaluated, rule_broken)] == [20, 65, 0]
    assert got.judges == (MODEL,)
    assert got.unjudged(["adherence"]) == []
    assert set(got.unjudged(["adherence"], evaluated=True)) == {evaluated.pk, rule_broken.pk}
    assert set(got.sent_back({"adherence": Decimal(5)})) == {judged_by_gate.pk, rule_broken.pk}
    assert set(got.sent_back({"adherence": Decimal(7)})) == {judged_by_gate.pk, evaluated.pk, rule_broken.pk}


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
    ever = MessageWindow("")
    with django_assert_num_queries(1):
        got = precision(agent=None, window=ever)
    assert [(p.dimension, str(p.threshold), p.judge, p.right, p.false_alarms) for p in got] == [
        ("adherence", "5.0", "offline:lexical-1", 1, 0),
        ("adherence", "5.0", "test-model", 7, 3),
        ("adherence", "6.5", "test-model", 1, 0),
        ("fluency", "5.0", "test-model", 0, 1),
    ]
    assert got[1].precision == 0.7
    assert (round(got[1].low, 3), round(got[1].high, 3)) == (0.397, 0.892)  # as published tables have it
    assert [p.dimension for p in precision(agent=agent, window=ever, dimension="fluency")] == ["fluency"]
    assert precision(agent=make_agent("bob"), window=ever) == []


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


def test_marking_needs_its_own_permission() -> None:
    log = make_log(make_agent(), {"adherence": 2.0})
    looking = signed_in(viewer())
    assert 'name="mark"' not in read(looking, page_of(log))
    assert mark(looking, verdict(log), "right").status_code == 403

    allowed = signed_in(
        staff("correction.view_correctionlog", "correction.change_gatedimensionresult", username="marker")
    )
    assert 'name="mark"' in read(allowed, page_of(log))
    mark(allowed, verdict(log), "right")
    assert verdict(log).mark == "right"


def test_a_replay_counts_messages_for_as_many_as_they_stand_for() -> None:
    ada = make_agent()
    rare = make_channel("rare")
    Channel.objects.filter(pk=rare.pk).update(inclusion_probability=0.1)
    rare.refresh_from_db()
    judged(ada, 2.0, channel=rare)
    judged(ada, 2.0, 8.0, 8.0, channel=make_channel("common"))
    evaluated = say(rare, ada, "Judged in an evaluation.")
    make_score(make_run(ada), 8, message=evaluated, inclusion_weight=10.0)
    got = replay(agent=ada, heuristic=False)

    failing_five = got.dimensions["adherence"].failing(Decimal(5))
    assert (failing_five.number, failing_five.total) == (2, 5)
    assert failing_five.share == pytest.approx(11 / 23)
    assert got.failing({"adherence": Decimal(5)}).share == pytest.approx(11 / 23)
    assert share(2, 5, failing_five.share) == "2 of 5 (weighted 48 %)"
    assert share(2, 5, 0.4) == share(2, 5) == "2 of 5 (40 %)"


def test_an_observed_message_of_a_sampled_conversation_keeps_its_weight() -> None:
    ada = make_agent()
    (message, _) = judged(ada, 2.0, 8.0, source="observe")
    GateSession.objects.filter(message=message).update(inclusion_weight=9.0)
    assert replay(agent=ada, heuristic=False).dimensions["adherence"].failing(Decimal(5)).share == 0.9
