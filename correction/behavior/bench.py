"""How well a judge reads behaviour requests, on labelled messages (specification 002): detection, trait and direction, with intervals."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from pydantic import AliasChoices, BaseModel, Field, StrictBool, ValidationError

from agents.commands import Cell, console_on, print_table, snippet
from agents.llm import LLMRequest, Reply, complete_many, estimate_tokens, ledger
from agents.llm.endpoints import model_of, provider_of
from agents.llm.requests import describe_validation
from agents.persona import TraitValue
from correction.behavior.patterns import stems
from correction.behavior.rules import STOP, UNSPECIFIED, read_map
from correction.behavior.tiers import (
    CONFIDENCES,
    Answers,
    Subject,
    Tier,
    answers_without_model,
    next_tier,
    tier_request,
)
from correction.behavior.words import own_words
from correction.gate.thresholds import wilson_interval
from evaluation.judge.questions import JudgeHealth
from evaluation.models import is_heuristic
from evaluation.statistics.estimates import percentile_estimate, replicates
from evaluation.wording import cost_line, counted, judge_label, money, spent_json

NAME = "Assistant"
OUTPUT_TOKENS = 60  # of an answer; an assumption
RESAMPLES = 4_000
MOST_PROBLEMS = 20  # of a file, named
AFTER_GATE: tuple[Tier, ...] = ("extract", "map")
Range = tuple[float, float]


class CaseFileError(ValueError):
    """What is wrong with a file of cases, with line numbers."""


class Case(BaseModel):
    """A labelled message. `behavior` and `strength` (0 to 1) say what it asks for, where that is known."""

    line: int = 0
    text: str = Field(validation_alias=AliasChoices("text", "message"))
    request: StrictBool = Field(validation_alias=AliasChoices("request", "has_request"))
    kind: str | None = None
    language: str | None = None
    behavior: str | None = None
    strength: float | None = Field(None, strict=True, ge=0, le=1)

    @property
    def is_labelled(self) -> bool:
        return self.request and bool(self.behavior)


@dataclass(slots=True)
class Judged:
    """A case and the judge's answers.

    Attributes:
        detected: Whether the gate tier says that there is a request; None where it could not be judged, and `why` says why.
        confidence: Of the gate's answer.
        answers: Of the tiers; those after the gate are asked about labelled requests that it detected.
    """

    case: Case
    detected: bool | None = None
    confidence: str = ""
    why: str = "not asked"
    answers: Answers = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.detected is self.case.request

    @property
    def trait(self) -> TraitValue | None:
        """The proposed trait; None where there is no proposal."""
        return read_map(self.answers["map"], traits=()).after if "map" in self.answers else None

    @property
    def verdict(self) -> str:
        """Of a labelled request: ``right``, ``opposite``, ``other trait``, ``other strength`` or ``no trait``; empty for other cases.

        Right is a trait that shares a telling word with the label, at a strength above or below 0.5 as labelled; without a
        labelled strength, of at least 0.5.
        Opposite is the labelled behaviour at a strength beyond 0.5, or its end where no strength is labelled.
        """
        if not self.case.is_labelled or self.detected is None:
            return ""
        trait, label = self.trait, self.case.strength
        if trait is None:
            return "no trait"
        if not stems(self.case.behavior or "") & stems(f"{trait.name} {trait.description}"):
            return "other trait"
        if label is None or label == UNSPECIFIED:
            lowered = "opposite" if trait.strength == STOP else "other strength"
            return "right" if trait.strength >= UNSPECIFIED else lowered
        if trait.strength == UNSPECIFIED:
            return "right" if label > UNSPECIFIED else "other strength"
        return "right" if (label > UNSPECIFIED) is (trait.strength > UNSPECIFIED) else "opposite"


@dataclass(frozen=True, slots=True)
class Bench:
    """Cases as they were judged, by whom, at what cost."""

    judge: str
    judged: tuple[Judged, ...]
    spent: ledger.Totals = field(compare=False)
    stopped: str = ""

    @property
    def scored(self) -> list[Judged]:
        return [one for one in self.judged if one.detected is not None]

    @property
    def labelled(self) -> list[Judged]:
        """Requests whose behaviour is labelled."""
        return [one for one in self.judged if one.verdict]


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSONL file: ``text`` (or ``message``), ``request`` (or ``has_request``), and where known
    ``kind``, ``language``, ``behavior`` and ``strength``.

    Raises:
        CaseFileError: The file cannot be read or lines are wrong; names each.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseFileError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    cases: list[Case] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            cases.append(Case.model_validate_json(line).model_copy(update={"line": number}))
        except ValidationError as error:
            wrong.append(f"line {number}: {describe_validation(error)}")
    if wrong:
        more = f"\n  and {len(wrong) - MOST_PROBLEMS} more" if len(wrong) > MOST_PROBLEMS else ""
        raise CaseFileError(f"{path}:\n  " + "\n  ".join(wrong[:MOST_PROBLEMS]) + more)
    if not cases:
        raise CaseFileError(f"{path}: there is no case in it")
    return cases


@dataclass(frozen=True, slots=True)
class Estimate:
    """Before asking: calls, tokens (characters ÷ 4, an assumption for the answers), and US dollars; None when unpriced."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None

    def __str__(self) -> str:
        cost = money(self.cost_usd, 0 if self.cost_usd is not None else self.calls)
        return f"About {self.calls:,} calls, {self.input_tokens:,} tokens in, {self.output_tokens:,} out, {cost}"


def estimate(cases: Sequence[Case], *, model: str = "") -> Estimate | None:
    """The most that judging these can need; None where the judge needs no network."""
    judge = model or model_of("judge")
    if provider_of(judge) != "anthropic":
        return None
    requests = [request for case in cases if (request := _request("gate", Judged(case), model, "estimate"))]
    for one in (Judged(case) for case in cases if case.is_labelled):
        one.answers = {"gate": {"reason": ""}, "extract": {"behavior_name": one.case.behavior}}
        requests += [request for tier in AFTER_GATE if (request := _request(tier, one, model, "estimate"))]
    tokens, output = sum(map(estimate_tokens, requests)), OUTPUT_TOKENS * len(requests)
    return Estimate(len(requests), tokens, output, ledger.estimate_cost(judge, tokens, output))


def bench(cases: Sequence[Case], *, model: str = "", done: Callable[[int], None] = lambda count: None) -> Bench:
    """Ask the gate about all cases, then the other tiers about the labelled requests it detected. Stores nothing but the ledger's rows.

    A case whose gate call failed is unscored: it is in no figure and counted apart.

    Args:
        cases: What to judge.
        model: Overrides the configured judge.
        done: Called with how many cases the gate has just judged.
    """
    work_id = f"behavior-bench:{uuid.uuid4().hex[:12]}"
    judged = [Judged(case) for case in cases]
    health = JudgeHealth()
    for one, reply in _asked("gate", judged, model, work_id, health):
        done(1)
        if reply is not None and not reply.ok:
            one.why = f"{reply.status}: {reply.error}"
            continue
        answer = reply.value if reply is not None else answers_without_model(own_words(one.case.text))["gate"]
        one.detected, one.confidence, one.why = answer["has_request"], answer["confidence"], ""
        one.answers["gate"] = answer
    rows = [] if health.down else [one for one in judged if one.detected and one.case.is_labelled]
    for tier in AFTER_GATE:
        for one, reply in _asked(tier, [row for row in rows if next_tier(row.answers) == tier], model, work_id, health):
            if reply is not None and reply.ok:
                one.answers[tier] = reply.value
    return Bench(model or model_of("judge"), tuple(judged), ledger.totals(work_id=work_id), health.down)


def _asked(
    tier: Tier, judged: Iterable[Judged], model: str, work_id: str, health: JudgeHealth
) -> Iterator[tuple[Judged, Reply | None]]:
    """Each case with its reply, as they arrive; None where no model is asked. Ends early when the judge is down."""
    asked: list[Judged] = []
    without: list[Judged] = []

    def requests() -> Iterator[LLMRequest]:
        for one in judged:
            request = _request(tier, one, model, work_id)
            (without if request is None else asked).append(one)
            if request is not None:
                yield request

    for index, reply in complete_many(requests(), deadline=settings.LLM_EVALUATION_DEADLINE):
        yield asked[index], reply
        health.note(failed=not reply.ok, why=f"{reply.status}: {reply.error}")
        if health.down:
            break
    yield from ((one, None) for one in without)


def _request(tier: Tier, one: Judged, model: str, work_id: str) -> LLMRequest | None:
    words, subject = own_words(one.case.text), Subject(name=NAME, persona="")
    if answers_without_model(words):
        return None
    return tier_request(tier, words=words, subject=subject, answers=one.answers, work_id=work_id, model=model)


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with Wilson's 95 % interval; no value of none."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> Range | None:
        return wilson_interval(self.hits, self.of) if self.of else None

    def __str__(self) -> str:
        return "" if self.value is None else f"{self.value:.1%} ({self.hits} of {self.of})"


@dataclass(frozen=True, slots=True)
class Figures:
    """What was judged right and wrong."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @classmethod
    def of(cls, scored: Iterable[Judged]) -> Figures:
        pairs = [(one.case.request, one.detected) for one in scored]
        return cls(*(pairs.count(pair) for pair in ((True, True), (False, True), (True, False), (False, False))))

    @property
    def n(self) -> int:
        return self.true_positives + self.false_positives + self.false_negatives + self.true_negatives

    @property
    def precision(self) -> Share:
        return Share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> Share:
        return Share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def false_positive_rate(self) -> Share:
        return Share(self.false_positives, self.false_positives + self.true_negatives)

    @property
    def f1(self) -> float | None:
        """2 TP ÷ (2 TP + FP + FN); None where there is no request and none was detected."""
        wrong = self.false_positives + self.false_negatives
        return 2 * self.true_positives / (2 * self.true_positives + wrong) if self.true_positives + wrong else None

    def f1_interval(self, *, seed: int = 0) -> Range | None:
        """The percentile bootstrap's 95 % interval over cases (Efron & Tibshirani 1993, chapter 13); None where it cannot say."""
        import numpy as np

        if self.f1 is None:
            return None

        def f1(rows: Any) -> Any:
            hits, wrong = 2 * rows[:, 0], rows[:, 1] + rows[:, 2]
            with np.errstate(invalid="ignore"):
                return np.asarray(hits / (hits + wrong), dtype=np.float64)

        counts = np.array(list(asdict(self).values()), dtype=np.int64)
        estimated = replicates(f1, counts, resamples=RESAMPLES, seed=seed)
        interval = percentile_estimate(self.f1, estimated, level=0.95, n=self.n).interval
        return (interval.low, interval.high) if interval else None


def calibration(scored: Sequence[Judged]) -> dict[str, dict[str, Share]]:
    """Per level of confidence: of the requests detected, and of the messages passed over, how many rightly."""

    def share(level: str, detected: bool) -> Share:
        there = [one for one in scored if one.confidence == level and one.detected is detected]
        return Share(sum(one.is_right for one in there), len(there))

    return {level: {"found": share(level, True), "denied": share(level, False)} for level in CONFIDENCES}


def groups(scored: Sequence[Judged], by: Literal["kind", "language"]) -> dict[str, Figures]:
    """Figures per kind or language, of those that name one."""
    names = sorted({name for one in scored if (name := getattr(one.case, by))})
    return {name: Figures.of(one for one in scored if getattr(one.case, by) == name) for name in names}


def bench_json(result: Bench, *, errors: bool) -> dict[str, Any]:
    """A bench as JSON: n, precision, recall, f1 and false_positive_rate at the top, everything else beside them."""
    scored, verdicts = result.scored, [one.verdict for one in result.labelled]
    figures, right = Figures.of(scored), Share(verdicts.count("right"), len(verdicts))
    shares = {name: getattr(figures, name) for name in ("precision", "recall", "false_positive_rate")}
    values = {name: _rounded(share.value) for name, share in shares.items()}
    intervals = {name: _rounded(share.interval) for name, share in shares.items()}
    return {
        "n": figures.n,
        "precision": values["precision"],
        "recall": values["recall"],
        "f1": _rounded(figures.f1),
        "false_positive_rate": values["false_positive_rate"],
        "intervals": {**intervals, "f1": _rounded(figures.f1_interval())},
        "judge": result.judge,
        "heuristic": is_heuristic(result.judge),
        "unscored": len(result.judged) - len(scored),
        "confusion": asdict(figures),
        "calibration": {
            level: {answer: {"n": share.of, "precision": _rounded(share.value)} for answer, share in answers.items()}
            for level, answers in calibration(scored).items()
        },
        "kinds": {name: _group(one) for name, one in groups(scored, "kind").items()},
        "languages": {name: _group(one) for name, one in groups(scored, "language").items()},
        "traits": {
            "n": right.of,
            "right": right.hits,
            "opposite": verdicts.count("opposite"),
            "share_right": _rounded(right.value),
            "interval": _rounded(right.interval),
        },
        "cases": [_case(one) for one in result.judged],
        **spent_json(result.spent),
        "stopped": result.stopped,
        **({"errors": [_error(one) for one in result.judged if not one.is_right]} if errors else {}),
    }


def _case(one: Judged) -> dict[str, Any]:
    case, trait = one.case, one.trait
    return {
        "line": case.line, "text": case.text, "request": case.request, "found": one.detected,
        "behavior": case.behavior or "", "strength": case.strength,
        "trait": trait.name if trait is not None else "", "trait_strength": trait.strength if trait is not None else None,
        "verdict": one.verdict,
    }  # fmt: skip


def _error(one: Judged) -> dict[str, Any]:
    case = {"line": one.case.line, "text": one.case.text, "request": one.case.request}
    return {**case, "found": one.detected, "confidence": one.confidence, "why": one.why}


def _group(figures: Figures) -> dict[str, Any]:
    recall, rate = figures.recall.value, figures.false_positive_rate.value
    return {"n": figures.n, "recall": _rounded(recall), "false_positive_rate": _rounded(rate)}


def _rounded(value: float | Range | None) -> float | list[float] | None:
    return [round(end, 4) for end in value] if isinstance(value, tuple) else None if value is None else round(value, 4)


def show_bench(result: Bench, out: Any, *, errors: bool) -> None:
    """Write the figures, per kind and language too, calibration, cost, and where asked what was judged wrongly."""
    scored, console = result.scored, console_on(out)
    figures, unscored = Figures.of(scored), len(result.judged) - len(scored)
    out.write(f"{counted(len(result.judged), 'message')} judged by {judge_label(result.judge)}")
    if unscored:
        why = next(one.why for one in result.judged if one.detected is None)
        out.write(f"{unscored:,} of them could not be judged and are in no figure; the first: {snippet(why)}")

    def line(name: str, value: float | None, interval: Range | None, of: str) -> list[Cell]:
        ends = "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
        return [name, None if value is None else f"{value:.3f}", ends, of]

    rows = [
        line(name, share.value, share.interval, f"{share.hits} of {share.of}")
        for name, share in (
            ("Precision", figures.precision),
            ("Recall", figures.recall),
            ("False-positive rate", figures.false_positive_rate),
        )
    ]
    rows.insert(2, line("F1", figures.f1, figures.f1_interval(), f"{figures.n} messages"))
    print_table(console, ("", ">Value", "95 % interval", "From"), rows)
    levels = [
        [level, *(cell for share in answers.values() for cell in (share.of, str(share)))]
        for level, answers in calibration(scored).items()
    ]
    print_table(console, ("Confidence", ">Requests detected", "rightly", ">Messages passed over", "rightly"), levels)
    for title, by in (("Kind", groups(scored, "kind")), ("Language", groups(scored, "language"))):
        parts: list[list[Cell]] = [
            [snippet(n, 40), f.n, str(f.recall), str(f.false_positive_rate)] for n, f in by.items()
        ]
        if parts:
            print_table(console, (title, ">n", "Recall", "False-positive rate"), parts)
    if result.labelled:
        verdicts = [one.verdict for one in result.labelled]
        right, opposite = verdicts.count("right"), verdicts.count("opposite")
        out.write(f"Right trait and direction: {right} of {len(verdicts)} labelled requests; opposite: {opposite}")
        cases = []
        for one in result.labelled:
            strength, trait = one.case.strength, one.trait
            label = f"{one.case.behavior}{'' if strength is None else f' {strength:g}'}"
            proposed = snippet(f"{trait.name} {trait.strength:g}") if trait is not None else ""
            cases.append((one.case.line, snippet(one.case.text), snippet(label), proposed, one.verdict))
        print_table(console, (">Line", "Message", "Labelled", "Proposed", "Verdict"), cases)
    if errors:
        wrong = [
            (one.case.line, "missed" if one.case.request else "false", one.confidence, snippet(one.case.text))
            for one in scored
            if not one.is_right
        ]
        print_table(console, (">Line", "Is", "Confidence", "Message"), wrong, title="Judged wrongly")
    if not is_heuristic(result.judge):
        out.write(cost_line(result.spent))
    if result.stopped:
        out.write(f"Stopped: {snippet(result.stopped)}")
