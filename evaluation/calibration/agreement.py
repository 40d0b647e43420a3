"""How far a judge agrees with people: the figures, in full and in one line, and their stored row beside the judge's scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from django.db.models import F, QuerySet
from django.utils import timezone
from pydantic import BaseModel, Field, computed_field

from agents.kit.text.wording import counted, decimal
from evaluation.calibration.labels import Key, population_of, scored_judgements
from evaluation.calibration.models import LEAST_ITEMS, JudgeCalibration, LabelSet, ScoreLabel
from evaluation.judge.questions import MAX_SCORE
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, Method, procedure_fields, procedure_name
from evaluation.runs.summary import rounded
from evaluation.statistics.agreement import RESAMPLES, krippendorff_alpha, quadratic_weighted_kappa, spearman
from evaluation.statistics.bootstrap import Estimate, Observation, bootstrap_mean
from evaluation.statistics.prediction_powered import LEAST_LABELS, prediction_powered_mean

WANTED_HALF_WIDTH = 0.1
MOST_WANTED = 2_000  # more labels than people give: then only "many" is said
NOT_CALIBRATED = "not calibrated"
NOT_CHECKED = "not checked"  # by no swap test


BETTER = "better than chance"


# -- what is said of a judge beside its scores
def figure_text(row: JudgeCalibration | None) -> str:
    """Return a judge's agreement with people, e.g. ``κ 0.62 [0.48, 0.74], 80 labels``, and whether that is no better than chance.

    It is no better where the interval of kappa (or kappa, without an interval) is not wholly above 0.

    Args:
        row: None, or without labels: the judge is not calibrated. With few labels kappa is not shown.
    """
    if row is None or not row.labels:
        return NOT_CALIBRATED
    if row.items < LEAST_ITEMS:
        return f"{row.items} of {LEAST_ITEMS} labels needed"
    labels = counted(row.labels, "label")
    if row.kappa is None:
        return f"κ undefined, {labels}"
    kappa = f"κ {decimal(row.kappa, 2)}"
    lowest = row.kappa
    if row.kappa_low is not None and row.kappa_high is not None:
        kappa += f" [{decimal(row.kappa_low, 2)}, {decimal(row.kappa_high, 2)}]"
    if row.kappa_low is not None:
        lowest = row.kappa_low
    text = f"{kappa}, {labels}"
    return f"{text}: no better than chance so far" if lowest <= 0 else text


def agreements_text(rows: Sequence[tuple[str, JudgeCalibration | None]]) -> str:
    """Return dimensions with their figures on one line, e.g. ``adherence κ 0.62 [0.48, 0.74], 80 labels; fluency not calibrated``."""
    texts = []
    for dimension, row in rows:
        text = f"{dimension} {figure_text(row)}"
        if row is not None and row.is_stale:
            text += " (labels changed since)"
        texts.append(text)
    return "; ".join(texts)


def swap_text(row: JudgeCalibration | None, *, agent: str = "", brief: bool = False) -> str:
    """Return a swap test, e.g. ``AUC 0.65 [0.58, 0.72] over 16 agents, 63% of swapped texts ≥ 7``, and whether it is no better than chance.

    Args:
        row: None, or without a swap test: the judge is not checked.
        agent: A slug, whose own figure follows where that is known: ``; michael alone 0.71``.
        brief: Leaves out the counts.
    """
    if row is None or not row.swap_test:
        return NOT_CHECKED
    test = SwapShown.model_validate(row.swap_test)
    if test.auc is None or test.interval is None:
        return f"no figure: {test.reason}"
    low, high = test.interval
    text = f"AUC {decimal(test.auc, 2)} [{decimal(low, 2)}, {decimal(high, 2)}]"
    if not brief:
        text += _swap_counts(test)
    verdict = swap_verdict(test.interval)
    if verdict != BETTER:
        text += f": {verdict}"
    if agent in test.by_agent:
        text += f"; {agent} alone {decimal(test.by_agent[agent], 2)}"
    return text


def _swap_counts(test: SwapShown) -> str:
    text = f" over {counted(test.agents, 'agent')}"
    if test.high_share is not None:
        text += f", {test.high_share:.0%} of swapped texts ≥ 7"
    if test.against != "agents":
        text += f" ({test.against})"
    return text


def trust_notes(judge: str, procedure: str, dimensions: Iterable[str], *, agent: str = "") -> list[str]:
    """Return how far a judge can be trusted in these dimensions, in sentences: its agreement with people and its swap test. One query.

    They stand beside its verdicts wherever something is decided by them. Dimensions that are counted are passed over; without others
    there are no sentences. The swap test is named only for dimensions judged message by message.

    Args:
        agent: Slug of the one agent the verdicts are about; empty where there are several.
    """
    names = [name for name in dict.fromkeys(dimensions) if name not in COUNTED]
    if not names:
        return []
    rows = calibration_of(judge, procedure)
    judge_and_procedure = judge if procedure == Method.PLUMBLINE else f"{judge}, {procedure}"
    notes = []
    if any(row.labels for row in rows.values()):
        agreements = agreements_text([(name, rows.get(name)) for name in names])
        notes.append(f"Agreement of {judge_and_procedure} with people: {agreements}.")
    else:
        notes.append(f"{judge_and_procedure} is not calibrated: no human labels yet (manage.py calibrate_judge).")
    tests = [f"{name} {swap_text(rows.get(name), agent=agent)}" for name in names if name in BY_MESSAGE]
    if tests:
        notes.append(f"Swap test of {judge_and_procedure} (manage.py check_judge): {'; '.join(tests)}.")
    return notes


def trust_notes_of(runs: Sequence[EvaluationRun]) -> list[str]:
    """Return how far the judges of these evaluations can be trusted in what was measured, in sentences, judge by judge.

    Where all are about one agent, its own figure of the swap test is named, too.
    """
    dimensions: dict[tuple[str, str], list[str]] = {}  # by judge and procedure
    for run in runs:
        dimensions.setdefault((run.judge, run.procedure), []).extend(run.dimensions)
    slugs = {run.agent.slug for run in runs if run.agent is not None}
    agent = slugs.pop() if len(slugs) == 1 else ""
    notes = []
    for (judge, procedure), names in dimensions.items():
        notes += trust_notes(judge, procedure, names, agent=agent)
    return notes


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
    and labels that were not given blind are in no figure.

    Attributes:
        labels: Labels in the figures; `items` judgements that have one, `annotators` who gave them.
        cannot_tell: Labels without a value. `not_blind`: labels given after the judge's score was shown.
        alpha: Krippendorff's alpha (interval metric), judge and people as two raters.
        people_alpha: The same among the annotators: what can be expected of a judge at best.
        bias: Judge minus people, in points, higher is better: positive where the judge is too lenient.
        digest: SHA-256 of the labels and scores compared.
    """

    judge: str
    procedure: str
    dimension: str
    labels: int
    items: int
    annotators: int
    cannot_tell: int
    not_blind: int
    kappa: Figure
    spearman: Figure
    alpha: Figure
    people_alpha: Figure
    bias: Figure
    prediction_powered: list[PoweredMean]
    digest: str = Field("", exclude=True)

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
            (
                "Bias: judge minus people, in points",
                "where higher is better; above 0 the judge is too lenient",
                self.bias,
            ),
        ]
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
        wanted = ceil(self.items * (half_width / WANTED_HALF_WIDTH) ** 2)  # widths shrink with the root of the number
        more = wanted - self.items
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
    """

    raw: int
    inverted: bool
    labels: Mapping[str, int]

    @property
    def people_mean(self) -> float:
        return sum(self.labels.values()) / len(self.labels)

    def higher_is_better(self, value: float) -> float:
        """Return a value of the claim on the scale where higher is better."""
        return MAX_SCORE - value if self.inverted else value


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Judgements with blind labels by id, and the number of labels that are in the figures and that are not."""

    judgements: Mapping[int, _LabelledJudgement]
    labels: int
    cannot_tell: int
    not_blind: int


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
    judgements = [labelled.judgements[pk] for pk in sorted(labelled.judgements)]
    raw = [float(judgement.raw) for judgement in judgements]
    people = [judgement.people_mean for judgement in judgements]
    annotators = sorted({name for judgement in judgements for name in judgement.labels})
    # A row for each judgement, a column for each annotator; None: not labelled by this one.
    by_annotator = [[judgement.labels.get(name) for name in annotators] for judgement in judgements]
    return JudgeAgreement(
        judge=judge,
        procedure=procedure,
        dimension=dimension,
        labels=labelled.labels,
        items=len(judgements),
        annotators=len(annotators),
        cannot_tell=labelled.cannot_tell,
        not_blind=labelled.not_blind,
        kappa=Figure.of(quadratic_weighted_kappa(raw, people)),
        spearman=Figure.of(spearman(raw, people)),
        alpha=Figure.of(krippendorff_alpha(list(zip(raw, people, strict=True)))),
        people_alpha=Figure.of(krippendorff_alpha(by_annotator)),
        bias=Figure.of(_bias(judgements)),
        prediction_powered=[_powered_mean(one_set, labelled.judgements) for one_set in label_sets],
        digest=_digest(labelled.judgements),
    )


def _labelled_judgements(labels: QuerySet[ScoreLabel]) -> _Labelled:
    """Return the judgements that have blind labels with a value, and count the labels that are in no figure.

    A label that is neither blind nor has a value counts as not blind only.
    """
    values: dict[int, dict[str, int]] = {}  # by judgement and annotator
    raw_scores: dict[int, int] = {}
    inverted_ones: set[int] = set()
    cannot_tell = not_blind = 0
    columns = (
        "evaluation_score",
        "annotator",
        "value",
        "blind",
        "evaluation_score__raw_score",
        "evaluation_score__inverted",
    )
    rows = labels.order_by("evaluation_score", "annotator").values_list(*columns)
    for pk, annotator, value, is_blind, raw_score, inverted in rows:
        if not is_blind:
            not_blind += 1
            continue
        if value is None:
            cannot_tell += 1
            continue
        values.setdefault(pk, {})[annotator] = value
        raw_scores[pk] = raw_score
        if inverted:
            inverted_ones.add(pk)
    judgements = {
        pk: _LabelledJudgement(raw_scores[pk], pk in inverted_ones, by_annotator) for pk, by_annotator in values.items()
    }
    used = sum(len(judgement.labels) for judgement in judgements.values())
    return _Labelled(judgements, labels=used, cannot_tell=cannot_tell, not_blind=not_blind)


def _bias(judgements: Sequence[_LabelledJudgement]) -> Estimate:
    """Return the mean of judge minus people with its interval, in points where higher is better: above 0 the judge is too lenient."""
    differences = []
    for judgement in judgements:
        of_judge = judgement.higher_is_better(judgement.raw)
        of_people = judgement.higher_is_better(judgement.people_mean)
        differences.append(Observation(of_judge - of_people))
    return bootstrap_mean(differences, unseen=False, resamples=RESAMPLES)


def _digest(judgements: Mapping[int, _LabelledJudgement]) -> str:
    """Return a digest of the labels and scores that are compared; empty without any."""
    if not judgements:
        return ""
    data = []
    for pk, judgement in sorted(judgements.items()):
        data.append([pk, judgement.raw, judgement.inverted, sorted(judgement.labels.items())])
    return hashlib.sha256(json.dumps(data, ensure_ascii=False).encode()).hexdigest()


def _powered_mean(label_set: LabelSet, judgements: Mapping[int, _LabelledJudgement]) -> PoweredMean:
    """Return the prediction-powered mean over everything a label set was drawn from (Angelopoulos et al. 2023, and PPI++).

    Labels count only of judgements that this set drew, for these alone are a random sample of its population.

    Args:
        judgements: Those with blind labels, by id; also of other sets.
    """
    drawn = set(label_set.scores.order_by().values_list("pk", flat=True))
    labelled = {pk: judgements[pk] for pk in sorted(drawn & set(judgements))}
    unlabelled_scores = []
    for pk, raw_score, inverted in population_of(label_set).values_list("pk", "raw_score", "inverted").iterator():
        if pk not in labelled and raw_score is not None:
            unlabelled_scores.append(float(MAX_SCORE - raw_score if inverted else raw_score))
    rows = list(labelled.values())
    of_people = [row.higher_is_better(row.people_mean) for row in rows]
    of_judge = [row.higher_is_better(row.raw) for row in rows]
    return PoweredMean(
        label_set=label_set.name,
        population=len(unlabelled_scores) + len(rows),
        drawn=len(drawn),
        labelled=len(rows),
        mean=Figure.of(prediction_powered_mean(of_people, of_judge, unlabelled_scores)),
    )


# -- as JSON
def calibration_json(row: JudgeCalibration | None) -> dict[str, Any] | None:
    """Return what is shown with a judge's scores in one dimension; null when it is not calibrated.

    `kappa` is quadratic-weighted, null when it cannot be computed; `interval` its 95 % interval, null when there is none. `spearman`
    and `alpha` (Krippendorff's, judge and people) have theirs with them.
    """
    if row is None or not row.labels:
        return None
    interval = None
    if row.kappa_low is not None and row.kappa_high is not None:
        interval = [row.kappa_low, row.kappa_high]
    return {
        "kappa": row.kappa,
        "interval": interval,
        "spearman": row.figures.get("spearman"),
        "alpha": row.figures.get("alpha"),
        "labels": row.labels,
        "items": row.items,
        "annotators": row.annotators,
        "enough": row.enough,
        "stale": row.is_stale,
    }


def swap_json(row: JudgeCalibration | None, *, agent: str = "") -> dict[str, Any] | None:
    """Return the swap test that is shown with a judge's scores in one dimension, with the agent's own figure; null where there is none."""
    if row is None or not row.swap_test:
        return None
    test = SwapShown.model_validate(row.swap_test)
    return {**test.model_dump(mode="json", exclude={"by_agent"}), "agent_auc": test.by_agent.get(agent)}


def with_trust(dimensions: dict[str, Any], *, judge: str, procedure: str, agent: str = "") -> None:
    """Put `calibration` (agreement with people) and `swap_test` into each dimension of a JSON document, in place; null: not known.

    Dimensions that are counted get neither, those not judged message by message no `swap_test`. One query.
    """
    agreements = calibration_of(judge, procedure)
    for name, dimension in dimensions.items():
        if name in COUNTED:
            continue
        dimension["calibration"] = calibration_json(agreements.get(name))
        if name in BY_MESSAGE:
            dimension["swap_test"] = swap_json(agreements.get(name), agent=agent)


# -- stored, so that no page computes them: stale when labels change, computed again by a worker
def refresh(key: Key) -> JudgeAgreement:
    """Compute the figures of a judge in a dimension from all its labels, and store them in its `JudgeCalibration`.

    Labels that change meanwhile leave them stale; two that do this at once do the same work twice, and no harm.

    Raises:
        ValueError: A procedure that is not allowed.
    """
    row, _ = JudgeCalibration.objects.get_or_create(**key._asdict())
    figures = compute_agreement(**key._asdict())
    low, high = figures.kappa.interval or (None, None)
    JudgeCalibration.objects.filter(pk=row.pk).update(
        kappa=figures.kappa.value,
        kappa_low=low,
        kappa_high=high,
        **figures.model_dump(include={"labels", "items", "annotators"}),
        figures=figures.model_dump(),
        labels_digest=figures.digest,
        computed_changes=row.changes,  # as read before computing: what changed since makes the figures stale
        computed_at=timezone.now(),
    )
    return figures


def work_one(*, owner: str) -> bool:
    """Compute one judge's figures whose labels changed; return whether there was one. `manage.py work` calls it.

    The row is not leased: computing takes a fraction of a second and calls no model.
    """
    stale = JudgeCalibration.objects.exclude(changes=F("computed_changes")).order_by("computed_at", "pk").first()
    if stale is None:
        return False
    refresh(Key(stale.judge, stale.procedure, stale.dimension))
    return True


def calibration_of(judge: str, procedure: str) -> dict[str, JudgeCalibration]:
    """Return how well a judge agrees with people, by dimension; dimensions without a row are missing. One query."""
    rows = JudgeCalibration.objects.filter(judge=judge, procedure=procedure).defer("figures")
    return {row.dimension: row for row in rows}


def all_agreements() -> dict[Key, JudgeCalibration]:
    """Return every judge's figures, for lists of many judges. One query."""
    rows = JudgeCalibration.objects.defer("figures")
    return {Key(row.judge, row.procedure, row.dimension): row for row in rows}


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
