"""How well a judge reads behaviour requests, on labelled messages (specification 002): detection, trait and direction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from pydantic import AliasChoices, BaseModel, Field, StrictBool, ValidationError

from agents.commands import console_on, print_table, snippet
from agents.llm import LLMRequest, Reply, complete_many, estimate_tokens, ledger
from agents.llm.endpoints import model_of, provider_of
from agents.llm.requests import describe_validation
from correction.behavior.patterns import stems
from correction.behavior.rules import STOP, UNSPECIFIED, own_words, read_map
from correction.behavior.tiers import (
    MOST_EARLIER,
    Answers,
    Subject,
    Tier,
    answers_without_model,
    next_tier,
    tier_request,
)
from correction.gate.thresholds import wilson_interval
from evaluation.judge.questions import JudgeHealth
from evaluation.models import is_heuristic
from evaluation.wording import counted, judge_label, money, spent_json

OUTPUT_TOKENS = 60  # of an answer; an assumption
MOST_PROBLEMS = 20  # of a file, named
AFTER_GATE: tuple[Tier, ...] = ("extract", "map")
Verdict = Literal["", "right", "opposite", "other trait", "other strength", "no trait"]


class CaseFileError(ValueError):
    """What is wrong with a file of cases, with line numbers."""


class Case(BaseModel):
    """A labelled message. `behavior` and `strength` (0 to 1) say what it asks for, where that is known.

    Attributes:
        context: What was said before it, oldest first, as ``name: text``; the last four count.
    """

    line: int = 0
    text: str = Field(validation_alias=AliasChoices("text", "message"))
    request: StrictBool = Field(validation_alias=AliasChoices("request", "has_request"))
    context: list[str] = []
    kind: str | None = None
    language: str | None = None
    behavior: str | None = None
    strength: float | None = Field(None, strict=True, ge=0, le=1)


class Judged(Case):
    """A case and the judge's answers.

    Attributes:
        found: Whether the gate tier says that there is a request; None where it could not be judged, and `why` says why.
        trait, trait_strength: What is proposed; empty where there is no proposal.
        verdict: Of a request with a labelled behaviour; see `verdict_of`.
    """

    found: bool | None = None
    confidence: str = ""
    why: str = "not asked"
    trait: str = ""
    trait_strength: float | None = None
    verdict: Verdict = ""
    answers: Answers = Field(default_factory=dict, exclude=True)

    @property
    def is_labelled(self) -> bool:
        return self.request and bool(self.behavior)


class Group(BaseModel):
    """How many messages were judged, and the shares of requests detected and of other messages taken for one."""

    n: int
    recall: float | None
    false_positive_rate: float | None


class Bench(Group):
    """What a judge got right. Cases that could not be judged are in no figure but `unscored`; intervals are Wilson's, 95 %."""

    precision: float | None
    f1: float | None = Field(
        description="2 TP ÷ (2 TP + FP + FN); null where there is no request and none was detected"
    )
    intervals: dict[str, tuple[float, float] | None]
    judge: str
    heuristic: bool
    unscored: int
    confusion: dict[str, int]
    kinds: dict[str, Group]
    languages: dict[str, Group]
    traits: dict[str, Any]
    cases: list[Judged]
    spent: dict[str, Any] = Field(exclude=True)
    stopped: str

    @property
    def wrong(self) -> list[Judged]:
        return [one for one in self.cases if one.found is not one.request]

    def data(self, *, errors: bool) -> dict[str, Any]:
        """As the command prints it: the five figures first."""
        first = {name: getattr(self, name) for name in ("n", "precision", "recall", "f1", "false_positive_rate")}
        data = {**first, **self.model_dump(mode="json"), **self.spent}
        return data | ({"errors": [one.model_dump(mode="json") for one in self.wrong]} if errors else {})


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSONL file: ``text`` (or ``message``), ``request`` (or ``has_request``), and where known
    ``context``, ``kind``, ``language``, ``behavior`` and ``strength``.

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


def estimate(cases: Sequence[Case], *, model: str = "") -> tuple[int, Decimal | None] | None:
    """The most calls that judging these can need, and US dollars (None = unpriced); None where the judge needs no network."""
    judge = model or model_of("judge")
    if provider_of(judge) != "anthropic":
        return None
    judged = [Judged(**case.model_dump()) for case in cases]
    requests = [request for one in judged if (request := _request("gate", one, model, "estimate"))]
    for one in filter(lambda one: one.is_labelled, judged):
        one.answers = {"gate": {"reason": ""}, "extract": {"behavior_name": one.behavior}}
        requests += [request for tier in AFTER_GATE if (request := _request(tier, one, model, "estimate"))]
    tokens = sum(map(estimate_tokens, requests))
    return len(requests), ledger.estimate_cost(judge, tokens, OUTPUT_TOKENS * len(requests))


def bench(cases: Sequence[Case], *, model: str = "", done: Callable[[int], None] = lambda count: None) -> Bench:
    """Ask the gate about all cases, then the other tiers about the labelled requests it detected. Stores nothing but the ledger's rows.

    Args:
        done: Called with how many cases the gate has just judged.
    """
    work_id = f"behavior-bench:{uuid.uuid4().hex[:12]}"
    judged = [Judged(**case.model_dump()) for case in cases]
    health = JudgeHealth()
    for one, reply in _asked("gate", judged, model, work_id, health):
        done(1)
        if reply is not None and not reply.ok:
            one.why = f"{reply.status}: {reply.error}"
            continue
        answer = reply.value if reply is not None else answers_without_model(own_words(one.text))["gate"]
        one.found, one.confidence, one.why = answer["has_request"], answer["confidence"], ""
        one.answers["gate"] = answer
    rows = [] if health.down else [one for one in judged if one.found and one.is_labelled]
    for tier in AFTER_GATE:
        for one, reply in _asked(tier, [row for row in rows if next_tier(row.answers) == tier], model, work_id, health):
            if reply is not None and reply.ok:
                one.answers[tier] = reply.value
    for one in judged:
        one.verdict = verdict_of(one)
    return summed(judged, judge=model or model_of("judge"), spent=ledger.totals(work_id=work_id), stopped=health.down)


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
    words, subject = own_words(one.text), Subject(name="Assistant", persona="")
    if answers_without_model(words):
        return None
    return tier_request(
        tier,
        words=words,
        subject=subject,
        answers=one.answers,
        context=one.context[-MOST_EARLIER:],
        work_id=work_id,
        model=model,
    )


def verdict_of(one: Judged) -> Verdict:
    """Judge the proposed trait of a labelled request, which is noted on the case; empty for other cases.

    Right is a trait that shares a telling word with the label, at a strength above or below 0.5 as labelled; without a labelled
    strength, of at least 0.5. Opposite is the labelled behaviour at a strength beyond 0.5, or its end where no strength is labelled.
    """
    if not one.is_labelled or one.found is None:
        return ""
    trait, label = read_map(one.answers["map"], traits=()).after if "map" in one.answers else None, one.strength
    if trait is None:
        return "no trait"
    one.trait, one.trait_strength = trait.name, trait.strength
    if not stems(one.behavior or "") & stems(f"{trait.name} {trait.description}"):
        return "other trait"
    if label is None or label == UNSPECIFIED:
        lowered: Verdict = "opposite" if trait.strength == STOP else "other strength"
        return "right" if trait.strength >= UNSPECIFIED else lowered
    if trait.strength == UNSPECIFIED:
        return "right" if label > UNSPECIFIED else "other strength"
    return "right" if (label > UNSPECIFIED) is (trait.strength > UNSPECIFIED) else "opposite"


def summed(judged: Sequence[Judged], *, judge: str, spent: ledger.Totals, stopped: str = "") -> Bench:
    """The figures over all cases that could be judged."""
    scored = [one for one in judged if one.found is not None]
    pairs = [(one.request, one.found) for one in scored]
    hits, false, missed, rest = (
        pairs.count(pair) for pair in ((True, True), (False, True), (True, False), (False, False))
    )
    verdicts = [one.verdict for one in judged if one.verdict]
    shares = {
        "precision": (hits, hits + false),
        "recall": (hits, hits + missed),
        "false_positive_rate": (false, false + rest),
    }
    right = verdicts.count("right")

    def groups(by: Literal["kind", "language"]) -> dict[str, Group]:
        names = sorted({name for one in scored if (name := getattr(one, by))})
        return {name: _group([one for one in scored if getattr(one, by) == name]) for name in names}

    return Bench(
        **_group(scored).model_dump(),
        precision=_share(hits, hits + false),
        f1=_share(2 * hits, 2 * hits + false + missed),
        intervals={name: _interval(*share) for name, share in shares.items()},
        judge=judge,
        heuristic=is_heuristic(judge),
        unscored=len(judged) - len(scored),
        confusion={"true_positives": hits, "false_positives": false, "false_negatives": missed, "true_negatives": rest},
        kinds=groups("kind"),
        languages=groups("language"),
        traits={
            "n": len(verdicts),
            "right": right,
            "opposite": verdicts.count("opposite"),
            "share_right": _share(right, len(verdicts)),
            "interval": _interval(right, len(verdicts)),
        },
        cases=list(judged),
        spent=spent_json(spent),
        stopped=stopped,
    )


def _group(scored: Sequence[Judged]) -> Group:
    requests = [one.found for one in scored if one.request]
    others = [one.found for one in scored if not one.request]
    return Group(
        n=len(scored),
        recall=_share(requests.count(True), len(requests)),
        false_positive_rate=_share(others.count(True), len(others)),
    )


def _share(hits: int, of: int) -> float | None:
    return round(hits / of, 4) if of else None


def _interval(hits: int, of: int) -> tuple[float, float] | None:
    if not of:
        return None
    low, high = wilson_interval(hits, of)
    return round(low, 4), round(high, 4)


def show_bench(result: Bench, out: Any, *, errors: bool) -> None:
    """Write the figures, per kind and language too, the labelled requests, cost, and where asked what was judged wrongly."""
    console, traits = console_on(out), result.traits
    out.write(f"{counted(len(result.cases), 'message')} judged by {judge_label(result.judge)}")
    if result.unscored:
        why = next(one.why for one in result.cases if one.found is None)
        out.write(f"{result.unscored:,} of them could not be judged and are in no figure; the first: {snippet(why)}")
    rows = []
    for name in ("precision", "recall", "f1", "false_positive_rate"):
        value, interval = getattr(result, name), result.intervals.get(name)
        shown = None if value is None else f"{value:.3f}"
        rows.append((name, shown, f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""))
    print_table(console, ("", ">Value", "95 % interval"), rows)
    for title, groups in (("Kind", result.kinds), ("Language", result.languages)):
        parts = [
            (
                snippet(name, 40),
                g.n,
                *(None if share is None else f"{share:.3f}" for share in (g.recall, g.false_positive_rate)),
            )
            for name, g in groups.items()
        ]
        if parts:
            print_table(console, (title, ">n", ">Recall", ">False-positive rate"), parts)
    if traits["n"]:
        out.write(
            f"Right trait and direction: {traits['right']} of {traits['n']} labelled requests; opposite: {traits['opposite']}"
        )
        labelled = []
        for one in (case for case in result.cases if case.verdict):
            label = f"{one.behavior}{'' if one.strength is None else f' {one.strength:g}'}"
            proposed = "" if one.trait_strength is None else f"{one.trait} {one.trait_strength:g}"
            labelled.append((one.line, snippet(one.text), snippet(label), snippet(proposed), one.verdict))
        print_table(console, (">Line", "Message", "Labelled", "Proposed", "Verdict"), labelled)
    if errors:
        wrong = [
            (one.line, "missed" if one.request else "false", one.confidence, snippet(one.text))
            for one in result.wrong
            if one.found is not None
        ]
        print_table(console, (">Line", "Is", "Confidence", "Message"), wrong, title="Judged wrongly")
    if not result.heuristic:
        spent = result.spent
        out.write(f"{counted(spent['calls'], 'call')}, cost {money(spent['cost_usd'], spent['unpriced_calls'])}")
    if result.stopped:
        out.write(f"Stopped: {snippet(result.stopped)}")
