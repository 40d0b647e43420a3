"""Sides made from runs: the same numbers as the run's summary, clustered by what was judged."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent, Message
from evaluation.capture import evaluate_agent, evaluate_channel
from evaluation.change.measurements import Measurement, NotComparable, measurement_of
from evaluation.models import EvaluationRun
from evaluation.summary import RunSummary, summarize
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import converged, diverse
from tests.evaluation.judged import make_run, make_score
from tests.evaluation.judging import answers
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def clusters(side: Measurement, dimension: str = "adherence") -> set[str]:
    return {str(o.cluster) for rows in side.observations.get(dimension, {}).values() for o in rows}


def same_numbers(side: Measurement, summary: RunSummary) -> None:
    for name, dimension in summary.dimensions.items():
        number = dimension.score if dimension.count is None else dimension.count
        assert side.scores[name] == (None if number is None else pytest.approx(number, abs=2e-4)), name
        for found in dimension.propositions:
            number = found.score if found.count is None else found.count
            expected = None if number is None else pytest.approx(number, abs=2e-4)
            assert side.proposition_scores[name][found.id] == expected, found.id
        assert side.unscored[name] == dimension.unscored


def test_a_side_has_the_numbers_of_its_run(llm_server: LLMServer, ada: Agent, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/ada.yaml", "terse", extra="weight: 3, rule: {max_words: 1}")
    propositions.claims("fluency/_default.yaml", "varied", extra="include_personas: false")
    values = iter(range(1, 10_000))
    llm_server.respond = answers(lambda claim: next(values) % 10)

    summary = evaluate_agent(agent=ada, repeats=2)
    side = measurement_of(summary.run)

    same_numbers(side, summary)
    assert (side.target, side.judge, side.procedure) == ("ada", "test-model", "plumbline")
    assert {len(rows) for rows in side.observations["adherence"].values()} == {3}, "the mean of the repeats, once"
    assert clusters(side, "fluency") == {"repeat:1", "repeat:2"}
    assert side.evaluation_run == summary.run.pk


def test_what_could_not_be_scored_is_no_observation(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.respond = answers(lambda claim: 7 if "voice" in claim else {"value": "x"})

    side = measurement_of(evaluate_agent(agent=ada, dimensions=("adherence",)).run)

    assert side.proposition_scores["adherence"] == {"mood": None, "voice": 7.0}
    assert set(side.observations["adherence"]) == {"voice"}
    assert (side.unscored["adherence"], side.judged["adherence"]) == (3, 6)


def test_an_agents_channels_have_the_numbers_of_its_run(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.write(
        "convergence/_default.yaml",
        """
        dimension: convergence
        target_type: environment
        propositions:
          - {id: apart, claim: voices stay apart}
          - {id: topics, claim: topics vary, weight: 2}
        """,
    )
    diverse(), converged()
    talk(Agent.objects.get(slug="ada"), ["More."] * 4, channel=converged("third"))
    values = iter(range(1, 10_000))
    llm_server.respond = answers(lambda claim: next(values) % 10)

    summary = evaluate_agent(agent=Agent.objects.get(slug="ada"), dimensions=("convergence",), repeats=2)
    side = measurement_of(summary.run)

    assert side.scores["convergence"] == pytest.approx(summary.dimensions["convergence"].score, abs=2e-4)
    assert clusters(side, "convergence") == {"channel:diverse", "channel:converged", "channel:third"}
    assert set(side.digests["convergence"]) == {"apart", "topics"}


def test_a_channel_is_named_with_its_mark_and_has_its_repeats(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    propositions.write(
        "convergence/_default.yaml",
        "dimension: convergence\ntarget_type: environment\npropositions: [{id: apart, claim: voices stay apart}]\n",
    )
    llm_server.respond = answers(lambda claim: 6)

    summary = evaluate_channel(channel=diverse(), dimensions=("convergence",), repeats=3)
    side = measurement_of(summary.run)

    assert (side.target, clusters(side, "convergence")) == ("#diverse", {"repeat:1", "repeat:2", "repeat:3"})
    same_numbers(side, summary)


def test_counts_are_the_runs_counts_and_a_repeat_each() -> None:
    run = make_run(dimensions=["ideas_quantity"])
    for repeat, count in enumerate((4, 9, 6), 1):
        fields: dict[str, Any] = {"dimension": "ideas_quantity", "proposition_id": "ideas", "repeat": repeat}
        make_score(run, None, status="scored", count=count, **fields)

    side = measurement_of(run)

    assert (side.scores, side.counted) == ({"ideas_quantity": 6}, frozenset(["ideas_quantity"]))
    assert [o.value for o in side.observations["ideas_quantity"]["ideas"]] == [4, 9, 6]


def test_the_same_message_has_the_same_key_in_every_run_and_another_text_another(ada: Agent) -> None:
    message = Message.objects.filter(agent=ada).first()
    keys = []
    for _ in range(2):
        run = make_run(ada)
        make_score(run, 5, message=message)
        keys.append(clusters(measurement_of(run)))
    Message.objects.filter(agent=ada).update(text="Something else.")

    assert keys[0] == keys[1]
    assert clusters(measurement_of(run)) != keys[0]


def test_messages_deleted_since_are_one_cluster(ada: Agent) -> None:
    run = make_run(ada)
    for score, message in enumerate(Message.objects.filter(agent=ada), 5):
        make_score(run, score, message=message)
    Message.objects.filter(agent=ada, text__in=["No.", "Why?"]).delete()

    side = measurement_of(run)

    assert (side.scores["adherence"], len(clusters(side))) == (6.0, 2)


def test_played_speech_is_clustered_by_situation() -> None:
    agent, run = make_agent(), None
    for situations in (("a", "b"), ("only",)):
        run = make_run(agent, simulated=True)
        for situation in situations:
            for repeat in ("1", "2"):
                tags = {"simulation": "p", "situation": situation, "repeat": repeat}
                channel = make_channel(f"{situation}-{repeat}")
                for message in talk(agent, ["Well.", "No."], channel=channel, tags=tags, synthetic=True):
                    make_score(run, 5, message=message)
        expected = {"situation:a", "situation:b"} if len(situations) > 1 else {"situation:only/1", "situation:only/2"}
        assert clusters(measurement_of(run)) == expected


def test_a_run_that_is_not_completed_does_not_compare(ada: Agent) -> None:
    run = make_run(ada, status="failed", error="the judge scored nothing")

    with pytest.raises(
        NotComparable, match=f"evaluation {run.pk} of ada is failed: the judge scored nothing; only completed"
    ):
        measurement_of(run)


def test_many_messages_take_no_more_queries_than_few() -> None:
    counts = []
    for n, slug in ((3, "few"), (300, "many")):
        agent = make_agent(slug)
        run = make_run(agent)
        for message in talk(agent, [f"line {i}" for i in range(n)], channel=make_channel(slug)):
            make_score(run, 5, message=message)
        run = EvaluationRun.objects.select_related("agent").get(pk=run.pk)
        with CaptureQueriesContext(connection) as captured:
            measurement_of(run)
        counts.append(len(captured))
        assert summarize(run).dimensions["adherence"].score == 5.0

    assert counts == [3, 3]


def test_which_messages_a_run_measured_is_said_for_people(ada: Agent) -> None:
    run = make_run(ada, window="7d", where={"build": "41"}, position_bins=[[1, 5]])

    assert measurement_of(run).scope == "7d, build=41, evenly by turn"
    assert measurement_of(make_run(ada)).scope == ""
