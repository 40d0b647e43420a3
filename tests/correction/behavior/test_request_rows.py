"""The rows of behaviour requests: claimed like all work, one per message and agent, pruned, and without an erased person's words."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.utils import timezone

from agents.erasure import find_outsider, forget
from agents.models import Agent, Message, Trait
from correction.behavior.applying import apply_request, revert_request
from correction.behavior.models import BehaviorRequest
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

OLD = timezone.now() - timedelta(days=200)


@pytest.fixture
def ada() -> Agent:
    return make_agent()


def test_a_message_is_looked_at_once_for_each_agent(ada: Agent) -> None:
    request = proposed(ada)

    with pytest.raises(IntegrityError), transaction.atomic():
        BehaviorRequest.objects.create(message=request.message, agent=ada)
    BehaviorRequest.objects.create(message=request.message, agent=make_agent("bob"))


def test_a_request_outlives_its_agent_and_its_message(ada: Agent) -> None:
    request = apply_request(request=proposed(ada))
    assert request.message is not None
    request.message.channel.delete()
    ada.delete()

    request.refresh_from_db()
    stored = BehaviorRequest.objects.values_list("agent", "message", "trait", "persona_version").get()
    assert stored == (None, None, None, None)
    assert request.trait_after == CONCISE


def test_old_requests_go_but_for_those_somebody_or_a_policy_decided(ada: Agent) -> None:
    decided = {"applied", "pending_review", "rejected", "reverted", "queued", "paused_budget"}
    for status in Status.values:
        if status != Status.RUNNING:
            proposed(ada, status=status, finished_at=OLD, applied_at=OLD, reverted_at=OLD)
    proposed(ada, status="no_request", finished_at=timezone.now())

    call_command("prune_logs", "--older-than", "90d", stdout=StringIO())

    assert sorted(BehaviorRequest.objects.values_list("status", flat=True)) == sorted([*decided, "no_request"])


def test_erasing_a_person_deletes_model_replies_and_reports_the_trait(ada: Agent) -> None:
    said = "Stop asking me how my sister is doing."
    paraphrase = {
        "has_request": True,
        "confidence": "high",
        "reason": "The user is hurt by talk of a relative's illness.",
    }
    asked = {
        "behavior_name": "relatives",
        "current_state": "Inquires after kin.",
        "requested_change": "No talk of kin.",
    }
    request = apply_request(request=proposed(ada, said, gate_result=paraphrase, extract_result=asked, why="illness"))
    other = proposed(ada, "Somebody else's.", gate_result=paraphrase)
    Message.objects.filter(behavior_requests=other).update(outsider="Bob")

    result = {(one.rule.of, one.rule.columns): one.keys for one in forget(find_outsider("Zoe"))}

    request.refresh_from_db()
    stored = repr([request.gate_result, request.extract_result, request.map_result, request.why])
    assert not any(word in stored for word in ("relative", "kin", "illness", "concise"))
    assert request.gate_result["has_request"] is True  # type: ignore[index]
    other.refresh_from_db()
    assert other.gate_result == paraphrase
    assert result[BehaviorRequest, "trait_name trait_before trait_after"] == {request.pk}
    assert result[Trait, "name"] == {Trait.objects.get(name="concise replies").pk}
    assert request.trait_after == CONCISE
    assert revert_request(request=request, user=None).status == "reverted"
