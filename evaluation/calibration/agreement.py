"""How far a judge agrees with people: the figures, in full and in one line, and their stored row beside the judge's scores."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from django.db.models import F, QuerySet
from django.utils import timezone
from pydantic import BaseModel, Field, computed_field

from agents.kit.text.wording import counted, decimal
from evaluation.calibration.labels import Key, chosen_by_hand, judged, population_of
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


# -- values
def figure_text(row: JudgeCalibration | None) -> str:
    """E.g. ``κ 0.62 [0.48, 0.74], 80 labels``, and whether that is no better than chance."""
    if row is None or not row.labels:
        return NOT_CALIBRATED
    if row.items < LEAST_ITEMS:
        return f"{row.items} of {LEAST_ITEMS} labels needed"
    if row.kappa is None:
        return f"κ undefined, {counted(row.labels, 'label')}"
    low, high = row.kappa_low, row.kappa_high
    interval = f" [{decimal(low, 2)}, {decimal(high, 2)}]" if low is not None and high is not None else ""
    chance = ": no better than chance so far" if (row.kappa if low is None else low) <= 0 else ""
    return f"κ {decimal(row.kappa, 2)}{interval}, {counted(row.labels, 'label')}{chance}"


def agreements_text(rows: Sequence[tuple[str, JudgeCalibration | None]]) -> str:
    """Dimensions with their figures on one line, e.g. ``adherence κ 0.62 [0.48, 0.74], 80 labels; fluency not calibrated``."""
    stale = " (labels changed since)"
    return "; ".join(f"{name} {figure_text(row)}{stale if row and row.is_stale else ''}" for name, row in rows)


def swap_text(row: JudgeCalibration | None, *, agent: str = "", brief: bool = False) -> str:
    """E.g. ``AUC 0.65 [0.58, 0.72] over 16 agents, 63% of swapped texts ≥ 7``, and where that is no better than chance.

    With an agent's slug its own figure follows, where that is known: ``; michael alone 0.71``. A `brief` one leaves out the counts.
    """
    if row is None or not row.swap_test:
        return NOT_CHECKED
    test = SwapShown.model_validate(row.swap_test)
    if test.auc is None or test.interval is None:
        return f"no figure: {test.reason}"
    low, high = test.interval
    passed = "" if test.high_share is None else f", {test.high_share:.0%} of swapped texts ≥ 7"
    chance = f": {verdict}" if (verdict := swap_verdict(test.interval)) != BETTER else ""
    foils = "" if test.against == "agents" else f" ({test.against})"
    auc = f"AUC {decimal(test.auc, 2)} [{decimal(low, 2)}, {decimal(high, 2)}]"
    own = test.by_agent.get(agent)
    alone = "" if own is None else f"; {agent} alone {decimal(own, 2)}"
    if brief:
        return f"{auc}{chance}{alone}"
    return f"{auc} over {counted(test.agents, 'agent')}{passed}{foils}{chance}{alone}"


def trust_notes(judge: str, procedure: str, dimensions: Iterable[str], *, agent: str = "") -> list[str]:
    """How far a judge can be trusted in these dimensions, in sentences: its agreement with people and its swap test. One query.

    They stand beside its verdicts wherever something is decided by them.

    Args:
        agent: Slug of the one agent the verdicts are about; empty where there are several.
    """
    names = [name for name in dict.fromkeys(dimensions) if name not in COUNTED]
    if not names:
        return []
    agreements, how = calibration_of(judge, procedure), "" if procedure == Method.PLUMBLINE else f", {procedure}"
    if any(row.labels for row in agreements.values()):
        known = agreements_text([(name, agreements.get(name)) for name in names])
        notes = [f"Agreement of {judge}{how} with people: {known}."]
    else:
        notes = [f"{judge}{how} is not calibrated: no human labels yet (manage.py calibrate_judge)."]
    tested = [f"{name} {swap_text(agreements.get(name), agent=agent)}" for name in names if name in BY_MESSAGE]
    if tested:
        notes.append(f"Swap test of {judge}{how} (manage.py check_judge): {'; '.join(tested)}.")
    return notes


def trust_notes_of(runs: Sequence[EvaluationRun]) -> list[str]:
    """How far the judge can be trusted where these were measured: its agreement with people and its swap test, per procedure."""
    measured: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs:
        of_judge = measured.setdefault((run.judge, run.procedure), {})
        of_judge.update(dict.fromkeys(name for name in run.dimensions if name not in COUNTED))
    agents = {run.agent.slug for run in runs if run.agent is not None}
    agent = agents.pop() if len(agents) == 1 else ""
    notes = []
    for (judge, procedure), names in measured.items():
        notes += trust_notes(judge, procedure, names, agent=agent)
    return notes


BETTER = "better than chance"


def swap_verdict(interval: tuple[float, float] | None) -> str:
    """What an area under the curve says, by its interval; empty without one."""
    if interval is None:
        return ""
    low, high = interval
    return BETTER if low > 0.5 else "worse than chance" if high < 0.5 else "no better than chance so far"


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
        interval = estimate.interval
        ends = None if interval is None else (round(interval.low, 4), round(interval.high, 4))
        return cls(value=rounded(estimate.value), interval=ends, n=estimate.n, reason=estimate.reason)

    @property
    def text(self) -> str:
        return "–" if self.value is None else decimal(self.value, 2)

    @property
    def interval_text(self) -> str:
        """E.g. ``0.48 to 0.74``, or why there is none."""
        return f"{decimal(self.interval[0], 2)} to {decimal(self.interval[1], 2)}" if self.interval else self.reason


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


class Calibration(BaseModel):
    """A judge beside people in one dimension, as it is printed and stored. The judge's raw score of the claim is compared with the labels.

    Where several people labelled a judgement, their mean stands for them. Trivial and unscored judgements, exact rules, "cannot tell"
    and labels that were not given blind are in no figure.

    Attributes:
        labels: Labels in the figures; `items` judgements that have one, `annotators` who gave them.
        cannot_tell: Labels without a value. `not_blind`: labels given after the judge's score was shown.
        by_hand: Labels of judgements that were chosen by hand and never drawn; in no figure.
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
    by_hand: int = 0
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
        """What is too little to say more, each with how many labels would do; empty when nothing is."""
        people = "" if self.annotators != 1 else "a second annotator, to know how well people agree with each other"
        return list(filter(None, (self._for_kappa(), self._for_means(), people)))

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
        if self.by_hand:
            notes.append(f"{counted(self.by_hand, 'label')} of judgements chosen by hand: in no figure.")
        for mean in self.prediction_powered:
            if 0 < mean.labelled < mean.drawn:
                notes.append(
                    f"{mean.label_set}: {mean.drawn - mean.labelled} of {mean.drawn} drawn are in no figure yet. Its mean takes "
                    "those that are for a random part of the draw, as they are when labelled in the order given."
                )
        return notes

    def _for_kappa(self) -> str:
        if self.items < LEAST_ITEMS:
            return f"{_more(LEAST_ITEMS - self.items)} until kappa is shown with the judge's scores ({LEAST_ITEMS})"
        interval = self.kappa.interval
        if interval is None:
            return f"kappa has no interval: {self.kappa.reason}" if self.kappa.reason else ""
        half = (interval[1] - interval[0]) / 2
        wanted = ceil(self.items * (half / WANTED_HALF_WIDTH) ** 2)  # widths shrink with the root of the number
        if wanted <= self.items:
            return ""
        some = "many more labels" if wanted - self.items > MOST_WANTED else f"about {_more(wanted - self.items)}"
        return f"{some} to know kappa to within ±{WANTED_HALF_WIDTH:g} (now ±{half:.2f})"

    def _for_means(self) -> str:
        most = max((mean.labelled for mean in self.prediction_powered), default=0)
        if most >= LEAST_LABELS:
            return ""
        return f"a random draw with {LEAST_LABELS} labels or more (now {most}) has a prediction-powered mean"


def _more(count: int) -> str:
    return "1 more label" if count == 1 else f"{count:,} more labels"


# -- computing
@dataclass(frozen=True, slots=True)
class _Labelled:
    """A judgement with its blind labels: the judge's raw score, whether the claim is an anti-pattern, values by annotator."""

    raw: int
    inverted: bool
    values: Mapping[str, int]

    @property
    def people(self) -> float:
        """The mean of people's labels."""
        return sum(self.values.values()) / len(self.values)

    def better(self, value: float) -> float:
        """A value on the scale where higher is better."""
        return MAX_SCORE - value if self.inverted else value


def calibration(
    *,
    judge: str,
    dimension: str,
    procedure: str = Method.PLUMBLINE.value,
    label_set: LabelSet | None = None,
) -> Calibration:
    """How well a judge agrees with people in one dimension.

    Args:
        label_set: Only labels of this set; default all labels there are but those of judgements that were chosen by hand.

    Raises:
        ValueError: A procedure or number that is not allowed.
    """
    scores = judged(judge=judge, procedure=procedure, dimension=dimension)
    labels = ScoreLabel.objects.filter(evaluation_score__in=scores, withdrawn=False)
    drawn_sets = LabelSet.objects.filter(population_size__gt=0)
    sets = drawn_sets.filter(judge=judge, procedure=procedure, dimension=dimension).order_by("name")
    by_hand = labels.filter(chosen_by_hand()).count()
    if label_set is None:
        labels = labels.exclude(chosen_by_hand())
    else:
        labels = labels.filter(evaluation_score__label_sets=label_set)
        sets = sets.filter(pk=label_set.pk)
    items, tally = _items(labels)
    rows = [items[pk] for pk in sorted(items)]
    raw, people = [float(row.raw) for row in rows], [row.people for row in rows]
    names = sorted({name for row in rows for name in row.values})
    by_annotator = [[row.values.get(name) for name in names] for row in rows]
    biases = [Observation(row.better(row.raw) - row.better(row.people)) for row in rows]
    data = [[pk, row.raw, row.inverted, sorted(row.values.items())] for pk, row in sorted(items.items())]
    return Calibration(
        judge=judge,
        procedure=procedure,
        dimension=dimension,
        labels=tally["labels"],
        items=len(rows),
        annotators=len(names),
        cannot_tell=tally["cannot_tell"],
        not_blind=tally["not_blind"],
        by_hand=by_hand if label_set is None else 0,
        kappa=Figure.of(quadratic_weighted_kappa(raw, people)),
        spearman=Figure.of(spearman(raw, people)),
        alpha=Figure.of(krippendorff_alpha(list(zip(raw, people, strict=True)))),
        people_alpha=Figure.of(krippendorff_alpha(by_annotator)),
        bias=Figure.of(bootstrap_mean(biases, unseen=False, resamples=RESAMPLES)),
        prediction_powered=[_powered(drawn, items) for drawn in sets],
        digest=hashlib.sha256(json.dumps(data, ensure_ascii=False).encode()).hexdigest() if data else "",
    )


def _items(labels: QuerySet[ScoreLabel]) -> tuple[dict[int, _Labelled], Counter[str]]:
    """Labelled judgements by id, and how many labels are in the figures and how many are not."""
    values: dict[int, dict[str, int]] = {}
    about: dict[int, tuple[int, bool]] = {}
    tally: Counter[str] = Counter()
    fields = ("evaluation_score", "annotator", "value", "blind")
    judged_as = ("evaluation_score__raw_score", "evaluation_score__inverted")
    rows = labels.values_list(*fields, *judged_as)
    for pk, annotator, value, blind, raw, inverted in rows.order_by("evaluation_score", "annotator"):
        if not blind or value is None:
            tally["not_blind" if not blind else "cannot_tell"] += 1
            continue
        tally["labels"] += 1
        values.setdefault(pk, {})[annotator] = value
        about[pk] = (raw, inverted)
    return {pk: _Labelled(*about[pk], labels_of_one) for pk, labels_of_one in values.items()}, tally


def _powered(label_set: LabelSet, items: Mapping[int, _Labelled]) -> PoweredMean:
    """The prediction-powered mean over everything a label set was drawn from (Angelopoulos et al. 2023, and PPI++)."""
    drawn = set(label_set.scores.order_by().values_list("pk", flat=True))
    labelled = {pk: items[pk] for pk in sorted(drawn & set(items))}
    everything = population_of(label_set).values_list("pk", "raw_score", "inverted").iterator()
    rest = [
        float(MAX_SCORE - raw if inverted else raw)
        for pk, raw, inverted in everything
        if pk not in labelled and raw is not None
    ]
    rows = list(labelled.values())
    mean = prediction_powered_mean(
        [row.better(row.people) for row in rows], [row.better(row.raw) for row in rows], rest
    )
    return PoweredMean(
        label_set=label_set.name,
        population=len(rest) + len(rows),
        drawn=len(drawn),
        labelled=len(rows),
        mean=Figure.of(mean),
    )


# -- as JSON
def calibration_json(row: JudgeCalibration | None) -> dict[str, Any] | None:
    """What is shown with a judge's scores in one dimension; null when it is not calibrated.

    `kappa` is quadratic-weighted, null when it cannot be computed; `interval` its 95 % interval, null when there is none. `spearman`
    and `alpha` (Krippendorff's, judge and people) have theirs with them.
    """
    if row is None or not row.labels:
        return None
    low, high = row.kappa_low, row.kappa_high
    return {
        "kappa": row.kappa,
        "interval": None if low is None or high is None else [low, high],
        **{name: row.figures.get(name) for name in ("spearman", "alpha")},
        **{name: getattr(row, name) for name in ("labels", "items", "annotators", "enough")},
        "stale": row.is_stale,
    }


def swap_json(row: JudgeCalibration | None, *, agent: str = "") -> dict[str, Any] | None:
    """The swap test that is shown with a judge's scores in one dimension, with the agent's own figure; null where it was never made."""
    if row is None or not row.swap_test:
        return None
    test = SwapShown.model_validate(row.swap_test)
    return {**test.model_dump(mode="json", exclude={"by_agent"}), "agent_auc": test.by_agent.get(agent)}


def with_trust(dimensions: dict[str, Any], *, judge: str, procedure: str, agent: str = "") -> None:
    """Put the judge's agreement with people and its swap test into each dimension of a JSON document; null: not known. One query."""
    agreements = calibration_of(judge, procedure)
    for name, dimension in dimensions.items():
        if name in COUNTED:
            continue
        dimension["calibration"] = calibration_json(agreements.get(name))
        if name in BY_MESSAGE:
            dimension["swap_test"] = swap_json(agreements.get(name), agent=agent)


# -- stored, so that no page computes them: stale when labels change, computed again by a worker
def refresh(key: Key) -> Calibration:
    """Compute the figures of a judge in a dimension and store them.

    Labels that change meanwhile leave them stale; two that do this at once do the same work twice, and no harm.
    """
    row, _ = JudgeCalibration.objects.get_or_create(**key._asdict())
    figures = calibration(**key._asdict())
    low, high = figures.kappa.interval or (None, None)
    JudgeCalibration.objects.filter(pk=row.pk).update(
        kappa=figures.kappa.value,
        kappa_low=low,
        kappa_high=high,
        **figures.model_dump(include={"labels", "items", "annotators"}),
        figures=figures.model_dump(),
        labels_digest=figures.digest,
        computed_changes=row.changes,
        computed_at=timezone.now(),
    )
    return figures


def work_one(*, owner: str) -> bool:
    """Compute one judge's figures whose labels changed; whether there was one. What `manage.py work` calls.

    The row is not leased: computing takes a fraction of a second and calls no model.
    """
    stale = JudgeCalibration.objects.exclude(changes=F("computed_changes")).order_by("computed_at", "pk").first()
    if stale is None:
        return False
    refresh(Key(stale.judge, stale.procedure, stale.dimension))
    return True


def calibration_of(judge: str, procedure: str) -> dict[str, JudgeCalibration]:
    """By dimension, how well a judge agrees with people; dimensions without labels are missing. One query."""
    rows = JudgeCalibration.objects.filter(judge=judge, procedure=procedure).defer("figures")
    return {row.dimension: row for row in rows}


def all_agreements() -> dict[Key, JudgeCalibration]:
    """Every judge's figures, for lists of many judges. One query."""
    rows = JudgeCalibration.objects.defer("figures")
    return {Key(row.judge, row.procedure, row.dimension): row for row in rows}


def labels_of(
    *,
    judge: str | None = None,
    procedure: str | None = None,
    dimension: str | None = None,
    label_set: LabelSet | None = None,
) -> QuerySet[ScoreLabel]:
    """The labels of these judges and dimensions; None = of any."""
    wanted: dict[str, Any] = {}
    if judge is not None:
        wanted["evaluation_run__judge"] = judge
    if procedure is not None:
        wanted |= {f"evaluation_run__{name}": value for name, value in procedure_fields(procedure).items()}
    if dimension is not None:
        wanted["dimension"] = dimension
    if label_set is not None:
        wanted["label_sets"] = label_set
    labels = ScoreLabel.objects.filter(withdrawn=False)
    return labels.filter(**{f"evaluation_score__{name}": value for name, value in wanted.items()})


def labelled_keys(**filters: Any) -> list[Key]:
    """The judges and dimensions that have labels; filters as in `labels_of`."""
    run = "evaluation_score__evaluation_run__"
    fields = [f"{run}{name}" for name in ("judge", "method", "hard", "double_check", "simulated")]
    rows = labels_of(**filters).order_by().values_list(*fields, "evaluation_score__dimension").distinct()
    return sorted(
        Key(judge, procedure_name(method=method, hard=hard, double_check=double, simulated=simulated), dimension)
        for judge, method, hard, double, simulated, dimension in rows
    )
