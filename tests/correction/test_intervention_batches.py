"""Batches of interventions share nothing they should not (AC-7.1.4)."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent, Channel
from correction.interventions import InterventionBatch
from tests.correction.steering import (
    advice,
    always,
    logs,
    looked_at,
)
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


# -- no leaks
def test_batches_share_nothing_between_channels_or_agents_ac_7_1_4(ada: Agent, office: Channel) -> None:
    """TinyTroupe's interventions leak between worlds through a mutable default."""
    bob, elsewhere = make_agent("bob"), make_channel("elsewhere")
    preconditions = [always()]
    first = InterventionBatch.create_for_each([ada], name="first", preconditions=preconditions, effect=advice("one"))
    second = InterventionBatch.create_for_each(
        [ada, bob], name="second", preconditions=preconditions, effect=advice("two")
    )
    preconditions.append(always(False))

    in_office, at_bobs = looked_at(ada, office, *first), looked_at(bob, elsewhere, *second)

    assert [section.body for section in in_office.sections] == ["one"]
    assert [section.body for section in at_bobs.sections] == ["two"]
    assert [(log.name, log.agent, log.channel) for log in logs()] == [
        ("first", ada, office),
        ("second", bob, elsewhere),
    ]
    assert all(len(one.preconditions) == 1 for one in (*first, *second))


def test_create_for_each_makes_one_per_agent_with_shared_preconditions_and_effect_ac_7_1_4(ada: Agent) -> None:
    bob, effect = make_agent("bob"), advice()
    batch = InterventionBatch.create_for_each(
        [ada, bob], name="both", preconditions=[always()], effect=effect, window=3
    )

    assert [one.agent_id for one in batch] == [ada.pk, bob.pk]
    assert len(batch) == 2
    assert [one.agent_id for one in batch.for_agent(bob)] == [bob.pk]
    assert {(one.name, one.effect, one.window) for one in batch} == {("both", effect, 3)}
    assert len(InterventionBatch.create_for_each([], name="none", preconditions=[always()], effect=effect)) == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"preconditions": ()}, "no precondition"),
        ({"window": 0}, "window is 0; allowed: 1 to 100"),
        ({"window": 101}, "window is 101"),
        ({"cooldown_messages": -1}, "cooldown_messages is -1"),
    ],
)
def test_an_intervention_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"name": "odd", "preconditions": [always()], "effect": advice(), **fields}

    with pytest.raises(ValueError, match=message):
        InterventionBatch.create_for_each([], **given)
