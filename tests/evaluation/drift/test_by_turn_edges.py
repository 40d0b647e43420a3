"""Scores by turn at the edges: nobody spoke, and scores as far apart as the scale is long."""

from __future__ import annotations

import io
import re

import pytest

from agents.models import Agent
from evaluation.change.position import position_profile
from evaluation.change.tables import position_table
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drift.talking import BINS, chat
from tests.evaluation.judging import answers, tail_of
from tests.evaluation.measuring import measured
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_an_agent_nobody_heard_gets_a_sentence_and_no_empty_table(ada: Agent) -> None:
    out = io.StringIO()

    position_table(
        position_profile(measured(make_agent("kevin"), dimensions=("adherence",), position_bins=BINS).summary.run), out
    )

    assert out.getvalue().strip() == "Adherence of kevin by turn: no message was judged."


def test_no_interval_leaves_the_scale(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    chat(ada, "short", 8)
    llm_server.respond = lambda body: answers(
        lambda claim: 9 if int(re.findall(r"line (\d+)", tail_of(body))[-1]) % 2 else 0
    )(body)

    (found,) = position_profile(measured(ada, samples=40, position_bins=BINS).summary.run).dimensions

    for row in found.bins[:2]:
        assert row.score.interval is not None
        assert 0 <= row.score.interval.low < row.score.interval.high <= 9
    assert found.bins[1].score.interval is not None
    assert (found.bins[1].score.interval.low, found.bins[1].score.interval.high) == (0, 9)
    assert found.within.delta.interval is not None
    assert -9 <= found.within.delta.interval.low < found.within.delta.interval.high <= 9
