"""Whether an applied request changed anything, as queued work."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from agents.kit.models import LLMCall
from agents.kit.models.lease import LeaseLost
from agents.models import Channel, Message
from agents.personas.persona import changes_since
from correction.behavior import effects
from correction.behavior.applying import BehaviorError, apply_request, revert_request
from correction.behavior.before_after import messages_before
from correction.behavior.effects import EffectResult, plan_request, queue_effect, work_one
from correction.behavior.models import MOST_MESSAGES, BehaviorEffect, BehaviorRequest
from correction.behavior.postponing import resume_paused
from correction.config.configure import configure
from evaluation.change.evidence import stale_reasons
from evaluation.change.models import Baseline
from evaluation.scorers.context import Event
from tests.correction.behavior.changed import LESS, MORE, Changed
from tests.correction.behavior.measured import (
    TRAIT_CLAIM,
    Clerk,
    against_baseline,
    ask_for,
    measured,
    reads,
    speak,
    worse,
)
from tests.correction.behavior.proposals import proposed
from tests.correction.ledger import price
from tests.evaluation.judging import prompt_of
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("asked", "verdict", "means", "followed"),
    [(MORE, "more", (0.0, 9.0), True), (LESS, "less", (9.0, 0.0), True), (LESS, "less", (9.0, 0.0), False)],
)
def test_a_worker_judges_both_sides_and_keeps_what_came_out(
    changed: Changed,
    llm_server: LLMServer,
    asked: dict[str, Any],
    verdict: str,
    means: tuple[float, float],
    followed: bool,
) -> None:
    request = changed(asked, followed=followed)
    eve = User.objects.create(username="eve")

    effect = queue_effect(request=request, messages=3, user=eve)
    assert (effect.status, effect.judge, llm_server.calls) == ("pending", "test-model", 0), "queueing asks nobody"
    assert work_one(owner="w")
    assert not work_one(owner="w")

    effect.refresh_from_db()
    result: Any = effect.result
    assert (effect.status, effect.requested_by, llm_server.calls) == ("completed", eve, 6)
    assert (result["mean_before"], result["mean_after"]) == (means if followed else (means[0], means[0]))
    assert (result["verdict"], result["as_requested"]) == ((verdict, True) if followed else ("no change shown", False))
    calls = LLMCall.objects.filter(work_id=effect.work_id)
    assert calls.count() == result["actual_calls"] == 6
    assert effect.work_id.startswith(request.work_id)
    prompts = [prompt_of(body) for body in llm_server.bodies]
    assert not any("<<<PERSONA" in prompt for prompt in prompts), "the same question of both samples"
    assert not any(asked["text"] in prompt for prompt in prompts), "nobody tells the judge what to expect"


def test_what_cannot_be_judged_yet_is_refused_with_what_is_missing(changed: Changed) -> None:
    request = changed(since=0)
    with pytest.raises(BehaviorError, match="not yet: 0 of 10 messages since"):
        queue_effect(request=request)
    assert request.agent is not None
    with pytest.raises(BehaviorError, match="nothing was changed by it; allowed: a request that was applied"):
        queue_effect(request=proposed(request.agent))
    with pytest.raises(ValueError, match="n 101: allowed: 1 to 100"):
        queue_effect(request=request, messages=101)
    revert_request(request=request, user=None)
    request.refresh_from_db()
    with pytest.raises(BehaviorError, match="0 of 10 messages until it was reverted: there will be no more"):
        queue_effect(request=request)
    assert not BehaviorEffect.objects.exists()


def test_one_at_a_time_is_under_way(changed: Changed) -> None:
    request = changed()
    first = queue_effect(request=request)
    for status in ("pending", "running", "paused_budget"):
        BehaviorEffect.objects.update(status=status)
        with pytest.raises(BehaviorError, match="under way already"):
            queue_effect(request=request)
    BehaviorEffect.objects.update(status="pending")
    work_one(owner="w")
    second = queue_effect(request=request)
    assert BehaviorEffect.objects.count() == 2
    assert second.pk != first.pk


def test_a_judge_that_answers_nothing_fails_with_its_reason(changed: Changed, llm_server: LLMServer) -> None:
    request = changed()
    llm_server.respond = lambda body: {"status": 400}
    queue_effect(request=request)
    work_one(owner="w")

    effect = BehaviorEffect.objects.get()
    assert effect.status == "failed"
    assert "the judge scored none of 6 messages; the first: rejected" in effect.error
    queue_effect(request=request)  # it can be asked for again


def test_the_agent_s_deletion_cancels_what_waits(changed: Changed, llm_server: LLMServer) -> None:
    request = changed()
    queue_effect(request=request)
    assert request.agent is not None
    Channel.objects.all().delete()
    request.agent.delete()

    assert work_one(owner="w")

    effect = BehaviorEffect.objects.get()
    assert (effect.status, "its agent was deleted" in effect.error, llm_server.calls) == ("cancelled", True, 0)


def test_old_ones_that_measured_nothing_are_pruned_and_results_stay(clerk: Clerk) -> None:
    agent, _ = clerk(0.5)
    request = proposed(agent, status="applied", applied_at=timezone.now())
    old = timezone.now() - timedelta(days=200)
    for status in ("failed", "errored", "cancelled", "completed", "paused_budget"):
        fields: dict[str, Any] = {"status": status, "finished_at": old, "result": {} if status == "completed" else None}
        BehaviorEffect.objects.create(request=request, judge="m", **fields)
    BehaviorEffect.objects.create(request=request, judge="m", status="failed", finished_at=timezone.now())

    call_command("prune_logs", "--older-than", "90d", stdout=StringIO())

    stored = sorted(BehaviorEffect.objects.values_list("status", flat=True))
    assert stored == ["completed", "failed", "paused_budget"]
    BehaviorRequest.objects.all().delete()
    assert not BehaviorEffect.objects.exists()


def test_erasing_a_person_clears_justifications_and_keeps_figures(changed: Changed, llm_server: LLMServer) -> None:
    request = changed()
    said = "Please use emoji in every message."

    def quotes(body: dict[str, Any]) -> dict[str, Any]:
        answer = reads(body)
        answer["json"]["justification"] = f"It was told: {said}"
        return answer

    llm_server.respond = quotes
    queue_effect(request=request)
    work_one(owner="w")
    assert said in str(BehaviorEffect.objects.get().result)

    call_command("forget", "--user", "anna", stdout=StringIO())

    result: Any = BehaviorEffect.objects.get().result
    assert said not in str(result)
    assert (result["mean_before"], result["mean_after"], result["verdict"]) == (0.0, 9.0, "more")
    assert EffectResult.model_validate(result).messages  # its page and its answer can still be made


NOON = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)


def test_a_stopped_effect_is_judged_again_under_its_work_id(changed: Changed, monkeypatch: pytest.MonkeyPatch) -> None:
    effect = queue_effect(request=changed())

    def stops(*args: Any, **kwargs: Any) -> bool:
        raise KeyboardInterrupt

    effect.acquire(owner="w", lease=timedelta(minutes=5))
    with monkeypatch.context() as patched:
        patched.setattr(BehaviorEffect, "extend_lease", stops)
        with pytest.raises(KeyboardInterrupt):
            effects._judge_effect(effect, "w")
    paid = LLMCall.objects.filter(work_id=effect.work_id).count()
    assert paid >= 1
    assert effect.finish(owner="w", status="pending")

    assert work_one(owner="v")

    effect.refresh_from_db()
    result: Any = effect.result
    assert (effect.status, effect.attempt, result["after_scored"]) == ("completed", 2, 3)
    assert result["actual_calls"] == paid + 6, "what the first attempt cost is seen"


def test_whoever_lost_the_claim_asks_no_more_and_stores_nothing(changed: Changed, llm_server: LLMServer) -> None:
    effect = queue_effect(request=changed(before=20, since=20), messages=20)
    effect.acquire(owner="w", lease=timedelta(minutes=5))
    BehaviorEffect.objects.update(lease_owner="another worker")
    with pytest.raises(LeaseLost):
        effects._judge_effect(effect, "w")

    assert llm_server.calls < 40
    effect.refresh_from_db()
    assert (effect.status, effect.lease_owner, effect.result) == ("running", "another worker", None)


def test_what_was_paid_for_again_and_again_is_not_begun_once_more(changed: Changed, llm_server: LLMServer) -> None:
    effect = queue_effect(request=changed(), messages=1)
    for _ in range(effects.MOST_REPEATS * 2):
        LLMCall.objects.create(purpose="before_after", work_id=effect.work_id, status="ok")
    assert work_one(owner="w")
    effect.refresh_from_db()
    assert (effect.status, llm_server.calls) == ("errored", 0)
    assert "6 calls were paid for it, and it was interrupted each time" in effect.error


def test_a_budget_that_is_used_up_pauses_it_until_midnight(changed: Changed, llm_server: LLMServer) -> None:
    with time_machine.travel(NOON, tick=True) as clock:
        price(100_000)
        request = changed()  # three calls, $10 each
        assert request.agent is not None
        configure(agent=request.agent, changes={"budget_enabled": True, "daily_budget_usd": "85"})
        queue_effect(request=request)
        assert work_one(owner="w")
        assert llm_server.calls == 6, "there was room when it began"
        queue_effect(request=request)
        assert work_one(owner="w")

        effect = BehaviorEffect.objects.first()
        assert effect is not None
        assert (effect.status, llm_server.calls) == ("paused_budget", 6)
        assert "the daily budget of Ada is used up: $90.0000 of $85.0000" in effect.error
        assert resume_paused() is None
        with pytest.raises(BehaviorError, match="under way"):
            queue_effect(request=request)

        clock.shift(timedelta(hours=12, minutes=1))
        assert resume_paused() == "1 queued again"
        assert work_one(owner="w")
        effect.refresh_from_db()
        assert (effect.status, llm_server.calls) == ("completed", 12)


def test_messages_end_and_begin_where_the_trait_changes_again(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.0)
    speak(agent, channel, "1", emoji=False)
    first = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, n=4)
    other = proposed(agent)  # of another trait: nothing ends with it
    apply_request(request=other)
    speak(agent, channel, "3", emoji=True, n=2)
    second = ask_for(llm_server, channel, "Stop using emoji.", 0.0)
    speak(agent, channel, "4", emoji=False)

    result, next_one = plan_request(request=first), plan_request(request=second)

    assert [m.tags["build"] for m in result.plan.after] == ["2"] * 4 + ["3"] * 2
    assert result.waits == "6 of 10 messages until its trait was changed again: there will be no more"
    assert [m.tags["build"] for m in next_one.plan.before] == ["2"] * 4 + ["3"] * 2
    assert len(next_one.plan.after) == 10
    llm_server.respond = reads
    for row in (first, second):
        queue_effect(request=row)
        assert work_one(owner="w")
    assert [effect.result["as_requested"] for effect in BehaviorEffect.objects.all()] == [True, True]


def test_an_answer_belongs_to_the_persona_its_turn_began_with(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.0)
    speak(agent, channel, "1", emoji=False, n=2)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    (reply,) = speak(agent, channel, "reply", emoji=False, n=1)  # its turn began before a worker had looked
    Message.objects.filter(pk=reply.pk).update(persona_version=request.persona_version_before)
    (late,) = speak(agent, channel, "2", emoji=True, n=1)
    Message.objects.filter(pk=late.pk).update(persona_version=request.persona_version)

    plan = plan_request(request=request).plan

    assert [m.tags["build"] for m in plan.before] == ["1", "1", "reply"]
    assert [m.tags["build"] for m in plan.after] == ["2"]


def test_behaviour_that_was_asked_for_is_no_drift(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.0)
    speak(agent, channel, "1", emoji=False)
    measured(llm_server, agent, "1", is_baseline=True)
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True)

    run = measured(llm_server, agent, "2")
    result = against_baseline(run)

    assert worse(result) == []
    assert result.changed == (f"adherence/{TRAIT_CLAIM}",), "left out, and named"
    assert result.dimensions[0].verdict not in ("drifted", "possibly drifted")
    assert {c.proposition for c in result.propositions["adherence"]} == {"voice", "polite"}, "what is the same in both"
    change = f"version 2, behaviour request {request.pk} by anna: emoji use 0 → 0.95"
    assert result.persona_changes == (change,)
    assert change in result.notes[0]
    assert any(TRAIT_CLAIM in note and "the trait it speaks of" in note for note in result.notes)
    judged = run.scores.filter(proposition_id=TRAIT_CLAIM)
    assert judged.values_list("score", flat=True)[0] == 9, "judged by the new trait"


def test_the_same_behaviour_that_nobody_asked_for_is_drift(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.95)
    speak(agent, channel, "1", emoji=True)
    measured(llm_server, agent, "1", is_baseline=True)
    speak(agent, channel, "2", emoji=False)

    result = against_baseline(measured(llm_server, agent, "2"))

    assert worse(result) == ["adherence", f"adherence/{TRAIT_CLAIM}", "adherence/voice"]
    assert (result.stale, result.changed, result.persona_changes) == (False, (), ())


def test_a_change_that_was_asked_for_hides_no_drift_elsewhere(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.0)
    speak(agent, channel, "1", emoji=False)
    measured(llm_server, agent, "1", is_baseline=True)
    ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)
    speak(agent, channel, "2", emoji=True, polite=False)

    result = against_baseline(measured(llm_server, agent, "2"))

    assert worse(result) == ["adherence", "adherence/polite"]


def test_the_baseline_is_stale_until_a_revert(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.0)
    speak(agent, channel, "1", emoji=False)
    measured(llm_server, agent, "1", is_baseline=True)
    baseline = Baseline.objects.get()
    assert stale_reasons([baseline]) == {}
    request = ask_for(llm_server, channel, "Please use emoji in every message.", 0.95)

    assert stale_reasons(Baseline.objects.all()) == {
        baseline.pk: f"version 2, behaviour request {request.pk} by anna: emoji use 0 → 0.95"
    }
    (said,) = changes_since([(agent.pk, baseline.persona_digest)]).values()
    assert [change.number for change in said] == [2]

    revert_request(request=request, user=None)

    assert not stale_reasons(Baseline.objects.all())


def test_a_build_passes_with_a_requested_change(clerk: Clerk, llm_server: LLMServer) -> None:
    agent, channel = clerk(0.95)
    speak(agent, channel, "1", emoji=True)
    measured(llm_server, agent, "1", is_baseline=True)
    request = ask_for(llm_server, channel, "Stop using emoji.", 0.0)
    speak(agent, channel, "2", emoji=False)
    llm_server.respond = reads
    out = StringIO()

    call_command("evaluate", "--agents", "ada", "--dimensions", "adherence", "--where", "build=2", "--json", stdout=out)

    document: dict[str, Any] = json.loads(out.getvalue())
    entry = next(value for value in (document.get("runs") or document["agents"]) if value["agent"] == "ada")
    change = f"version 2, behaviour request {request.pk} by anna: emoji use 0.95 → 0"
    assert entry["persona_changes"] == [change]


# -- what a judge of a single message is shown before it
def lines_of(events: tuple[Event, ...]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.speaker, event.text) for event in events]


def test_the_last_two_of_the_same_channel_are_shown_in_their_order() -> None:
    ada, desk, hall = make_agent("ada"), make_channel("desk"), make_channel("hall")
    say(desk, "Bob", "One")
    say(hall, "Bob", "Elsewhere")
    say(desk, ada, "Two")
    say(desk, "Zoe", "Three")
    last, first = say(desk, ada, "Four"), say(hall, ada, "Five")

    found = messages_before(ada, [last, first])

    assert [text for _, _, text in lines_of(found[last.pk])] == ["Two", "Three"]
    assert [kind for kind, _, _ in lines_of(found[last.pk])] == ["action", "stimulus"]
    assert lines_of(found[last.pk])[1][1] == "Zoe"
    assert [text for _, _, text in lines_of(found[first.pk])] == ["Elsewhere"]


def test_what_was_played_is_passed_over_however_much_of_it_there_is() -> None:
    ada, desk = make_agent("ada"), make_channel("desk")
    for text in ("One", "Two"):
        say(desk, "Bob", text)
    for number in range(8):
        say(desk, ada, f"Simulated {number}", synthetic=True)
    last = say(desk, ada, "Three")
    assert [text for _, _, text in lines_of(messages_before(ada, [last])[last.pk])] == ["One", "Two"]


def test_many_messages_are_read_in_two_queries(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    ada, desk = make_agent("ada"), make_channel("desk")
    for number in range(2 * MOST_MESSAGES):
        say(desk, ada, f"Line {number}")
    messages = list(Message.objects.order_by("position"))
    with django_assert_num_queries(2):
        found = messages_before(ada, messages)
    assert [len(found[message.pk]) for message in messages[:3]] == [0, 1, 2]
    assert lines_of(found[messages[-1].pk])[-1][2] == f"Line {2 * MOST_MESSAGES - 2}"
