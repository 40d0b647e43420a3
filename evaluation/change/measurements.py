"""One measurement of an agent or a channel, to be compared with another: read from evaluations or from baselines.

Every scored judgement is in it, clustered by what was judged (`judgements`). `measurement_files` reads the same from a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from agents.kit.text.wording import day_text
from evaluation.change.judge_changes import known_identities, moments_of_change
from evaluation.change.judgements import measured_dimensions
from evaluation.change.measured import MeasuredDimension
from evaluation.change.models import Baseline
from evaluation.judge.identity import JudgeIdentity
from evaluation.models import EvaluationRun
from evaluation.scorers import SCORERS


class NotComparable(ValueError):
    """Two measurements cannot be compared: another judge, another procedure, other things measured. Says which."""


class Measurement(BaseModel):
    """What was measured of one target: an agent's slug, or ``#`` and a channel's. Dumped it is what a comparison shows of it.

    Attributes:
        name: How it is called for people: ``baseline of 20 Nov 2026``, ``build=41``, ``FILE``.
        procedure: As `EvaluationRun.procedure`.
        persona_digest: Of the persona it was measured under; empty when not known.
        evaluation_run: Its row; None for a file, and where several evaluations are behind it.
        scope: Which messages, as people say it, e.g. ``7d, build=41``; empty: all; None where that is not known.
        where: The tags its messages have; None where that is not known.
        background: What the judge was given beside the messages (`additional_context`); None where that is not known.
        judged_by: Who gave the scores: servers, models and prompts; empty where that is not known.
    """

    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)

    name: str
    target: str = Field(exclude=True)
    judge: str = Field(exclude=True)
    procedure: str = Field(exclude=True)
    persona_digest: str = ""
    dimensions: SkipValidation[Mapping[str, MeasuredDimension]] = Field(default_factory=dict, exclude=True)
    # The evaluations it rests on (primary keys), by dimension; of a file none.
    runs: SkipValidation[Mapping[str, int]] = Field(default_factory=dict, exclude=True)
    evaluation_run: int | None = None
    scope: str | None = Field(None, exclude=True)
    where: dict[str, str] | None = None
    background: SkipValidation[Mapping[str, Any]] | None = Field(None, exclude=True)
    judged_by: tuple[JudgeIdentity, ...] = Field((), exclude=True)

    def extended_by(self, other: Measurement) -> Measurement:
        """Return it with the dimensions of another measurement, too."""
        update = {
            "dimensions": {**self.dimensions, **other.dimensions},
            "runs": {**self.runs, **other.runs},
            "judged_by": tuple(dict.fromkeys((*self.judged_by, *other.judged_by))),
        }
        return self.model_copy(update=update)


# -- of evaluations
def measurement_of(run: EvaluationRun, *, name: str = "", dimensions: Collection[str] | None = None) -> Measurement:
    """Return a completed evaluation of an agent or a channel as a measurement, in three queries; one more for an agent's channels.

    Args:
        name: What people call it; default ``evaluation N of DATE``.
        dimensions: Only these; default all the run measured.

    Raises:
        NotComparable: The evaluation is not completed: what it has is partial.
    """
    target = _target_of(run)
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f": {run.error}" if run.error else ""
        raise NotComparable(f"evaluation {run.pk} of {target} is {run.status}{why}; only completed ones compare")
    names = [d for d in SCORERS if d in run.dimensions and (dimensions is None or d in dimensions)]
    return Measurement(
        name=name or _name_of(run),
        target=target,
        judge=run.judge,
        procedure=run.procedure,
        persona_digest=run.persona_digest,
        dimensions=measured_dimensions(run, names),
        runs=dict.fromkeys(names, run.pk),
        evaluation_run=run.pk,
        scope=_scope_of(run),
        where={} if run.simulated else run.where,  # the tags of a simulation are its own
        background=run.additional_context,
        judged_by=known_identities(run, moments_of_change()),
    )


def _target_of(run: EvaluationRun) -> str:
    if run.agent is not None:
        return run.agent.slug
    return f"#{run.channel.slug}" if run.channel else ""


def _name_of(run: EvaluationRun) -> str:
    """Return what people call an evaluation, e.g. ``evaluation 7 of 20 Nov 2026 (build=41)``."""
    name = f"evaluation {run.pk} of {day_text(run.finished_at or run.created_at)}"
    tags = _tags_of(run)
    return f"{name} ({', '.join(tags)})" if tags else name


def _scope_of(run: EvaluationRun) -> str:
    """Return which messages an evaluation judged, e.g. ``7d, build=41``; empty: all."""
    scope = []
    if run.window != "all":
        scope.append(run.window)
    scope += _tags_of(run)
    if run.position_bins:
        scope.append("evenly by position")
    return ", ".join(scope)


def _tags_of(run: EvaluationRun) -> list[str]:
    """Return the tags of the messages it was asked for; those of a simulation are its own."""
    if run.simulated:
        return []
    return [f"{key}={value}" for key, value in sorted(run.where.items())]


def measurement_of_runs(runs: Mapping[str, EvaluationRun]) -> Measurement:
    """Return evaluations of one agent, judge and procedure as one measurement.

    Args:
        runs: The evaluation of each dimension; at least one, the newest last.
    """
    measurements = _measurements_of(runs)
    if len(measurements) == 1:
        return measurements[0]
    names = [f"{', '.join(measurement.dimensions)}: {measurement.name}" for measurement in measurements]
    scopes = {measurement.scope for measurement in measurements}
    scope = measurements[0].scope if len(scopes) == 1 else None
    return _joined(measurements).model_copy(update={"name": "; ".join(names), "scope": scope})


def measurement_of_baselines(baselines: Iterable[Baseline], candidate: Measurement | None = None) -> Measurement:
    """Return baselines of one agent, judge and procedure as one measurement; each dimension may come from a run of its own.

    Args:
        baselines: At least one.
        candidate: What it will be compared with: where the persona of any baseline is another than its, the measurement has that one, so
            that the comparison notices the change; else it has that of the newest.
    """
    rows = sorted(baselines, key=lambda baseline: (baseline.captured_at, baseline.pk))
    first_day = day_text(rows[0].captured_at)
    last_day = day_text(rows[-1].captured_at)
    name = f"baseline of {first_day}" if first_day == last_day else f"baselines of {first_day} to {last_day}"
    persona_digest = rows[-1].persona_digest
    for row in rows:
        if candidate and row.persona_digest and row.persona_digest != candidate.persona_digest:
            persona_digest = row.persona_digest
            break
    measurements = _measurements_of({row.dimension: row.evaluation_run for row in rows})
    return _joined(measurements).model_copy(update={"name": name, "persona_digest": persona_digest})


def _measurements_of(runs: Mapping[str, EvaluationRun]) -> list[Measurement]:
    """Return the measurement of each evaluation, in its dimensions."""
    dimensions: dict[int, list[str]] = {}
    for name, run in runs.items():
        dimensions.setdefault(run.pk, []).append(name)
    by_key = {run.pk: run for run in runs.values()}
    return [measurement_of(by_key[pk], dimensions=names) for pk, names in dimensions.items()]


def _joined(measurements: Sequence[Measurement]) -> Measurement:
    """Return measurements of different dimensions as one: name, persona and scope are those of the last, the newest.

    `where` and `background` are None where they differ, `evaluation_run` where they are several.
    """
    joined = measurements[0]
    for measurement in measurements[1:]:
        joined = joined.extended_by(measurement)
    newest = measurements[-1]
    same_tags = all(measurement.where == newest.where for measurement in measurements)
    same_background = all(measurement.background == newest.background for measurement in measurements)
    update = {
        "dimensions": joined.dimensions,
        "runs": joined.runs,
        "judged_by": joined.judged_by,
        "where": newest.where if same_tags else None,
        "background": newest.background if same_background else None,
        "evaluation_run": newest.evaluation_run if len(measurements) == 1 else None,
    }
    return newest.model_copy(update=update)
