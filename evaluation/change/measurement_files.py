"""Measurements as JSON: what commands print, and what a later comparison reads from such a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluation.change.change import mean_of
from evaluation.change.judge_changes import known_identities, moments_of_change
from evaluation.change.measured import MeasuredDimension, MeasuredProposition, item_of
from evaluation.change.measurements import Measurement, measurement_of
from evaluation.judge.identity import JudgeIdentity
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, Method
from evaluation.propositions.files import dotted, in_words, location_of
from evaluation.runs.execute import Captured, run_json
from evaluation.runs.numbers import RunSummary
from evaluation.runs.shares import TOO_LITTLE, Share, total
from evaluation.runs.summary import channels_of
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation

HIGHEST_SCORE = 9
OF_CONVERSATION = "/"  # between a conversation and its message, in the name of what was judged
MOST_PROBLEMS = 10  # of a file that are named


class UnreadableFile(ValueError):
    """A file that is no measurement; says which field is wrong and what is allowed."""


# -- writing
def as_json(judge: str, results: Sequence[Captured]) -> dict[str, Any]:
    """Return the object ``--json`` prints; `channels` are the channels' own runs, whose calls and cost are in none of the agents'."""
    summaries = [result.summary for result in results]
    document: dict[str, Any] = {"judge": judge, "runs": [_run_with_observations(summary) for summary in summaries]}
    channels = channels_of(summaries)
    if channels:
        document["channels"] = [_run_with_observations(summary) for summary in channels]
    return document


def _run_with_observations(summary: RunSummary) -> dict[str, Any]:
    """Return a run as `run_json` has it, a completed one with its `observations`, so that the file serves as a baseline later."""
    document = run_json(summary)
    identities = known_identities(summary.run, moments_of_change())
    document["judged_by"] = [identity.model_dump(mode="json") for identity in identities]
    if summary.run.status == EvaluationRun.Status.COMPLETED:
        document["observations"] = observations_json(measurement_of(summary.run))
    return document


def observations_json(measurement: Measurement) -> dict[str, Any]:
    """Return the judgements behind a measurement, per dimension and proposition, compact: the mean of the repeats per message.

    `scores` is by what was judged (``message:KEY``, ``situation:ID``, ``channel:SLUG``, ``repeat:N``, and ``conversation:KEY/message:KEY``
    where conversations were kept by chance), a list where there are several. `weight` is the proposition's; where what was judged counts
    differently (channels, by the agent's messages; conversations, by their chance), `weights` has each.
    `of_ten` says in how many of ten messages a rule should hold, where that is not in every one.
    `judged` counts the messages that the judge could have scored, also where it scored none. `digest` tells whether the proposition is
    still the same.
    """
    document = {}
    for name, dimension in measurement.dimensions.items():
        propositions = {}
        for proposition, measured in sorted(dimension.propositions.items()):
            if _was_judged(measured):
                propositions[proposition] = _proposition_json(measured)
        if propositions:
            document[name] = propositions
    return document


def _was_judged(measured: MeasuredProposition) -> bool:
    if measured.observations:
        return True
    return measured.by_message and measured.share is not None and measured.share.asked > 0


def _proposition_json(measured: MeasuredProposition) -> dict[str, Any]:
    """Return the judgements of one proposition, as `observations_json` describes them."""
    scores: dict[str, Any] = {}
    weights: dict[str, float] = {}
    for observation in measured.observations:
        key = str(observation.cluster)
        if observation.item is not None:
            key = f"{observation.cluster}{OF_CONVERSATION}{observation.item}"
        value = _short_number(observation.value)
        # Of one message a proposition has one score; of a window, or a situation, there may be several.
        scores[key] = [*_as_list(scores[key]), value] if key in scores else value
        weights[key] = round(observation.weight, 6)
    document: dict[str, Any] = {}
    if measured.digest:
        document["digest"] = measured.digest
    if measured.of_ten is not None:
        document["of_ten"] = measured.of_ten
    if len(set(weights.values())) == 1:
        document["weight"] = next(iter(weights.values()))
    elif weights:
        document["weights"] = weights
    if measured.by_message and measured.share:
        document["judged"] = measured.share.asked
    document["scores"] = dict(sorted(scores.items()))
    return document


def _short_number(value: float) -> float:
    value = round(value, 4)
    return int(value) if value == int(value) else value


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# -- reading
Score = Annotated[float, Field(ge=0, le=HIGHEST_SCORE, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # a score or a count; which of them, its dimension says


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _FileJudgements(_Strict):
    """The judgements of one proposition, as `observations_json` writes them."""

    digest: str = ""
    of_ten: Annotated[int, Field(ge=1, le=9)] | None = None
    weight: Weight = 1.0
    weights: dict[str, Weight] = Field(default_factory=dict)
    judged: Count | None = None
    scores: dict[str, Figure | list[Figure]]

    def measured(self, score: float | None) -> MeasuredProposition:
        """Return them as a proposition that was measured.

        Args:
            score: What the file says of the proposition; without it the score is the mean of the judgements.
        """
        observations = []
        for key, values in self.scores.items():
            weight = self.weights.get(key, self.weight)
            cluster = key
            item = None
            if key.startswith("conversation:"):
                cluster, _, item = key.partition(OF_CONVERSATION)
            observations += [Observation(float(value), weight, cluster, item=item) for value in _as_list(values)]
        if score is None:
            score = mean_of(observations)
        # More judgements than messages are repeats of a window; without `judged` it is not known how much was asked.
        if self.judged is None or len(observations) > self.judged:
            return MeasuredProposition(
                score=score, observations=tuple(observations), digest=self.digest, of_ten=self.of_ten
            )
        return MeasuredProposition(
            score=score,
            observations=tuple(observations),
            share=Share(len(observations), self.judged),
            by_message=True,
            digest=self.digest,
            of_ten=self.of_ten,
        )


class _FileDimension(_Strict):
    """The figures of one dimension, as `run_json` writes them."""

    score: Score | None = None
    count: Count | None = None
    scored: Count = 0
    unscored: Count = 0
    coverage: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    reason: str = ""
    propositions: dict[str, Figure | None] = Field(default_factory=dict)

    def measured(self, name: str, judgements: dict[str, _FileJudgements]) -> MeasuredDimension:
        """Return the dimension as it was measured.

        Args:
            judgements: Of its propositions; a proposition without any has its score alone.

        Returns:
            `reason` only where too little was scored: no other reason keeps a dimension from being compared.
        """
        propositions = {
            proposition: MeasuredProposition(score=score) for proposition, score in self.propositions.items()
        }
        for proposition, of_proposition in judgements.items():
            propositions[proposition] = of_proposition.measured(self.propositions.get(proposition))
        score = self.count if name in COUNTED else self.score
        if score is None and name not in COUNTED and name not in BY_MESSAGE:  # unscored, with a statistic that compares
            score = mean_of(MeasuredDimension(propositions=propositions).sample.observations)
        shares: list[Share] = []
        scored_messages: set[object] = set()
        for measured in propositions.values():
            if measured.by_message and measured.share:
                shares.append(measured.share)
                scored_messages |= {item_of(observation) for observation in measured.observations}
        messages = max((share.asked for share in shares), default=0)
        too_little = self.reason.startswith(TOO_LITTLE)
        return MeasuredDimension(
            score=score,
            reason=self.reason if too_little else "",
            propositions=propositions,
            messages=messages,
            unscored=max(0, messages - len(scored_messages)),
            stated=self._share(total(shares)),
        )

    def _share(self, counted: Share) -> Share | None:
        """Return how much was scored, by `coverage`, the rounded share scored; None where that is not known.

        Args:
            counted: What the judgements say; its counts are exact, so it is taken where `coverage` says the same.
        """
        if self.coverage is None or counted.rounded == self.coverage:
            return counted if counted.asked else None
        if self.coverage == 0:
            return Share(0, self.unscored)
        return Share(self.scored, round(self.scored / self.coverage))  # as many as give this share


class _FileRun(_Strict):
    """One evaluation of an agent or a channel, as `as_json` writes it."""

    agent: str | None = None
    channel: str | None = None
    judge: str = ""
    procedure: str = Method.PLUMBLINE.value
    persona_digest: str = ""
    status: str = "completed"
    judged_by: list[JudgeIdentity] = Field(default_factory=list)
    dimensions: dict[str, _FileDimension]
    observations: dict[str, dict[str, _FileJudgements]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_sound(self) -> _FileRun:
        """Refuse what no command prints.

        Raises:
            ValueError: Names the field and what is allowed.
        """
        if not (self.agent or self.channel):
            raise ValueError("names no target; allowed: agent or channel, a slug")
        for name in (*self.dimensions, *self.observations):
            if name not in SCORERS:
                raise ValueError(f"unknown dimension {name!r}; allowed: {', '.join(SCORERS)}")
        for text in self._texts():  # they are printed in terminals
            if not text.isprintable():
                raise ValueError(f"{text[:60]!r} holds control characters; allowed: one line of visible text")
        for field, value in self._scores():
            if value is not None and any(number > HIGHEST_SCORE for number in _as_list(value)):
                raise ValueError(f"{field} is {value}; allowed: 0 to 9")
        for name, dimension in self.dimensions.items():
            if dimension.score is not None and not self.observations.get(name) and self.status == "completed":
                raise ValueError(
                    f"dimensions.{name} has a score, but observations.{name} has no judgements; allowed: what capture_baseline "
                    "--json prints"
                )
        return self

    def _texts(self) -> Iterator[str]:
        """Yield the texts that a comparison shows."""
        yield from (self.agent or "", self.channel or "", self.judge, self.procedure)
        for identity in self.judged_by:
            yield from (identity.endpoint, identity.served_model, identity.prompt_digest)
        for dimension in self.dimensions.values():
            yield from dimension.propositions
        for judgements in self.observations.values():
            yield from judgements

    def _scores(self) -> Iterator[tuple[str, Any]]:
        """Yield where each score stands, and the score or the list of scores. Counts are left out, they have no upper limit."""
        for name, dimension in self.dimensions.items():
            if name not in COUNTED:
                for proposition, score in dimension.propositions.items():
                    yield f"dimensions.{name}.propositions.{proposition}", score
        for name, judgements in self.observations.items():
            if name not in COUNTED:
                for proposition, of_proposition in judgements.items():
                    for key, value in of_proposition.scores.items():
                        yield f"observations.{name}.{proposition}.scores[{key}]", value

    def measurement(self, *, judge: str, name: str) -> Measurement:
        """Return the run as a measurement.

        Args:
            judge: Who judged, where the run does not say.
            name: What people call it.
        """
        dimensions = {}
        for dimension, figures in self.dimensions.items():
            dimensions[dimension] = figures.measured(dimension, self.observations.get(dimension, {}))
        return Measurement(
            name=name,
            target=self.agent or f"#{self.channel}",
            judge=self.judge or judge,
            procedure=self.procedure,
            persona_digest=self.persona_digest,
            dimensions=dimensions,
            judged_by=tuple(self.judged_by),
        )


class _File(_Strict):
    judge: str = Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    runs: list[_FileRun]
    channels: list[_FileRun] = Field(default_factory=list)


def measurements_of_file(path: Path | str) -> dict[str, Measurement]:
    """Return the completed measurements in a file that ``capture_baseline --json`` (or ``evaluate --json``) printed, UTF-8.

    Returns:
        By slug; channels by ``#slug``.

    Raises:
        UnreadableFile: It cannot be read, or is not such a file; names the file, the field and what is allowed.
    """
    document = _parsed(path)
    measurements: dict[str, Measurement] = {}
    for run in (*document.runs, *document.channels):
        if run.status != "completed":
            continue
        measurement = run.measurement(judge=document.judge, name=str(path))
        if measurement.target in measurements:
            raise UnreadableFile(
                f"{path}: {measurement.target} stands twice; allowed: one run of each agent or channel"
            )
        measurements[measurement.target] = measurement
    return measurements


def _parsed(path: Path | str) -> _File:
    """Return the content of a file.

    Raises:
        UnreadableFile: It cannot be read, is no JSON, or is no such file: names up to ten fields and what is allowed.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"), parse_constant=_refuse_constant)
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise UnreadableFile(f"{path}: nested too deeply") from None
    except ValueError as error:  # also what is no UTF-8
        raise UnreadableFile(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path}: expected an object with judge and runs, as capture_baseline --json prints it")
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        problems = []
        for row in error.errors()[:MOST_PROBLEMS]:
            field = dotted(location_of(dict(row))) or "the file"
            problems.append(f"{path}: {field}: {in_words(dict(row), allowed=())}")  # unknown fields are no error here
        raise UnreadableFile("\n".join(dict.fromkeys(problems))) from None


def _refuse_constant(name: str) -> NoReturn:
    """Refuse ``NaN`` and ``Infinity``, which Python's parser would take."""
    raise ValueError(f"{name} is not allowed; allowed: finite numbers")
