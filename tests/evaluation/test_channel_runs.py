"""Channels as targets, and as part of an agent's evaluation: each conversation once, linked to all agents in it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.models import ChannelShare, EvaluationRun
from evaluation.runs.execute import execute, work_one
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import channels_of, summarize
from tests.evaluation.channel_cast import ALL_FIVE, captured, gather
from tests.evaluation.conversing import diverse
from tests.evaluation.judging import prompt_of
from tests.evaluation.measuring import queue_baseline
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def cast(llm_server: LLMServer) -> dict[str, Agent]:
    return gather(llm_server)


# -- a channel as the target


def test_a_target_is_an_agent_or_channel_with_its_dimensions() -> None:
    agent, channel = make_agent(), make_channel()

    for fields, words in (
        ({}, "exactly one of them"),
        ({"agent": agent, "channel": channel}, "exactly one of them"),
        ({"channel": channel, "dimensions": ("adherence",)}, "allowed for a channel: convergence, ideas_quantity"),
        ({"agent": agent, "repeats": 0}, "repeats 0: 1 to 20"),
        ({"agent": agent, "repeats": 21}, "repeats 21: 1 to 20"),
        ({"agent": agent, "method": "magic"}, "method 'magic': allowed: plumbline, tinytroupe"),
    ):
        with pytest.raises(ValueError, match=words):
            RunSpec(**fields)


# -- as part of an agent's evaluation (AC-6.5.1)
def test_a_baseline_runs_all_five_scorers_ac_6_5_1(cast: dict[str, Agent]) -> None:
    (found,) = captured([cast["ada"]])

    numbers = {name: d.score if d.count is None else d.count for name, d in found.summary.dimensions.items()}
    assert set(numbers) == set(ALL_FIVE)
    assert numbers["ideas_quantity"] == 2 + 2
    assert all(number is not None for number in numbers.values())
    kept = {b.dimension: b.score if b.count is None else b.count for b in Baseline.objects.all()}
    assert kept == numbers
    assert {b.evaluation_run_id for b in Baseline.objects.all()} == {found.summary.run.pk}
    assert all(run.is_baseline for run in EvaluationRun.objects.all()), "AC-6.5.3"


def test_channels_weigh_by_how_much_the_agent_said_there(cast: dict[str, Agent]) -> None:
    (found,) = captured([cast["ada"]], "convergence")

    dimension = found.summary.dimensions["convergence"]
    parts = {str(part.run.channel): (part.messages, part.score) for part in dimension.channels}
    assert parts == {"#one": (5, 8.0), "#two": (1, 2.0)}
    assert dimension.score == pytest.approx((5 * 8 + 1 * 2) / 6, abs=1e-4)
    assert found.summary.overall_score == found.summary.run.overall_score == dimension.score


def test_a_conversation_is_judged_once_for_all_who_speak_in_it(llm_server: LLMServer, cast: dict[str, Agent]) -> None:
    results = captured([cast["ada"], cast["bea"], cast["cyd"]], "convergence")

    assert EvaluationRun.objects.filter(channel__isnull=False).count() == 2
    assert len([body for body in llm_server.bodies if "readily" in prompt_of(body)]) == 2
    linked = {share.channel_run_id for share in ChannelShare.objects.all()}
    assert len(linked) == 2
    assert [r.summary.dimensions["convergence"].score for r in results] == [7.0, 8.0, 2.0]
    assert [str(s.run.channel) for s in channels_of(result.summary for result in results)] == ["#one", "#two"]


# -- who ends first
def test_queued_work_is_done_in_any_order_and_by_anybody(cast: dict[str, Agent]) -> None:
    """A worker takes one run at a time; the agent's brings its channels, and a channel brings its agents up to date."""
    spec = RunSpec(agent=cast["ada"], dimensions=("adherence", "convergence"))
    queue_baseline(agents=[cast["ada"], cast["bea"]], spec=spec)

    while work_one(owner="me:1:x"):
        pass

    assert set(EvaluationRun.objects.values_list("status", flat=True)) == {"completed"}
    assert Baseline.objects.filter(dimension="convergence").count() == 2


def test_an_agents_run_that_ended_first_is_brought_up_to_date(cast: dict[str, Agent]) -> None:
    run, _ = prepare_run(RunSpec(agent=cast["bea"], dimensions=("fluency", "convergence"), is_baseline=True))
    (channel_run,) = run.channel_runs.all()
    assert channel_run.acquire(owner="other:1:x", lease=timedelta(minutes=5))
    execute([run])
    assert run.overall_score == summarize(run).dimensions["fluency"].score
    assert channel_run.finish(owner="other:1:x", status="pending")

    execute([channel_run])

    run.refresh_from_db()
    found = summarize(run)
    assert found.dimensions["convergence"].score == 8.0
    own = found.dimensions["fluency"].score
    assert own is not None
    assert run.overall_score == found.overall_score == pytest.approx((own + 8) / 2)
    assert Baseline.objects.get(dimension="convergence").score == 8.0


def test_a_late_channel_does_not_put_an_old_baseline_back(cast: dict[str, Agent]) -> None:
    spec = RunSpec(agent=cast["bea"], dimensions=("fluency", "convergence"), is_baseline=True)
    old, _ = prepare_run(spec)
    (late,) = old.channel_runs.all()
    assert late.acquire(owner="other:1:x", lease=timedelta(minutes=5))
    execute([old])
    newer, _ = prepare_run(RunSpec(agent=cast["bea"], dimensions=("fluency", "convergence"), is_baseline=True, seed=9))
    execute([newer])
    assert late.finish(owner="other:1:x", status="pending")

    execute([late])

    assert set(Baseline.objects.values_list("evaluation_run", flat=True)) == {newer.pk}


def test_a_channel_whose_judge_failed_is_asked_again_by_the_same_command(
    llm_server: LLMServer, cast: dict[str, Agent]
) -> None:
    well = llm_server.respond
    assert well is not None
    llm_server.respond = lambda body: {"status": 500} if "readily" in prompt_of(body) else well(body)
    (first,) = captured([cast["bea"]], "fluency", "convergence")
    before = llm_server.calls
    llm_server.respond = well

    (second,) = captured([cast["bea"]], "fluency", "convergence")

    assert first.summary.dimensions.get("convergence") is None or first.summary.dimensions["convergence"].score is None
    assert second.summary.run.pk == first.summary.run.pk
    assert second.summary.dimensions["convergence"].score == 8.0
    assert llm_server.calls - before == 1, "fluency was judged before"


# -- in a worker's queue
def test_a_worker_does_channels_of_one_judge_together_without_crashed_ones(
    llm_server: LLMServer,
) -> None:
    def queued(slug: str, judge: str = "") -> EvaluationRun:
        return prepare_run(RunSpec(channel=diverse(slug), dimensions=("convergence",), judge=judge))[0]

    first, second = queued("a"), queued("b")
    other, lost = queued("c", judge="claude-other-1"), queued("d")
    EvaluationRun.objects.filter(pk=lost.pk).update(worker_losses=1)

    assert work_one(owner="host:1:abcd")

    statuses = dict(EvaluationRun.objects.values_list("pk", "status"))
    assert (statuses[first.pk], statuses[second.pk]) == ("completed", "completed")
    assert (statuses[other.pk], statuses[lost.pk]) == ("pending", "pending")
