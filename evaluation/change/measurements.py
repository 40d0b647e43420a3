"""One measurement of an agent or a channel, to be compared with another: read from evaluations, from baselines, or from a file.

Every scored judgement is in it, clustered by what was judged.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from typing import Annotated, Any, NoReturn

from django.db import models
from django.db.models import Case, Q, When
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, model_validator

from agents.models import Message
from evaluation.change.change import DELETED, HIT, Sample, mean_of
from evaluation.change.models import Baseline
from evaluation.dimensions import Dimension
from evaluation.models import BY_MESSAGE, COUNTED, ChannelShare, EvaluationRun, EvaluationScore, Method
from evaluation.propositions.files import dotted, in_words, location_of
from evaluation.runs.execute import Captured, run_json
from evaluation.runs.summary import (
    COVERABLE,
    NOTHING,
    TOO_LITTLE,
    WITHOUT_SCORE,
    RunSummary,
    Share,
    channels_of,
    total,
    why_too_little,
    window_statistics,
)
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation


class NotComparable(ValueError):
    """Two measurements cannot be compared: another judge, another procedure, other things measured. Says which."""


class UnreadableFile(ValueError):
    """A file that is no measurement; says which field is wrong and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Sample):
    """One proposition.

    Attributes:
        observations: Mean of the repeats, weight of the proposition. The cluster is a text: ``message:KEY``, ``situation:ID`` where speech
            was simulated (so that the same situations pair), ``channel:SLUG`` for an agent's channel dimensions, ``repeat:N`` where a
            whole window is judged at once. A file may hold none.
        share: How much was scored of what the judge can score; None where that is not known.
        by_message: Whether it is judged message by message.
        digest: Of everything in it that can change a score; empty where that is not known.
        unjudged: Whether it was asked and the judge could score nothing of it; of a file that is not known.
        inverted: Whether a high score says that the claim does not hold.
        scored, unscored: Judgements that were scored, and those that could not be, each repeat for itself; 0 in a file.
        deleted: Judgements of messages that were deleted since.
    """

    share: Share | None = None
    by_message: bool = False
    digest: str = ""
    unjudged: bool = False
    inverted: bool = False
    scored: int = 0
    unscored: int = 0
    deleted: int = 0

    @property
    def hits(self) -> Share | None:
        """Of the messages that the judge can score those that break the rule, or have a cue against it; None where that is not known."""
        if not self.by_message or self.share is None or any(not is_message(o) for o in self.observations):
            return None
        return Share(sum(o.value <= HIT for o in self.observations), self.share.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDimension:
    """One dimension.

    Attributes:
        reason: Why it has no score although there was something to score.
        messages, unscored: Messages that were judged one by one, and those of them that no proposition scored.
        unscored_because: Of self-consistency without a score: the reason that most of its judgements give; a file holds none.
        stated: How much was scored, as a file states it for the dimension as a whole.
    """

    score: float | None = None
    reason: str = ""
    propositions: Mapping[str, Measured] = field(default_factory=dict)
    messages: int = 0
    unscored: int = 0
    unscored_because: str = ""
    stated: Share | None = None

    @property
    def sample(self) -> Sample:
        """The dimension as a whole."""
        observations = [o for one in self.propositions.values() for o in one.observations]
        return Sample(score=self.score, observations=observations)

    @property
    def share(self) -> Share | None:
        """How much was scored; None where that is not known."""
        if self.stated is not None:
            return self.stated
        shares = [one.share for one in self.propositions.values() if one.share is not None]
        return total(shares) if shares else None


def is_message(observation: Observation) -> bool:
    """Return whether it is the score of one message."""
    return str(observation.cluster).startswith("message:")


class Measurement(BaseModel):
    """What was measured of one target: an agent's slug, or ``#`` and a channel's. Dumped it is what a comparison shows of it.

    Attributes:
        name: How it is called for people: ``baseline of 2026-11-20``, ``build=41``, ``FILE``.
        procedure: As `EvaluationRun.procedure`.
        persona_digest: Of the persona it was measured under; empty when not known.
        evaluation_run: Its row; None for a file, and where several evaluations are behind it.
        scope: Which messages, as people say it, e.g. ``7d, build=41``; empty: all; None where that is not known.
        where: The tags its messages have; None where that is not known.
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

    def extended_by(self, other: Measurement) -> Measurement:
        """Return it with the dimensions of another measurement, too."""
        dimensions = {**self.dimensions, **other.dimensions}
        return self.model_copy(update={"dimensions": dimensions, "runs": {**self.runs, **other.runs}})


# -- of evaluations
def measurement_of(run: EvaluationRun, *, name: str = "", dimensions: Collection[str] | None = None) -> Measurement:
    """A completed evaluation of an agent or a channel, in two queries; one more for an agent's channels.

    Args:
        name: What people call it; default ``evaluation N of DATE``.
        dimensions: Only these; default all the run measured.

    Raises:
        NotComparable: The evaluation is not completed: what it has is partial.
    """
    target = run.agent.slug if run.agent is not None else f"#{run.channel.slug}" if run.channel else ""
    if run.status != EvaluationRun.Status.COMPLETED:
        why = f": {run.error}" if run.error else ""
        raise NotComparable(f"evaluation {run.pk} of {target} is {run.status}{why}; only completed ones compare")
    wanted = [d for d in SCORERS if d in run.dimensions and (dimensions is None or d in dimensions)]
    tags = [] if run.simulated else [f"{key}={value}" for key, value in sorted(run.where.items())]
    day = timezone.localtime(run.finished_at or run.created_at).date().isoformat()
    scope = [] if run.window == "all" else [run.window]
    return Measurement(
        name=name or f"evaluation {run.pk} of {day}" + (f" ({', '.join(tags)})" if tags else ""),
        target=target,
        judge=run.judge,
        procedure=run.procedure,
        persona_digest=run.persona_digest,
        dimensions=_judged(run, wanted),
        runs=dict.fromkeys(wanted, run.pk),
        evaluation_run=run.pk,
        scope=", ".join([*scope, *tags, *(["evenly by position"] if run.position_bins else [])]),
        where={} if run.simulated else run.where,
    )


def measurement_of_runs(runs: Mapping[str, EvaluationRun]) -> Measurement:
    """Evaluations of one agent, judge and procedure as one, each in its dimensions; at least one, the newest last."""
    by_key = {run.pk: run for run in runs.values()}
    parts = [measurement_of(run, dimensions=[d for d, r in runs.items() if r.pk == pk]) for pk, run in by_key.items()]
    if len(parts) == 1:
        return parts[0]
    name = "; ".join(f"{', '.join(part.dimensions)}: {part.name}" for part in parts)
    return _together(parts, name=name, scope=parts[0].scope if len({part.scope for part in parts}) == 1 else None)


def measurement_of_baselines(baselines: Iterable[Baseline], candidate: Measurement | None = None) -> Measurement:
    """Baselines of one agent, judge and procedure as one, at least one; each dimension may come from a run of its own.

    `candidate` is what it will be compared with: a persona that changed since in any dimension is then seen.
    """
    rows = sorted(baselines, key=lambda b: (b.captured_at, b.pk))
    days = list(dict.fromkeys(b.captured_at.date().isoformat() for b in rows))
    runs = {b.evaluation_run_id: b.evaluation_run for b in rows}
    parts = [
        measurement_of(run, dimensions=[b.dimension for b in rows if b.evaluation_run_id == pk])
        for pk, run in runs.items()
    ]
    digests = [b.persona_digest for b in rows]
    return _together(
        parts,
        name=f"baseline of {days[0]}" if len(days) == 1 else f"baselines of {days[0]} to {days[-1]}",
        persona_digest=next((d for d in digests if candidate and d and d != candidate.persona_digest), digests[-1]),
    )


def _together(parts: Sequence[Measurement], **fields: Any) -> Measurement:
    """Measurements of different dimensions as one, the newest last."""
    together = parts[0]
    for part in parts[1:]:
        together = together.extended_by(part)
    update = {
        "dimensions": together.dimensions,
        "runs": together.runs,
        "where": parts[0].where if all(part.where == parts[0].where for part in parts) else None,
        "evaluation_run": parts[-1].evaluation_run if len(parts) == 1 else None,
    }
    return parts[-1].model_copy(update={**update, **fields})


@dataclass(slots=True)
class _Judgements:
    """The judgements of one proposition: by message, by window (that of a run or of a channel), and of messages deleted since.

    Attributes:
        share: Of those that are of no message, or of one that was deleted.
        unjudged: Whether the judge could not score one of them.
        inverted, scored, unscored: As of `Measured`.
        messages: Per message the score or None, the weight, and whether the judge can score it, of each repeat.
        windows: Per window the repeat, score and weight of each scored judgement; `counts` the count of each repeat.
    """

    by_message: bool
    share: Share = NOTHING
    unjudged: bool = False
    inverted: bool = False
    scored: int = 0
    unscored: int = 0
    messages: dict[int, list[tuple[int | None, float, bool]]] = field(default_factory=lambda: defaultdict(list))
    windows: dict[int, list[tuple[int, int, float]]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    deleted: list[Observation] = field(default_factory=list)


def _judged(run: EvaluationRun, dimensions: Sequence[str]) -> dict[str, MeasuredDimension]:
    """What a run, and those of its agent's channels, judged.

    What is judged message by message is the mean of the repeats of each message. What is judged over a window has one observation per
    channel; with one window alone its repeats, which share one weight so that their mean counts once. A channel's propositions share the
    weight of the agent's messages there, so that the weighted mean of the observations is the mean of the channels' scores weighted by
    messages. An exact statistic of a window has the figures of its messages, also where the claim itself is unscored.
    """
    own, linked = ([d for d in dimensions if (d in run.own_dimensions) is here] for here in (True, False))
    digests: dict[str, dict[str, str]] = {d: dict(of) for d, of in run.proposition_digests.items()}
    channels: dict[int, ChannelShare] = {}
    if linked:
        shares = run.channel_shares.select_related("channel_run__channel")
        channels = {c.channel_run_id: c for c in shares.exclude(channel_run__status__in=WITHOUT_SCORE)}
    for dimension in linked:  # a channel can have its own wording, so the digests of all are joined
        joined: dict[str, set[str]] = defaultdict(set)
        for channel in channels.values():
            for proposition, digest in channel.channel_run.proposition_digests.get(dimension, {}).items():
                joined[proposition].add(digest)
        digests[dimension] = {p: "+".join(sorted(all_of)) for p, all_of in joined.items()}
    judgements = _judgements(run, own, linked, channels)
    judges_messages = any(of.messages for by in judgements.values() for of in by.values())
    keys = dict(_clusters(run)) if judges_messages else {}
    measured, exact = {}, window_statistics(run.figures)
    for dimension, by in judgements.items():
        weights: dict[int, float] = defaultdict(float)  # of all propositions, by window
        for window, rows in ((w, rows) for of in by.values() for w, rows in of.windows.items()):
            weights[window] += rows[0][2]
        propositions = {}
        for name, of in sorted(by.items()):
            observations = [*of.deleted, *_of_messages(of, keys), *_of_windows(of, weights, channels)]
            observations = exact.get(dimension, {}).get(name, observations)
            score, share = mean_of(observations), of.share
            if dimension in COUNTED and of.counts:
                counts = list(of.counts.values())
                in_all = sorted(set.intersection(*map(set, counts)))  # repeats that no channel lacks
                observations = [Observation(float(sum(by[n] for by in counts)), 1.0, f"repeat:{n}") for n in in_all]
                score = sum(median_low(by.values()) for by in counts)
            for rows_of_one in of.messages.values():
                scored = any(score is not None for score, _, _ in rows_of_one)
                share += Share(int(scored), int(any(coverable for _, _, coverable in rows_of_one)))
            propositions[name] = Measured(
                score=score,
                observations=tuple(observations),
                share=share,
                by_message=of.by_message,
                digest=digests.get(dimension, {}).get(name, ""),
                unjudged=score is None and of.unjudged,
                inverted=of.inverted,
                scored=of.scored,
                unscored=of.unscored,
                deleted=len(of.deleted),
            )
        why = why_too_little(total(one.share or NOTHING for one in propositions.values() if one.by_message))
        scores = [one.score for one in propositions.values() if one.score is not None]
        mean = mean_of(o for one in propositions.values() for o in one.observations)
        number = (sum(scores) if scores else None) if dimension in COUNTED else mean
        judged_ones = [of.messages for of in by.values() if of.by_message]
        messages = {message for rows_by_message in judged_ones for message in rows_by_message}
        scored_messages = {
            message
            for rows_by_message in judged_ones
            for message, rows_of_one in rows_by_message.items()
            if any(score is not None for score, _, _ in rows_of_one)
        }
        measured[dimension] = MeasuredDimension(
            score=None if why else number,
            reason=why,
            propositions=propositions,
            messages=len(messages),
            unscored=len(messages - scored_messages),
            unscored_because=_commonest_reason(run, dimension)
            if Dimension(dimension).kind.judged_by == "pair" and (why or not scores)
            else "",
        )
    return measured


def _commonest_reason(run: EvaluationRun, dimension: str) -> str:
    """Return the reason that most of the unscored judgements of an evaluation give; empty where none does."""
    rows = run.scores.filter(dimension=dimension, status="unscored").exclude(reason="").order_by().values("reason")
    commonest = rows.annotate(n=models.Count("pk")).order_by("-n", "reason").first()
    return str(commonest["reason"]) if commonest is not None else ""


def _judgements(
    run: EvaluationRun, own: Sequence[str], linked: Sequence[str], channels: Collection[int]
) -> dict[str, dict[str, _Judgements]]:
    """By dimension and proposition; `own` dimensions are judged by the run itself, `linked` ones by those of its channels."""
    where = Q(evaluation_run=run, dimension__in=own) | Q(evaluation_run__in=list(channels), dimension__in=linked)
    rows = EvaluationScore.objects.filter(where).order_by("pk")
    rows = rows.annotate(coverable=Case(When(COVERABLE, then=True), default=False))
    about = (
        *("dimension", "proposition_id", "evaluation_run", "message", "repeat", "over_window"),
        *("status", "score", "count", "weight", "coverable", "judge", "inverted"),
    )
    judgements: dict[str, dict[str, _Judgements]] = {d: {} for d in (*own, *linked)}
    for dimension, proposition, window, message, repeat, over_window, *judged in rows.values_list(*about).iterator():
        status, score, count, weight, coverable, judge, inverted = judged
        by_message = dimension in BY_MESSAGE and not over_window
        if (of := judgements[dimension].get(proposition)) is None:
            of = judgements[dimension][proposition] = _Judgements(by_message)
        of.unjudged |= status == "unscored" and judge != ""
        of.inverted = inverted
        of.scored += status == "scored"
        of.unscored += status == "unscored"
        value = score if status == "scored" else None
        if message is not None:
            of.messages[message].append((value, weight, coverable))
            continue
        if repeat == 1:
            of.share += Share(int(status == "scored"), int(coverable))
        if status == "scored" and count is not None:
            of.counts[window][repeat] = count
        elif value is not None and by_message:
            of.deleted.append(Observation(float(value), weight, DELETED))
        elif value is not None:
            of.windows[window].append((repeat, value, weight))
    return judgements


def _of_messages(of: _Judgements, keys: Mapping[int, str]) -> Iterator[Observation]:
    for message, rows in of.messages.items():
        scores = [score for score, _, _ in rows if score is not None]
        if scores:
            heaviest = max(weight for _, weight, _ in rows)
            yield Observation(sum(scores) / len(scores), heaviest, keys.get(message, DELETED))


def _of_windows(
    of: _Judgements, weights: Mapping[int, float], channels: Mapping[int, ChannelShare]
) -> Iterator[Observation]:
    alone = sum(weight > 0 for weight in weights.values()) == 1
    for window, rows in of.windows.items():
        if alone:
            yield from (Observation(float(score), weight / len(rows), f"repeat:{n}") for n, score, weight in rows)
            continue
        link = channels.get(window)
        said, slug = (link.messages, link.channel_run.channel.slug) if link and link.channel_run.channel else (1, "")
        mean = sum(score for _, score, _ in rows) / len(rows)
        yield Observation(mean, said * rows[0][2] / weights[window], f"channel:{slug}")


def _clusters(run: EvaluationRun) -> Iterator[tuple[int, str]]:
    """What the scores of each judged message belong together by: the message, or the situation that was simulated.

    A message's key is made of its channel, its id there (without one its time or position) and its text, so that it means the same in a
    file and in another database. Of one situation alone each repeat is a sample; else a situation with its repeats is.
    """
    judged = EvaluationScore.objects.filter(evaluation_run=run, status="scored", message__isnull=False)
    messages = Message.objects.filter(pk__in=judged.values("message")).order_by()
    if not run.simulated:
        about = ("pk", "channel__slug", "external_id", "text", "sent_at", "position")
        for pk, channel, name, text, sent_at, position in messages.values_list(*about).iterator():
            name = name or (sent_at.isoformat() if sent_at else str(position))  # the same may be said twice
            content = "\0".join((channel, name, text)).encode(errors="replace")
            yield pk, f"message:{hashlib.blake2s(content, digest_size=6).hexdigest()}"
        return
    tags = dict(messages.values_list("pk", "tags").iterator())
    one_situation = len({of.get("situation", "") for of in tags.values()}) == 1
    for pk, of in tags.items():
        again = f"/{of.get('repeat', '1')}" if one_situation else ""
        yield pk, f"situation:{of.get('situation', '')}{again}"


# -- as JSON, and of a file
def as_json(judge: str, results: Sequence[Captured]) -> dict[str, Any]:
    """The object ``--json`` prints; `channels` are the channels' own runs, whose calls and cost are in none of the agents'."""
    channels = [_run_json(summary) for summary in channels_of(result.summary for result in results)]
    document = {"judge": judge, "runs": [_run_json(result.summary) for result in results]}
    return {**document, "channels": channels} if channels else document


def _run_json(summary: RunSummary) -> dict[str, Any]:
    """As `run_json`; a completed run has its `observations` (see `observations_json`), so that the file serves as a baseline later."""
    document = run_json(summary)
    if summary.run.status == EvaluationRun.Status.COMPLETED:
        document["observations"] = observations_json(measurement_of(summary.run))
    return document


def observations_json(measurement: Measurement) -> dict[str, Any]:
    """The judgements behind a measurement, per dimension and proposition, compact: the mean of the repeats per message.

    `scores` is by what was judged (``message:KEY``, ``situation:ID``, ``channel:SLUG``, ``repeat:N``), a list where there are several.
    `weight` is the proposition's; where what was judged counts differently (channels, by the agent's messages), `weights` has each.
    `judged` counts the messages that the judge could have scored, also where it scored none. `digest` tells whether the proposition is
    still the same.
    """
    document = {}
    for name, dimension in measurement.dimensions.items():
        rows = {p: _of_proposition(one) for p, one in sorted(dimension.propositions.items()) if _was_judged(one)}
        if rows:
            document[name] = rows
    return document


def _was_judged(one: Measured) -> bool:
    return bool(one.observations) or (one.by_message and one.share is not None and one.share.asked > 0)


def _of_proposition(one: Measured) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for row in one.observations:
        key, value = str(row.cluster), round(row.value, 4)
        value = int(value) if value == int(value) else value
        scores[key] = value if key not in scores else [*_listed(scores[key]), value]
    weights = {str(row.cluster): round(row.weight, 6) for row in one.observations}
    same = len(set(weights.values())) == 1
    weight = {"weight": next(iter(weights.values()))} if same else {"weights": weights}
    return {
        **({"digest": one.digest} if one.digest else {}),
        **(weight if weights else {}),
        **({"judged": one.share.asked} if one.by_message and one.share else {}),
        "scores": dict(sorted(scores.items())),
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


Score = Annotated[float, Field(ge=0, le=9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # a score or a count; which of them, its dimension says


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _FileJudgements(_Strict):
    digest: str = ""
    weight: Weight = 1.0
    weights: dict[str, Weight] = Field(default_factory=dict)
    judged: Count | None = None
    scores: dict[str, Figure | list[Figure]]

    def measured(self, score: float | None) -> Measured:
        pairs = [(key, float(value)) for key, values in self.scores.items() for value in _listed(values)]
        known = self.judged is not None and len(pairs) <= self.judged
        observations = tuple(Observation(value, self.weights.get(key, self.weight), key) for key, value in pairs)
        return Measured(
            score=mean_of(observations) if score is None else score,
            observations=observations,
            share=Share(len(pairs), self.judged or 0) if known else None,
            by_message=known,
            digest=self.digest,
        )


class _FileDimension(_Strict):
    score: Score | None = None
    count: Count | None = None
    scored: Count = 0
    unscored: Count = 0
    coverage: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    reason: str = ""
    propositions: dict[str, Figure | None] = Field(default_factory=dict)

    def stated(self, counted: Share) -> Share | None:
        """How much was scored by its `coverage`; `counted` where that says the same, as its counts are exact."""
        if self.coverage is None or counted.rounded == self.coverage:
            return counted if counted.asked else None
        if self.coverage == 0:
            return Share(0, self.unscored)
        return Share(self.scored, round(self.scored / self.coverage))


class _FileRun(_Strict):
    agent: str | None = None
    channel: str | None = None
    judge: str = ""
    procedure: str = Method.PLUMBLINE.value
    persona_digest: str = ""
    status: str = "completed"
    dimensions: dict[str, _FileDimension]
    observations: dict[str, dict[str, _FileJudgements]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sound(self) -> _FileRun:
        if not (self.agent or self.channel):
            raise ValueError("names no target; allowed: agent or channel, a slug")
        names, figures = [self.agent or "", self.channel or "", self.judge, self.procedure], dict[str, Any]()
        for d, of in self.dimensions.items():
            names += of.propositions
            figures |= {f"dimensions.{d}.propositions.{p}": score for p, score in of.propositions.items()}
        for d, by_proposition in self.observations.items():
            names += by_proposition
            for p, one in by_proposition.items():
                figures |= {f"observations.{d}.{p}.scores[{key}]": value for key, value in one.scores.items()}
        for name in (*self.dimensions, *self.observations):
            if name not in SCORERS:
                raise ValueError(f"unknown dimension {name!r}; allowed: {', '.join(SCORERS)}")
        for text in names:
            if not text.isprintable():
                raise ValueError(f"{text[:60]!r} holds control characters; allowed: one line of visible text")
        for place, value in figures.items():
            counted = place.split(".")[1] in COUNTED
            if not counted and any(v is not None and v > 9 for v in _listed(value)):
                raise ValueError(f"{place} is {value}; allowed: 0 to 9")
        return self

    def measurement(self, judge: str, name: str) -> Measurement:
        dimensions = {}
        for d, of in self.dimensions.items():
            judged = self.observations.get(d, {})
            propositions = {p: Measured(score=score) for p, score in of.propositions.items()}
            propositions |= {p: one.measured(of.propositions.get(p)) for p, one in judged.items()}
            score = of.count if d in COUNTED else of.score
            if score is None and d not in (*COUNTED, *BY_MESSAGE):  # unscored, with a statistic that compares
                score = mean_of(o for one in propositions.values() for o in one.observations)
            by_message = [one for one in propositions.values() if one.by_message]
            messages = max((one.share.asked for one in by_message if one.share), default=0)
            scored = {o.cluster for one in by_message for o in one.observations}
            dimensions[d] = MeasuredDimension(
                score=score,
                reason=of.reason if of.reason.startswith(TOO_LITTLE) else "",
                propositions=propositions,
                messages=messages,
                unscored=max(0, messages - len(scored)),
                stated=of.stated(total(one.share for one in by_message if one.share)),
            )
        return Measurement(
            name=name,
            target=self.agent or f"#{self.channel}",
            judge=self.judge or judge,
            procedure=self.procedure,
            persona_digest=self.persona_digest,
            dimensions=dimensions,
        )


class _File(_Strict):
    judge: str = Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    runs: list[_FileRun]
    channels: list[_FileRun] = Field(default_factory=list)


def measurements_of_file(path: Path | str) -> dict[str, Measurement]:
    """The completed measurements in a file that ``capture_baseline --json`` (or ``evaluate --json``) printed, UTF-8.

    Without `observations` its scores still serve: they are then taken as exact.

    Returns:
        By slug; channels by ``#slug``.

    Raises:
        UnreadableFile: It cannot be read, or is not such a file; names the file, the field and what is allowed.
    """

    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is not allowed; allowed: finite numbers")

    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"), parse_constant=no_number)
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise UnreadableFile(f"{path}: nested too deeply") from None
    except ValueError as error:  # also what is no UTF-8
        raise UnreadableFile(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path}: expected an object with judge and runs, as capture_baseline --json prints it")
    try:
        document = _File.model_validate(data)
    except ValidationError as error:
        rows = [dict(row) for row in error.errors()]
        problems = [f"{path}: {dotted(location_of(row)) or 'the file'}: {in_words(row, ())}" for row in rows[:10]]
        raise UnreadableFile("\n".join(dict.fromkeys(problems))) from None
    measurements: dict[str, Measurement] = {}
    for run in (*document.runs, *document.channels):
        if run.status != "completed":
            continue
        one = run.measurement(document.judge, str(path))
        if one.target in measurements:
            raise UnreadableFile(f"{path}: {one.target} stands twice; allowed: one run of each agent or channel")
        measurements[one.target] = one
    return measurements
