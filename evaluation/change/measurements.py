"""One measurement of an agent or a channel, to be compared with another: read from evaluations or from baselines.

Every scored judgement is in it, clustered by what was judged. `measurement_files` reads the same from a file.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Case, Q, When
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from agents.models import Message
from evaluation.change.change import DELETED, HIT, Sample, mean_of
from evaluation.change.models import Baseline
from evaluation.dimensions import Dimension
from evaluation.models import BY_MESSAGE, COUNTED, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.summary import (
    COVERABLE,
    NOTHING,
    WITHOUT_SCORE,
    Share,
    total,
    why_too_little,
    window_statistics,
)
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation


class NotComparable(ValueError):
    """Two measurements cannot be compared: another judge, another procedure, other things measured. Says which."""


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


class _Judgement(NamedTuple):
    """One judgement of a message: its score (None: not scored), its weight, and whether the judge can score it."""

    score: int | None
    weight: float
    coverable: bool


@dataclass(slots=True)
class _Judgements:
    """The judgements of one proposition: by message, by window (that of a run or of a channel), and of messages deleted since.

    Attributes:
        share_of_others: Of those that are of no message, or of one that was deleted.
        unjudged: Whether the judge could not score one of them.
        inverted, scored, unscored: As of `Measured`.
        messages: Those of each message, its repeats.
        windows: Per window the repeat, score and weight of each scored judgement; `counts` the count of each repeat.
    """

    by_message: bool
    share_of_others: Share = NOTHING
    unjudged: bool = False
    inverted: bool = False
    scored: int = 0
    unscored: int = 0
    messages: dict[int, list[_Judgement]] = field(default_factory=lambda: defaultdict(list))
    windows: dict[int, list[tuple[int, int, float]]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    deleted: list[Observation] = field(default_factory=list)

    @property
    def scored_messages(self) -> set[int]:
        return {message for message, rows in self.messages.items() if any(row.score is not None for row in rows)}

    @property
    def share(self) -> Share:
        """How much was scored of what the judge can score; the repeats of a message count once."""
        coverable = sum(any(row.coverable for row in rows) for rows in self.messages.values())
        return self.share_of_others + Share(len(self.scored_messages), coverable)


def _judged(run: EvaluationRun, dimensions: Sequence[str]) -> dict[str, MeasuredDimension]:
    """Return what a run, and those of its agent's channels, judged.

    What is judged message by message is the mean of the repeats of each message. What is judged over a window has one observation per
    channel; with one window alone its repeats, which share one weight so that their mean counts once. A channel's propositions share the
    weight of the agent's messages there, so that the weighted mean of the observations is the mean of the channels' scores weighted by
    messages. An exact statistic of a window has the figures of its messages, also where the claim itself is unscored.
    """
    own = [name for name in dimensions if name in run.own_dimensions]
    linked = [name for name in dimensions if name not in run.own_dimensions]
    channels: dict[int, ChannelShare] = {}
    if linked:
        shares = run.channel_shares.select_related("channel_run__channel")
        channels = {share.channel_run_id: share for share in shares.exclude(channel_run__status__in=WITHOUT_SCORE)}
    digests: dict[str, Mapping[str, str]] = dict(run.proposition_digests)
    for name in linked:
        digests[name] = _digests_of_channels(channels.values(), name)
    judgements = _judgements(run, own, linked, channels)
    judges_messages = any(judged.messages for by in judgements.values() for judged in by.values())
    keys = dict(_clusters(run)) if judges_messages else {}
    exact = window_statistics(run.figures)
    measured = {}
    for dimension, by_proposition in judgements.items():
        weights = _weights_of_windows(by_proposition.values())
        propositions = {}
        for name, judged in sorted(by_proposition.items()):
            observations = exact.get(dimension, {}).get(name)
            if observations is None:
                observations = [*judged.deleted, *_of_messages(judged, keys), *_of_windows(judged, weights, channels)]
            score = mean_of(observations)
            if dimension in COUNTED and judged.counts:
                score, observations = _of_counts(list(judged.counts.values()))
            propositions[name] = Measured(
                score=score,
                observations=tuple(observations),
                share=judged.share,
                by_message=judged.by_message,
                digest=digests.get(dimension, {}).get(name, ""),
                unjudged=score is None and judged.unjudged,
                inverted=judged.inverted,
                scored=judged.scored,
                unscored=judged.unscored,
                deleted=len(judged.deleted),
            )
        measured[dimension] = _dimension(run, dimension, propositions, by_proposition.values())
    return measured


def _digests_of_channels(channels: Iterable[ChannelShare], dimension: str) -> dict[str, str]:
    """Return the digests of a dimension's propositions; a channel can have its own wording, so those of all are joined."""
    joined: dict[str, set[str]] = defaultdict(set)
    for channel in channels:
        for proposition, digest in channel.channel_run.proposition_digests.get(dimension, {}).items():
            joined[proposition].add(digest)
    return {proposition: "+".join(sorted(digests)) for proposition, digests in joined.items()}


def _weights_of_windows(judgements: Iterable[_Judgements]) -> dict[int, float]:
    """Return by window the weight of all propositions."""
    weights: dict[int, float] = defaultdict(float)
    for judged in judgements:
        for window, rows in judged.windows.items():
            weights[window] += rows[0][2]
    return weights


def _of_counts(by_window: Sequence[Mapping[int, int]]) -> tuple[float, list[Observation]]:
    """Return the count over all windows, and that of each repeat that no window lacks."""
    in_all = sorted(set.intersection(*map(set, by_window)))
    observations = [Observation(float(sum(counts[n] for counts in by_window)), 1.0, f"repeat:{n}") for n in in_all]
    return sum(median_low(counts.values()) for counts in by_window), observations


def _dimension(
    run: EvaluationRun, name: str, propositions: Mapping[str, Measured], judgements: Iterable[_Judgements]
) -> MeasuredDimension:
    """Return a dimension by its propositions; without a score where too little was scored."""
    too_little = why_too_little(total(one.share or NOTHING for one in propositions.values() if one.by_message))
    scores = [one.score for one in propositions.values() if one.score is not None]
    score = mean_of(o for one in propositions.values() for o in one.observations)
    if name in COUNTED:
        score = sum(scores) if scores else None
    messages, scored_messages = set[int](), set[int]()
    for judged in judgements:
        if judged.by_message:
            messages |= judged.messages.keys()
            scored_messages |= judged.scored_messages
    because = ""
    if Dimension(name).kind.judged_by == "pair" and (too_little or not scores):
        because = _commonest_reason(run, name)
    return MeasuredDimension(
        score=None if too_little else score,
        reason=too_little,
        propositions=propositions,
        messages=len(messages),
        unscored=len(messages - scored_messages),
        unscored_because=because,
    )


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
    for dimension, proposition, window, message, repeat, over_window, *rest in rows.values_list(*about).iterator():
        status, score, count, weight, coverable, judge, inverted = rest
        by_message = dimension in BY_MESSAGE and not over_window
        judged = judgements[dimension].get(proposition)
        if judged is None:
            judged = judgements[dimension][proposition] = _Judgements(by_message)
        judged.unjudged |= status == "unscored" and judge != ""
        judged.inverted = inverted
        judged.scored += status == "scored"
        judged.unscored += status == "unscored"
        value = score if status == "scored" else None
        if message is not None:
            judged.messages[message].append(_Judgement(value, weight, coverable))
            continue
        if repeat == 1:
            judged.share_of_others += Share(int(status == "scored"), int(coverable))
        if status == "scored" and count is not None:
            judged.counts[window][repeat] = count
        elif value is not None and by_message:
            judged.deleted.append(Observation(float(value), weight, DELETED))
        elif value is not None:
            judged.windows[window].append((repeat, value, weight))
    return judgements


def _of_messages(judged: _Judgements, keys: Mapping[int, str]) -> Iterator[Observation]:
    for message, rows in judged.messages.items():
        scores = [row.score for row in rows if row.score is not None]
        if scores:
            heaviest = max(row.weight for row in rows)
            yield Observation(sum(scores) / len(scores), heaviest, keys.get(message, DELETED))


def _of_windows(
    judged: _Judgements, weights: Mapping[int, float], channels: Mapping[int, ChannelShare]
) -> Iterator[Observation]:
    alone = sum(weight > 0 for weight in weights.values()) == 1
    for window, rows in judged.windows.items():
        if alone:
            yield from (Observation(float(score), weight / len(rows), f"repeat:{n}") for n, score, weight in rows)
            continue
        link = channels.get(window)
        messages, slug = 1, ""
        if link is not None and link.channel_run.channel is not None:
            messages, slug = link.messages, link.channel_run.channel.slug
        mean = sum(score for _, score, _ in rows) / len(rows)
        yield Observation(mean, messages * rows[0][2] / weights[window], f"channel:{slug}")


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
