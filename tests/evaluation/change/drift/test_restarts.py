"""A series starts again with a change of the persona, and says which change it was."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents.models import Agent
from agents.personas.persona import TraitValue, current_digest, save_persona
from evaluation.change.series import Series, SeriesPoint
from evaluation.models import EvaluationSchedule
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db


def series(agent: Agent, *digests: str) -> Series:
    """One evaluation a day, by the digest of the persona it was made under."""
    points = tuple(
        SeriesPoint(
            run=n + 1,
            time=MONDAY + timedelta(days=n),
            score=7.0,
            error=0.3,
            tested=True,
            restarts=n > 0 and digest != digests[n - 1],
            persona=digest,
        )
        for n, digest in enumerate(digests)
    )
    schedule = EvaluationSchedule(name="nightly")
    return Series(
        agent=agent, schedule=schedule, dimension="adherence", judge="m", procedure="plumbline", points=points, drops=()
    )  # fmt: skip


def test_a_restart_names_the_version_and_what_it_changed() -> None:
    agent = make_agent(traits=[TraitValue("concise replies", strength=0.5)])
    before = current_digest(agent)
    save_persona(agent=agent, traits=[TraitValue("concise replies", strength=0.9)], note="behaviour request 12")
    found = series(agent, before, before, current_digest(agent))

    (restart,) = found.restarts

    assert (restart.run, restart.because) == (3, "version 2, behaviour request 12: concise replies 0.5 → 0.9")
    assert found.newest_restart.startswith("Ada adherence: starts again on 4 Nov 2026: version 2, ")


def test_a_restart_without_versions_says_so() -> None:
    agent = make_agent()

    assert [r.because for r in series(agent, "a" * 64, current_digest(agent)).restarts] == [
        "the persona changed; no version says what changed"
    ]
