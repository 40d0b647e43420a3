"""Measurements as the JSON objects that commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.calibration.agreement import calibration_json, calibration_of
from evaluation.change.measurement_files import observations_json
from evaluation.change.measurements import measurement_of
from evaluation.models import CHANNEL_DIMENSIONS, COUNTED, EvaluationRun, JudgeCalibration
from evaluation.runs.execute import SIMULATED_ALONE, Captured
from evaluation.runs.ideas import distinct_ideas
from evaluation.runs.summary import ChannelScore, DimensionSummary, RunSummary, channels_of


def as_json(judge: str, results: Sequence[Captured]) -> dict[str, Any]:
    """The object ``--json`` prints.

    Scores are 0 to 9 or null. `cost_usd` is the sum over the priced calls in US dollars, null when none has a price;
    `unpriced_calls` says how many it leaves out. `procedure` is given for runs that were not judged in the usual way, `channels` are
    the channels' own runs, whose calls and cost are in none of the agents'.
    """
    channels = [run_json(summary) for summary in channels_of(result.summary for result in results)]
    document = {"judge": judge, "runs": [run_json(result.summary) for result in results]}
    return {**document, "channels": channels} if channels else document


def run_json(summary: RunSummary) -> dict[str, Any]:
    """One run of an agent, or of a channel (which then stands where the agent would).

    A completed one has its `observations`, so that the file serves as a baseline later: see `observations_json`.
    """
    run = summary.run
    if run.status != EvaluationRun.Status.COMPLETED:
        return numbers_json(summary)
    return {**numbers_json(summary), "observations": observations_json(measurement_of(run))}


def numbers_json(summary: RunSummary) -> dict[str, Any]:
    """The same without the observations."""
    run = summary.run
    agreements = calibration_of(run.judge, run.procedure)
    usual = (
        {}
        if run.procedure == "plumbline" and run.repeats == 1
        else {"procedure": run.procedure, "repeats": run.repeats}
    )
    return {
        **({"agent": run.agent.slug if run.agent else None} if run.channel is None else {"channel": run.channel.slug}),
        "evaluation_run": run.pk,
        "status": run.status,
        "error": run.error,
        **usual,
        **({"simulated": True, "actor_model": run.actor_model} if run.simulated else {}),
        "persona_digest": run.persona_digest,
        "overall_score": summary.overall_score,
        "coverage": summary.share.rounded,
        "dimensions": {
            name: dimension_json(summary.dimensions.get(name, DimensionSummary(dimension=name)), run, agreements)
            for name in run.dimensions
        },
        "calls": summary.calls,
        "tokens": summary.tokens,
        "cost_usd": None if summary.cost_usd is None else float(summary.cost_usd),
        "unpriced_calls": summary.unpriced_calls,
        "cache_read_share": summary.cache_read_share,
    }


def dimension_json(
    summary: DimensionSummary, run: EvaluationRun, agreements: Mapping[str, JudgeCalibration]
) -> dict[str, Any]:
    """A dimension; one that is counted has `count` where others have `score`.

    `coverage` is the share scored of the judgements this judge can make, 0 to 1, null where there are none; `reason` says why a score is
    null although there was something to score. `calibration` is how well its judge agrees with people there, null where no person labelled:
    see `calibration_json`.
    """
    counted = summary.dimension in COUNTED
    return {
        **({"count": summary.count} if counted else {"score": summary.score}),
        "scored": summary.scored,
        "trivial": summary.trivial,
        "unscored": summary.unscored,
        "coverage": summary.share.rounded,
        "propositions": {p.id: p.count if counted else p.score for p in summary.propositions},
        **({} if counted else {"calibration": calibration_json(agreements.get(summary.dimension))}),
        **({} if summary.noise is None else {"noise": summary.noise}),
        **({"figures": run.figures[summary.dimension]} if summary.dimension in run.figures else {}),
        **({"ideas": ideas_json(run)} if counted and run.channel is not None else {}),
        **({"channels": [_channel_json(c, counted) for c in summary.channels]} if summary.channels else {}),
        **({"reason": summary.reason} if summary.reason else {}),
        **({"reason": SIMULATED_ALONE} if run.simulated and summary.dimension in CHANNEL_DIMENSIONS else {}),
    }


def _channel_json(part: ChannelScore, counted: bool) -> dict[str, Any]:
    return {
        "channel": part.run.channel.slug if part.run.channel else None,
        "evaluation_run": part.run.pk,
        "messages": part.messages,
        **({"count": part.count} if counted else {"score": part.score}),
        "coverage": part.share.rounded,
    }


def ideas_json(run: EvaluationRun) -> list[dict[str, Any]]:
    """The distinct ideas of a channel's run, with those that say the same, and who said them (of repeats: of the first)."""
    return [
        {
            "idea": distinct.idea.idea,
            "description": distinct.idea.description,
            "same": [variant.idea for variant in distinct.variants],
            "positions": distinct.positions,
            "by": distinct.speakers,
        }
        for distinct in distinct_ideas(run)
    ]
