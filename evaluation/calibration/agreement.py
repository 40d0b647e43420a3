"""How far a judge agrees with people: the figures of a judge's passport, computed from labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from django.db.models import QuerySet
from pydantic import BaseModel, Field, computed_field

from agents.kit.text.wording import counted, decimal
from evaluation.calibration.labels import Key, population_of, scored_judgements
from evaluation.calibration.models import LEAST_ITEMS, LabelSet, ScoreLabel
from evaluation.judge.identity import JudgeIdentity, identity_in, newest_identity
from evaluation.judge.verdicts import MAX_SCORE, MIN_SCORE
from evaluation.models import EvaluationScore, Method, procedure_fields, procedure_name
from evaluation.runs.numbers import rounded
from evaluation.statistics.agreement import (
    RESAMPLES,
    kappa_beyond_people,
    krippendorff_alpha,
    quadratic_weighted_kappa,
    spearman,
)
from evaluation.statistics.bootstrap import Estimate, Observation, bootstrap_mean
from evaluation.statistics.difference import share_interval
from evaluation.statistics.prediction_powered import LEAST_LABELS, prediction_powered_mean

WANTED_HALF_WIDTH = 0.1
MIDDLE = (MIN_SCORE + MAX_SCORE) / 2
MOST_WANTED = 2_000  # more labels than people give: then only "many" is said
BETTER = "better than chance"


def swap_verdict(interval: tuple[float, float] | None) -> str:
    """Return what an area under the curve says, by its interval; empty without one."""
    if interval is None:
        return ""
    low, high = interval
    if low > 0.5:
        return BETTER
    if high < 0.5:
        return "worse than chance"
    return "no better than chance so far"


# -- values
class SwapShown(BaseModel):
    """A judge's swap test in one dimension as it is stored, and shown with its scores.

    Attributes:
        auc: How often an agent's own text scored higher than one of another in its place: 0.5 is chance, 1 never wrong; null
            with `reason`.
        high_share: Share of the swapped texts scored 7 or more, 0 to 1.
        own_scored, swapped_scored: Texts with a score. `agents`: whose.
        against: Whose texts were swapped in: agents, or the foils that come with Plumbline.
        by_agent: The same area of each agent alone, by slug; those without a figure are left out.
        identity: Who judged; null where that is not known.
    """

    auc: float | None
    interval: tuple[float, float] | None
    reason: str
    high_share: float | None
    own_scored: int
    swapped_scored: int
    agents: int
    against: str
    checked_at: str
    by_agent: dict[str, float] = Field(default_factory=dict)
    identity: JudgeIdentity | None = None


class Figure(BaseModel):
    """A figure as it is printed and stored: value and 95 % interval, each null with `reason` saying why."""

    value: float | None
    interval: tuple[float, float] | None
    n: int
    reason: str

    @classmethod
    def of(cls, estimate: Estimate) -> Figure:
        """Return an estimate with its numbers rounded; `interval` is None where it has none."""
        interval = None
        if estimate.interval is not None:
            interval = (round(estimate.interval.low, 4), round(estimate.interval.high, 4))
        return cls(value=rounded(estimate.value), interval=interval, n=estimate.n, reason=estimate.reason)

    @property
    def text(self) -> str:
        return "–" if self.value is None else decimal(self.value, 2)

    @property
    def interval_text(self) -> str:
        """Return e.g. ``0.48 to 0.74``, or why there is no interval."""
        if self.interval is None:
            return self.reason
        low, high = self.interval
        return f"{decimal(low, 2)} to {decimal(high, 2)}"


class OrderShown(BaseModel):
    """Hold an order test as it is stored and shown: what asking propositions together does to their scores, in points.

    Attributes:
        shuffled: Asked in another order less asked as usual. `alone`: each in a call of its own less asked as usual.
        pairs: Judgements that have a score each way.
        identity: Who judged; null where that is not known.
    """

    shuffled: Figure
    alone: Figure
    pairs: int
    checked_at: str
    identity: JudgeIdentity | None = None


class Observed(BaseModel):
    """Hold what a judge's newest evaluations show of it without labels, as it is stored.

    Attributes:
        evaluations: How many were read.
        scored, asked: Judgements it scored, of those it could have scored.
        noise: Standard deviation between judgements of the same item, in points; null where none was judged twice.
        repeated: Items that were judged twice or more.
    """

    evaluations: int = 0
    scored: int = 0
    asked: int = 0
    noise: float | None = None
    repeated: int = 0


class PoweredMean(BaseModel):
    """The mean people would have given a label set's whole population, from their labels and the judge's scores of everything.

    Attributes:
        population: Judgements it was drawn from; `drawn` how many were, `labelled` those with a label.
        mean: Where higher is better: numbers for anti-patterns are flipped.
    """

    label_set: str
    population: int
    drawn: int
    labelled: int
    mean: Figure


class JudgeAgreement(BaseModel):
    """A judge beside people in one dimension, as it is printed and stored. The judge's raw score of the claim is compared with the labels.

    Where several people labelled a judgement, their mean stands for them. Trivial and unscored judgements, exact rules, "cannot tell"
    and labels that were not given blind are in no figure. Labels of judgements by an earlier model or prompt are in the prediction-powered
    means alone, whose population has these judgements, too.

    Attributes:
        identity: Who judged; null where that is not known: then all labels count.
        labels: Labels in the figures; `items` judgements that have one, `annotators` who gave them.
        cannot_tell: Labels without a value. `not_blind`: labels given after the judge's score was shown.
        earlier_labels: Labels of judgements by an earlier model or prompt.
        conversations: How many the labelled judgements are of: kappa's interval draws whole ones, from 10 on. A window that was judged as
            a whole counts as one.
        alpha: Krippendorff's alpha (interval metric), judge and people as two raters.
        people_alpha: The same among the annotators: what can be expected of a judge at best.
        beyond_people: Kappa of judge and person less that of two people, where two have labelled: below 0 the judge agrees less.
        precision, recall: Of violations, where people used only 0 and 9: of what the judge found (a score below 4.5) the share that is
            one, and of what is one the share that it found; null with other labels.
        bias: Judge minus people, in points, higher is better: positive where the judge is too lenient.
    """

    judge: str
    procedure: str
    dimension: str
    identity: JudgeIdentity | None
    labels: int
    items: int
    annotators: int
    cannot_tell: int
    not_blind: int
    earlier_labels: int
    conversations: int
    kappa: Figure
    spearman: Figure
    alpha: Figure
    people_alpha: Figure
    beyond_people: Figure
    precision: Figure | None
    recall: Figure | None
    bias: Figure
    prediction_powered: list[PoweredMean]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def needed(self) -> list[str]:
        """Return what is too little to say more, each with how many labels would do; empty when nothing is."""
        needed = [self._needed_for_kappa(), self._needed_for_means()]
        if self.annotators == 1:
            needed.append("a second annotator, to know how well people agree with each other")
        return [text for text in needed if text]

    def rows(self) -> list[tuple[str, str, Figure]]:
        """Return the figures in the order they are shown: name, what it means, and the figure."""
        rows = [
            ("Quadratic-weighted kappa", "0 is chance, 1 is perfect agreement", self.kappa),
            ("Spearman's rank correlation", "whether they put judgements in the same order", self.spearman),
            ("Krippendorff's alpha, judge and people", "as two raters", self.alpha),
            ("Krippendorff's alpha, among people", "what can be expected of a judge at best", self.people_alpha),
            ("Kappa beyond that of two people", "below 0 the judge agrees less than they do", self.beyond_people),
            (
                "Bias: judge minus people, in points",
                "where higher is better; above 0 the judge is too lenient",
                self.bias,
            ),
        ]
        if self.precision is not None and self.recall is not None:
            rows.append(("Precision of violations", "share that are some, of those it found", self.precision))
            rows.append(("Recall of violations", "share that it found, of those there are", self.recall))
        for mean in self.prediction_powered:
            about = f"over the {mean.population:,} judgements it was drawn from, higher is better"
            rows.append((f"{mean.label_set}: prediction-powered mean", about, mean.mean))
        return rows

    def notes(self) -> list[str]:
        """Return what a reader must know of these figures, in sentences."""
        notes = []
        if self.items < LEAST_ITEMS:
            notes.append(f"Too few: an interval of fewer than {LEAST_ITEMS} labelled judgements is not to be trusted.")
        if self.kappa.interval and self.kappa.interval[0] <= 0:
            notes.append(
                "No better than chance, as far as these labels show: the interval of kappa is not wholly above 0."
            )
        if self.cannot_tell:
            notes.append(f"{counted(self.cannot_tell, 'label')} “cannot tell”: in no figure.")
        if self.not_blind:
            notes.append(f"{counted(self.not_blind, 'label')} changed after the judge's score was shown: in no figure.")
        if self.earlier_labels:
            notes.append(
                f"{counted(self.earlier_labels, 'label is', 'labels are')} of an earlier model or prompt: only in the "
                "prediction-powered means."
            )
        for mean in self.prediction_powered:
            if 0 < mean.labelled < mean.drawn:
                notes.append(
                    f"{mean.label_set}: {mean.drawn - mean.labelled} of {mean.drawn} drawn are in no figure yet. Its mean takes "
                    "those that are for a random part of the draw, as they are when labelled in the order given."
                )
        return notes

    def _needed_for_kappa(self) -> str:
        """Say how many more labels it takes until kappa is shown, then until it is known well; empty when it is."""
        if self.items < LEAST_ITEMS:
            missing = _more_labels(LEAST_ITEMS - self.items)
            return f"{missing} until kappa is shown with the judge's scores ({LEAST_ITEMS})"
        if self.kappa.interval is None:
            return f"kappa has no interval: {self.kappa.reason}" if self.kappa.reason else ""
        low, high = self.kappa.interval
        half_width = (high - low) / 2
        # Widths shrink with the root of the number.
        items_needed = ceil(self.items * (half_width / WANTED_HALF_WIDTH) ** 2)
        more = items_needed - self.items
        if more <= 0:
            return ""
        labels = "many more labels" if more > MOST_WANTED else f"about {_more_labels(more)}"
        return f"{labels} to know kappa to within ±{WANTED_HALF_WIDTH:g} (now ±{half_width:.2f})"

    def _needed_for_means(self) -> str:
        most_labelled = max((mean.labelled for mean in self.prediction_powered), default=0)
        if most_labelled >= LEAST_LABELS:
            return ""
        return f"a random draw with {LEAST_LABELS} labels or more (now {most_labelled}) has a prediction-powered mean"


def _more_labels(count: int) -> str:
    return "1 more label" if count == 1 else f"{count:,} more labels"


# -- computing
@dataclass(frozen=True, slots=True)
class _LabelledJudgement:
    """A judgement with its blind labels.

    Attributes:
        raw: The judge's score.
        inverted: Whether the claim is an anti-pattern.
        labels: People's values by annotator.
        identity: Who judged.
        conversation: What it was said in: the channel, or of a window that was judged as a whole the evaluation.
        inclusion_weight: For how many messages its message stands: 1 ÷ the chance with which its conversation was kept.
    """

    raw: int
    inverted: bool
    labels: Mapping[str, int]
    identity: JudgeIdentity
    conversation: tuple[str, int]
    inclusion_weight: float

    @property
    def people_mean(self) -> float:
        return sum(self.labels.values()) / len(self.labels)

    def higher_is_better(self, value: float) -> float:
        """Return a value of the claim on the scale where higher is better."""
        return MAX_SCORE - value if self.inverted else value


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Judgements with blind labels by id, and the number of labels with a value and without."""

    judgements: Mapping[int, _LabelledJudgement]
    labels: int
    cannot_tell: int
    not_blind: int

    def by(self, identity: JudgeIdentity | None) -> dict[int, _LabelledJudgement]:
        """Return the judgements that this model made with these prompts; all of them for None."""
        if identity is None:
            return dict(self.judgements)
        return {pk: judgement for pk, judgement in self.judgements.items() if judgement.identity == identity}


def compute_agreement(
    *,
    judge: str,
    dimension: str,
    procedure: str = Method.PLUMBLINE.value,
    label_set: LabelSet | None = None,
) -> JudgeAgreement:
    """Compute how well a judge agrees with people in one dimension.

    Args:
        label_set: Only labels of this set; default all labels there are. The prediction-powered mean is computed for this set alone, or
            for every set of the judge, procedure and dimension.

    Raises:
        ValueError: A procedure that is not allowed.
    """
    scores = scored_judgements(judge=judge, procedure=procedure, dimension=dimension)
    labels = ScoreLabel.objects.filter(evaluation_score__in=scores, withdrawn=False)
    label_sets = LabelSet.objects.filter(judge=judge, procedure=procedure, dimension=dimension).order_by("name")
    if label_set is not None:
        labels = labels.filter(evaluation_score__label_sets=label_set)
        label_sets = label_sets.filter(pk=label_set.pk)
    labelled = _labelled_judgements(labels)
    identity = newest_identity(judge=judge, procedure=procedure, dimension=dimension)
    current = labelled.by(identity)
    judgements = [current[pk] for pk in sorted(current)]
    used = sum(len(judgement.labels) for judgement in judgements)
    raw = [float(judgement.raw) for judgement in judgements]
    people = [judgement.people_mean for judgement in judgements]
    conversations = [judgement.conversation for judgement in judgements]
    annotators = sorted({name for judgement in judgements for name in judgement.labels})
    # A row for each judgement, a column for each annotator; None: not labelled by this one.
    by_annotator = [[judgement.labels.get(name) for name in annotators] for judgement in judgements]
    precision, recall = None, None
    if _are_binary(judgements):
        precision, recall = _violations_found(judgements)
    return JudgeAgreement(
        judge=judge,
        procedure=procedure,
        dimension=dimension,
        identity=identity,
        labels=used,
        items=len(judgements),
        annotators=len(annotators),
        cannot_tell=labelled.cannot_tell,
        not_blind=labelled.not_blind,
        earlier_labels=labelled.labels - used,
        conversations=len(set(conversations)),
        kappa=Figure.of(quadratic_weighted_kappa(raw, people, clusters=conversations)),
        spearman=Figure.of(spearman(raw, people)),
        alpha=Figure.of(krippendorff_alpha(list(zip(raw, people, strict=True)))),
        people_alpha=Figure.of(krippendorff_alpha(by_annotator)),
        beyond_people=Figure.of(
            kappa_beyond_people(raw, [list(judgement.labels.values()) for judgement in judgements])
        ),
        precision=precision,
        recall=recall,
        bias=Figure.of(_bias(judgements)),
        prediction_powered=[_powered_mean(one_set, labelled.judgements) for one_set in label_sets],
    )


def _labelled_judgements(labels: QuerySet[ScoreLabel]) -> _Labelled:
    """Return the judgements that have blind labels with a value, and count the labels that are in no figure.

    A label that is neither blind nor has a value counts as not blind only.
    """
    values: dict[int, dict[str, int]] = {}  # by judgement and annotator
    scores: dict[int, EvaluationScore] = {}
    cannot_tell = not_blind = used = 0
    rows = labels.select_related("evaluation_score__evaluation_run", "evaluation_score__message").only(
        "annotator",
        "value",
        "blind",
        *(
            f"evaluation_score__{name}"
            for name in ("raw_score", "inverted", "served_model", "inclusion_weight", "message")
        ),
        *(
            f"evaluation_score__evaluation_run__{name}"
            for name in ("judge", "judge_endpoint", "prompt_digest", "channel")
        ),
        "evaluation_score__message__channel",
    )
    for label in rows.order_by("evaluation_score", "annotator"):
        if not label.blind:
            not_blind += 1
            continue
        if label.value is None:
            cannot_tell += 1
            continue
        used += 1
        values.setdefault(label.evaluation_score_id, {})[label.annotator] = label.value
        scores[label.evaluation_score_id] = label.evaluation_score
    judgements: dict[int, _LabelledJudgement] = {}
    for pk, by_annotator in values.items():
        score = scores[pk]
        assert score.raw_score is not None  # noqa: S101 (`scored_judgements` have one)
        identity = identity_in(score.evaluation_run, score.served_model)
        judgements[pk] = _LabelledJudgement(
            score.raw_score, score.inverted, by_annotator, identity, _conversation_of(score), score.inclusion_weight
        )
    return _Labelled(judgements, labels=used, cannot_tell=cannot_tell, not_blind=not_blind)


def _conversation_of(score: EvaluationScore) -> tuple[str, int]:
    """Return what a judgement is drawn with: the channel of its message, that was judged as a whole, or else the evaluation's window."""
    channel_of_message = score.message.channel_id if score.message is not None else None
    return _conversation(channel_of_message, score.evaluation_run.channel_id, score.evaluation_run_id)


def _conversation(channel_of_message: int | None, channel_of_run: int | None, run: int) -> tuple[str, int]:
    if channel_of_message is not None:
        return "channel", channel_of_message
    if channel_of_run is not None:
        return "channel", channel_of_run
    return "evaluation", run


def _are_binary(judgements: Sequence[_LabelledJudgement]) -> bool:
    """Return whether people used only the two ends of the scale, and both of them."""
    values = {value for judgement in judgements for value in judgement.labels.values()}
    return values == {MIN_SCORE, MAX_SCORE}


def _violations_found(judgements: Sequence[_LabelledJudgement]) -> tuple[Figure, Figure]:
    """Return precision and recall of the violations a judge found: of what people call one, and the judge scores below the middle.

    Judgements about which people are divided equally are left out.
    """
    found_by_judge = found_by_people = found_by_both = 0
    for judgement in judgements:
        of_people = judgement.higher_is_better(judgement.people_mean)
        if of_people == MIDDLE:
            continue
        is_real = of_people < MIDDLE
        is_found = judgement.higher_is_better(judgement.raw) < MIDDLE
        found_by_people += is_real
        found_by_judge += is_found
        found_by_both += is_real and is_found
    precision = _share(found_by_both, found_by_judge, none="the judge found no violation")
    recall = _share(found_by_both, found_by_people, none="people found no violation")
    return precision, recall


def _share(hits: int, n: int, *, none: str) -> Figure:
    """Return a share as a figure; `none` says why there is none without anything to share."""
    if not n:
        return Figure(value=None, interval=None, n=0, reason=none)
    return Figure.of(Estimate(hits / n, share_interval(hits, n), n))


def _bias(judgements: Sequence[_LabelledJudgement]) -> Estimate:
    """Return the mean of judge minus people with its interval, in points where higher is better: above 0 the judge is too lenient."""
    # Of conversations that were kept by chance whole ones were drawn.
    is_sampled = any(judgement.inclusion_weight != 1 for judgement in judgements)
    differences = []
    for judgement in judgements:
        of_judge = judgement.higher_is_better(judgement.raw)
        of_people = judgement.higher_is_better(judgement.people_mean)
        cluster = judgement.conversation if is_sampled else None
        differences.append(Observation(of_judge - of_people, judgement.inclusion_weight, cluster))
    return bootstrap_mean(differences, unseen=False, resamples=RESAMPLES)


def _powered_mean(label_set: LabelSet, judgements: Mapping[int, _LabelledJudgement]) -> PoweredMean:
    """Return the prediction-powered mean over everything a label set was drawn from (Angelopoulos et al. 2023, and PPI++).

    Labels count only of judgements that this set drew, for these alone are a random sample of its population.

    Args:
        judgements: Those with blind labels, by id; also of other sets.
    """
    drawn = set(label_set.scores.order_by().values_list("pk", flat=True))
    labelled = {pk: judgements[pk] for pk in sorted(drawn & set(judgements))}
    unlabelled_scores = []
    unlabelled_weights = []
    unlabelled_conversations = []
    weights = {}
    population = population_of(label_set).values_list(
        *("pk", "raw_score", "inverted", "inclusion_weight"),
        *("message__channel", "evaluation_run__channel", "evaluation_run"),
    )
    for pk, raw_score, inverted, weight, *drawn_with in population.iterator():
        weights[pk] = weight
        if pk not in labelled and raw_score is not None:
            unlabelled_scores.append(float(MAX_SCORE - raw_score if inverted else raw_score))
            unlabelled_weights.append(weight)
            unlabelled_conversations.append(_conversation(*drawn_with))
    # Of conversations that were kept by chance whole ones were drawn.
    is_sampled = any(weight != 1 for weight in weights.values())
    rows = list(labelled.values())
    of_people = [row.higher_is_better(row.people_mean) for row in rows]
    of_judge = [row.higher_is_better(row.raw) for row in rows]
    return PoweredMean(
        label_set=label_set.name,
        population=len(unlabelled_scores) + len(rows),
        drawn=len(drawn),
        labelled=len(rows),
        mean=Figure.of(
            prediction_powered_mean(
                of_people,
                of_judge,
                unlabelled_scores,
                weights=[weights.get(pk, 1.0) for pk in labelled],
                rest_weights=unlabelled_weights,
                clusters=[row.conversation for row in rows] if is_sampled else (),
                rest_clusters=unlabelled_conversations if is_sampled else (),
            )
        ),
    )


def labels_of(
    *,
    judge: str | None = None,
    procedure: str | None = None,
    dimension: str | None = None,
    label_set: LabelSet | None = None,
) -> QuerySet[ScoreLabel]:
    """Return the labels, but for withdrawn ones, of this judge, procedure, dimension and label set; None = of any.

    Raises:
        ValueError: A procedure that is not allowed.
    """
    labels = ScoreLabel.objects.filter(withdrawn=False)
    if judge is not None:
        labels = labels.filter(evaluation_score__evaluation_run__judge=judge)
    if procedure is not None:
        for name, value in procedure_fields(procedure).items():
            labels = labels.filter(**{f"evaluation_score__evaluation_run__{name}": value})
    if dimension is not None:
        labels = labels.filter(evaluation_score__dimension=dimension)
    if label_set is not None:
        labels = labels.filter(evaluation_score__label_sets=label_set)
    return labels


def labelled_keys(**filters: Any) -> list[Key]:
    """Return the judges, procedures and dimensions that have labels, sorted; filters as in `labels_of`."""
    run = "evaluation_score__evaluation_run__"
    columns = [f"{run}{name}" for name in ("judge", "method", "hard", "double_check", "few_shot", "simulated")]
    rows = labels_of(**filters).order_by().values_list(*columns, "evaluation_score__dimension").distinct()
    keys = []
    for judge, method, hard, double_check, few_shot, simulated, dimension in rows:
        procedure = procedure_name(
            method=method, hard=hard, double_check=double_check, few_shot=few_shot, simulated=simulated
        )
        keys.append(Key(judge, procedure, dimension))
    return sorted(keys)
