"""How well a judge reads behaviour requests, on labelled messages (specification 002): detection, trait and direction, with intervals."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from rich import box
from rich.table import Table

from agents.commands import console_on, snippet
from agents.llm import LLMRequest, Reply, complete_many, estimate_tokens, ledger
from agents.llm.endpoints import model_of, provider_of
from agents.llm.ledger import Totals, totals
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

if TYPE_CHECKING:
    from evaluation.statistics.estimates import Floats

NAME = "Assistant"
OUTPUT_TOKENS = 60  # of an answer; an assumption
AFTER_GATE: tuple[Tier, ...] = ("extract", "map")
TEXT_KEYS, LABEL_KEYS = ("text", "message"), ("request", "has_request")


class CaseFileError(ValueError):
    """What is wrong with a file of cases, with line numbers."""


@dataclass(frozen=True, slots=True)
class Case:
    """A labelled message. `behavior` and `strength` (0 to 1) say what it asks for, where that is known."""

    line: int
    text: str
    request: bool
    kind: str = ""
    language: str = ""
    behavior: str = ""
    strength: float | None = None


@dataclass(slots=True)
class Judged:
    """A case and the judge's answers.

    Attributes:
        found: Whether the gate tier found a request; None where it could not be judged, and `why` says why.
        confidence: Of the gate's answer.
        answers: Of the tiers after it, which are asked about labelled requests that the gate found.
    """

    case: Case
    found: bool | None = None
    confidence: str = ""
    why: str = "not asked"
    answers: Answers = field(default_factory=dict)

    @property
    def trait(self) -> TraitValue | None:
        """The proposed trait; None where there is no proposal."""
        change = read_map(self.answers["map"], traits=()) if "map" in self.answers else None
        return change.after if change is not None else None

    @property
    def verdict(self) -> str:
        """Of a labelled request: ``right``, ``opposite``, ``other trait``, ``other strength`` or ``no trait``; empty for other cases.

        Right is a trait that shares a telling word with the label, at a strength on the labelled side of 0.5; without a
        labelled strength, of at least 0.5.
        Opposite is the labelled behaviour on the other side, or its end where no strength is labelled.
        """
        if not (self.case.request and self.case.behavior) or self.found is None:
            return ""
        trait, label = self.trait, self.case.strength
        if trait is None:
            return "no trait"
        if not stems(self.case.behavior) & stems(f"{trait.name} {trait.description}"):
            return "other trait"
        if label is None or label == UNSPECIFIED:
            return (
                "right" if trait.strength >= UNSPECIFIED else "opposite" if trait.strength == STOP else "other strength"
            )
        if trait.strength == UNSPECIFIED:
            return "right" if label > UNSPECIFIED else "other strength"
        return "right" if (label > UNSPECIFIED) is (trait.strength > UNSPECIFIED) else "opposite"


@dataclass(frozen=True, slots=True)
class Bench:
    """Cases as they were judged, by whom, at what cost."""

    judge: str
    judged: tuple[Judged, ...]
    spent: Totals = field(compare=False)
    stopped: str = ""

    @property
    def scored(self) -> list[Judged]:
        return [one for one in self.judged if one.found is not None]

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
        if line.strip():
            try:
                cases.append(_case(number, line))
            except ValueError as error:
                wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"\n  and {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise CaseFileError(f"{path}:\n  " + "\n  ".join(wrong[:20]) + more)
    if not cases:
        raise CaseFileError(f"{path}: there is no case in it")
    return cases


def _case(number: int, line: str) -> Case:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, got {type(row).__name__}")
    text, label = _only(row, TEXT_KEYS, str), _only(row, LABEL_KEYS, bool)
    kind, language, behavior = (str(row.get(name) or "") for name in ("kind", "language", "behavior"))
    strength = row.get("strength")
    if strength is not None and (isinstance(strength, bool) or not isinstance(strength, int | float)):
        raise ValueError(f"strength is {json.dumps(strength)[:40]}; allowed: a number from 0 to 1, or null")
    return Case(number, text, label, kind, language, behavior, strength)


def _only(row: dict[str, Any], keys: Sequence[str], kind: type) -> Any:
    """The value of the one key that is there."""
    there = [key for key in keys if key in row]
    names = " or ".join(keys)
    if len(there) != 1:
        raise ValueError(f"{'both' if there else 'neither'} of {names}; exactly one is needed")
    value = row[there[0]]
    if not isinstance(value, kind):
        allowed = "true or false" if kind is bool else "a text"
        raise ValueError(f"{there[0]} is {json.dumps(value)[:40]}; allowed: {allowed}")
    return value


@dataclass(frozen=True, slots=True)
class Estimate:
    """Before asking: calls, tokens (characters ÷ 4, an assumption for the answers), and US dollars; None when unpriced."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


def estimate(cases: Sequence[Case], *, model: str = "") -> Estimate | None:
    """The most that judging these can need; None where the judge needs no network."""
    judge = model or model_of("judge")
    if provider_of(judge) != "anthropic":
        return None
    rows = [Judged(case) for case in cases]
    requests = [request for one in rows if (request := _request("gate", one, model, "estimate")) is not None]
    labelled = [one for one in rows if one.case.request and one.case.behavior]
    for one in labelled:
        one.answers = {"gate": {"reason": ""}, "extract": {"behavior_name": one.case.behavior}}
    requests += [_tier_request(tier, one, model, "estimate") for one in labelled for tier in AFTER_GATE]
    tokens, output = sum(map(estimate_tokens, requests)), OUTPUT_TOKENS * len(requests)
    return Estimate(len(requests), tokens, output, ledger.estimate_cost(judge, tokens, output))


def bench(cases: Sequence[Case], *, model: str = "", done: Callable[[int], None] = lambda count: None) -> Bench:
    """Ask the gate about all cases, then the other tiers about the labelled requests it found. Stores nothing but the ledger's rows.

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
        if reply is None:
            answer = answers_without_model(own_words(one.case.text))["gate"]
        elif reply.ok:
            answer = reply.value
        else:
            one.why = f"{reply.status}: {reply.error}"
            continue
        one.found, one.confidence, one.why = answer["has_request"], answer["confidence"], ""
        one.answers["gate"] = answer
    rows = [] if health.down else [one for one in judged if one.found and one.case.request and one.case.behavior]
    for tier in AFTER_GATE:
        for one, reply in _asked(tier, [row for row in rows if next_tier(row.answers) == tier], model, work_id, health):
            if reply is not None and reply.ok:
                one.answers[tier] = reply.value
    return Bench(model or model_of("judge"), tuple(judged), totals(work_id=work_id), health.down)


def _asked(
    tier: Tier, judged: Iterable[Judged], model: str, work_id: str, health: JudgeHealth
) -> Iterator[tuple[Judged, Reply | None]]:
    """Each case with its reply, as they arrive; None where no model is asked. Ends early when the judge is down."""
    asked: list[Judged] = []
    without: list[Judged] = []

    def requests() -> Iterator[LLMRequest]:
        for one in judged:
            if (request := _request(tier, one, model, work_id)) is None:
                without.append(one)
            else:
                asked.append(one)
                yield request

    for index, reply in complete_many(requests(), deadline=settings.LLM_EVALUATION_DEADLINE):
        yield asked[index], reply
        health.note(failed=not reply.ok, why=f"{reply.status}: {reply.error}")
        if health.down:
            break
    yield from ((one, None) for one in without)


def _request(tier: Tier, one: Judged, model: str, work_id: str) -> LLMRequest | None:
    return None if answers_without_model(own_words(one.case.text)) else _tier_request(tier, one, model, work_id)


def _tier_request(tier: Tier, one: Judged, model: str, work_id: str) -> LLMRequest:
    subject = Subject(name=NAME, persona="")
    words = own_words(one.case.text)
    return tier_request(tier, words=words, subject=subject, answers=one.answers, work_id=work_id, model=model)


RESAMPLES = 4_000
Range = tuple[float, float]


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


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found right and wrong among judged cases."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @classmethod
    def of(cls, scored: Sequence[Judged]) -> Figures:
        def count(asked: bool, found: bool) -> int:
            return sum(one.case.request is asked and one.found is found for one in scored)

        return cls(count(True, True), count(False, True), count(True, False), count(False, False))

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
        """2 TP ÷ (2 TP + FP + FN); None where there is no request and none was found."""
        wrong = self.false_positives + self.false_negatives
        return 2 * self.true_positives / (2 * self.true_positives + wrong) if self.true_positives + wrong else None

    def f1_interval(self, *, seed: int = 0) -> Range | None:
        """The percentile bootstrap's 95 % interval over cases (Efron & Tibshirani 1993, chapter 13); None where it cannot say."""
        import numpy as np

        if self.f1 is None:
            return None
        counts = np.array(
            [self.true_positives, self.false_positives, self.false_negatives, self.true_negatives], dtype=np.int64
        )

        def f1(rows: Floats) -> Floats:
            hits, wrong = 2 * rows[:, 0], rows[:, 1] + rows[:, 2]
            with np.errstate(invalid="ignore"):
                return np.asarray(hits / (hits + wrong), dtype=np.float64)

        found = percentile_estimate(
            self.f1, replicates(f1, counts, resamples=RESAMPLES, seed=seed), level=0.95, n=self.n
        )
        return (found.interval.low, found.interval.high) if found.interval else None


def calibration(scored: Sequence[Judged]) -> dict[str, dict[str, Share]]:
    """Per level of confidence: of the requests found, and of the messages passed over, how many rightly."""

    def share(level: str, found: bool) -> Share:
        there = [one for one in scored if one.confidence == level and one.found is found]
        return Share(sum(one.case.request is found for one in there), len(there))

    return {level: {"found": share(level, True), "denied": share(level, False)} for level in CONFIDENCES}


def groups(scored: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, Figures]:
    """Figures per kind or language, of those that name one."""
    names = sorted({key(one) for one in scored} - {""})
    return {name: Figures.of([one for one in scored if key(one) == name]) for name in names}


def bench_json(found: Bench, *, errors: bool) -> dict[str, Any]:
    """A bench as JSON: n, precision, recall, f1 and false_positive_rate at the top, everything else beside them."""
    scored = found.scored
    figures = Figures.of(scored)
    document: dict[str, Any] = {
        "n": figures.n,
        "precision": _round(figures.precision.value),
        "recall": _round(figures.recall.value),
        "f1": _round(figures.f1),
        "false_positive_rate": _round(figures.false_positive_rate.value),
        "intervals": {
            "precision": _rounded(figures.precision.interval),
            "recall": _rounded(figures.recall.interval),
            "f1": _rounded(figures.f1_interval()),
            "false_positive_rate": _rounded(figures.false_positive_rate.interval),
        },
        "judge": found.judge,
        "heuristic": is_heuristic(found.judge),
        "unscored": len(found.judged) - len(scored),
        "confusion": {name: getattr(figures, name) for name in Figures.__dataclass_fields__},
        "calibration": {
            level: {side: {"n": share.of, "precision": _round(share.value)} for side, share in sides.items()}
            for level, sides in calibration(scored).items()
        },
        "kinds": {name: _group(one) for name, one in groups(scored, lambda one: one.case.kind).items()},
        "languages": {name: _group(one) for name, one in groups(scored, lambda one: one.case.language).items()},
        "traits": trait_figures(found),
        "cases": [_case_json(one) for one in found.judged],
        **spent_json(found.spent),
        "stopped": found.stopped,
    }
    if errors:
        document["errors"] = [
            {"line": one.case.line, "text": one.case.text, "request": one.case.request, "found": one.found,
             "confidence": one.confidence, "why": one.why}
            for one in found.judged if one.found is not one.case.request
        ]  # fmt: skip
    return document


def trait_figures(found: Bench) -> dict[str, Any]:
    """Of the labelled requests: how many came out as the right trait in the right direction, and how many as the opposite."""
    verdicts = [one.verdict for one in found.labelled]
    right = Share(verdicts.count("right"), len(verdicts))
    return {
        "n": right.of,
        "right": right.hits,
        "opposite": verdicts.count("opposite"),
        "share_right": _round(right.value),
        "interval": _rounded(right.interval),
    }


def _case_json(one: Judged) -> dict[str, Any]:
    trait = one.trait
    return {
        "line": one.case.line, "text": one.case.text, "request": one.case.request, "found": one.found,
        "behavior": one.case.behavior, "strength": one.case.strength,
        "trait": trait.name if trait is not None else "", "trait_strength": trait.strength if trait is not None else None,
        "verdict": one.verdict,
    }  # fmt: skip


def _group(figures: Figures) -> dict[str, Any]:
    return {
        "n": figures.n,
        "recall": _round(figures.recall.value),
        "false_positive_rate": _round(figures.false_positive_rate.value),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _rounded(interval: Range | None) -> list[float] | None:
    return None if interval is None else [round(end, 4) for end in interval]


def show_bench(found: Bench, out: Any, *, errors: bool) -> None:
    """Write the figures, per kind and language too, calibration, cost, and where asked what was judged wrongly."""
    scored, console = found.scored, console_on(out)
    figures = Figures.of(scored)
    unscored = len(found.judged) - len(scored)
    out.write(f"{counted(len(found.judged), 'message')} judged by {judge_label(found.judge)}")
    if unscored:
        why = next(one.why for one in found.judged if one.found is None)
        out.write(f"{unscored:,} of them could not be judged and are in no figure; the first: {snippet(why)}")
    table = Table("", "Value", "95 % interval", "From", box=box.SIMPLE)
    for name, share in (("Precision", figures.precision), ("Recall", figures.recall)):
        table.add_row(name, _value(share.value), _ends(share.interval), f"{share.hits} of {share.of}")
    table.add_row("F1", _value(figures.f1), _ends(figures.f1_interval()), f"{figures.n} messages")
    rate = figures.false_positive_rate
    table.add_row("False-positive rate", _value(rate.value), _ends(rate.interval), f"{rate.hits} of {rate.of}")
    console.print(table)
    levels = Table("Confidence", "Requests found", "rightly", "Messages passed over", "rightly", box=box.SIMPLE)
    for level, sides in calibration(scored).items():
        levels.add_row(level, *(cell for share in sides.values() for cell in (f"{share.of:,}", _percent(share))))
    console.print(levels)
    for title, parts in (
        ("Kind", groups(scored, lambda one: one.case.kind)),
        ("Language", groups(scored, lambda one: one.case.language)),
    ):
        if parts:
            console.print(_groups(title, parts))
    if found.labelled:
        traits = trait_figures(found)
        out.write(
            f"Right trait and direction: {traits['right']} of {traits['n']} labelled requests; opposite: {traits['opposite']}"
        )
        cases = Table("Line", "Message", "Labelled", "Proposed", "Verdict", box=box.SIMPLE)
        for one in found.labelled:
            trait = one.trait
            label = f"{one.case.behavior}{'' if one.case.strength is None else f' {one.case.strength:g}'}"
            cases.add_row(
                str(one.case.line), snippet(one.case.text), snippet(label),
                snippet(f"{trait.name} {trait.strength:g}") if trait is not None else "", one.verdict,
            )  # fmt: skip
        console.print(cases)
    if errors:
        wrong = Table("Line", "Is", "Confidence", "Message", box=box.SIMPLE, title="Judged wrongly")
        for one in scored:
            if one.found is not one.case.request:
                wrong.add_row(
                    str(one.case.line),
                    "missed" if one.case.request else "false",
                    one.confidence,
                    snippet(one.case.text),
                )
        console.print(wrong)
    if not is_heuristic(found.judge):
        out.write(cost_line(found.spent))
    if found.stopped:
        out.write(f"Stopped: {snippet(found.stopped)}")


def show_estimate(needed: Estimate, out: Any) -> None:
    """Say before anything is asked what it will take."""
    cost = money(needed.cost_usd, 0 if needed.cost_usd is not None else needed.calls)
    out.write(f"About {needed.calls:,} calls, {needed.input_tokens:,} tokens in, {needed.output_tokens:,} out, {cost}")


def _groups(title: str, parts: dict[str, Figures]) -> Table:
    table = Table(title, "n", "Recall", "False-positive rate", box=box.SIMPLE)
    for name, figures in parts.items():
        table.add_row(
            snippet(name, 40), str(figures.n), _percent(figures.recall), _percent(figures.false_positive_rate)
        )
    return table


def _percent(share: Share) -> str:
    return "" if share.value is None else f"{share.value:.1%} ({share.hits} of {share.of})"


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _ends(interval: Range | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
