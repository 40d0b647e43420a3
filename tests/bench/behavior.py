"""How well the configured judge reads behaviour requests (specification 002): detection, trait and direction.

Reads JSON lines ``{"text": …, "request": true or false}`` with, where known, ``behavior``, ``strength`` and ``context``. Prints precision,
recall, F1 and false-positive rate, what was judged wrongly, and whether the proposed traits go the right way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from pydantic import BaseModel, Field, StrictBool, ValidationError

from agents.commands import console_on, print_table, snippet
from agents.llm import ledger
from agents.llm.endpoints import model_of
from agents.llm.requests import describe_validation
from agents.work.running import side_by_side
from correction.behavior.patterns import stems
from correction.behavior.rules import UNSPECIFIED, own_words, read_map
from correction.behavior.tiers import MOST_EARLIER, Subject, detect
from correction.gate.thresholds import wilson_interval
from evaluation.judge.questions import JudgeHealth
from evaluation.wording import cost_line, counted, judge_label

EXAMPLE = Path(__file__).resolve().parents[1] / "correction" / "behavior" / "hard_cases.jsonl"
WORK = "behavior-bench"


class Case(BaseModel):
    """A labelled message; `behavior` and `strength` (0 to 1) say what a request asks for, where that is known.

    `context` is what was said before it, oldest first, as ``name: text``; the last four count.
    """

    line: int = 0
    text: str
    request: StrictBool
    context: list[str] = []
    behavior: str = ""
    strength: float | None = Field(None, ge=0, le=1)


class Judged(Case):
    """A case and the judge's answer.

    Attributes:
        detected: None where it could not be judged; `why` says why.
        trait, trait_strength: What is proposed; empty where there is no proposal.
        verdict: Of a request with a labelled behaviour: right is a trait that shares a telling word with it, and asks for less than usual
            (below 0.5) exactly where the label does.
    """

    detected: bool | None = None
    confidence: str = ""
    why: str = ""
    trait: str = ""
    trait_strength: float | None = None
    verdict: Literal["", "right", "opposite", "other trait", "no trait"] = ""


def measure_behavior(path: Path) -> None:
    """Print the tables for a file."""
    judged = judge_cases(read_cases(path))
    print(f"{counted(len(judged), 'message')} judged by {judge_label(model_of('judge'))}")  # noqa: T201
    show(judged, sys.stdout)
    print(cost_line(ledger.totals(work_id=WORK)))  # noqa: T201


def read_cases(path: Path) -> list[Case]:
    """The cases of a file.

    Raises:
        ValueError: A line is not of the form; names it.
    """
    cases: list[Case] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            try:
                cases.append(Case.model_validate_json(line).model_copy(update={"line": number}))
            except ValidationError as error:
                raise ValueError(f"{path}, line {number}: {describe_validation(error)}") from None
    return cases


def judge_cases(cases: Sequence[Case]) -> list[Judged]:
    health = JudgeHealth()
    return side_by_side([partial(judge_case, case, health=health) for case in cases], settings.LLM_MAX_CONCURRENCY)


def judge_case(case: Case, *, health: JudgeHealth) -> Judged:
    """Ask the tiers about a case; not when the judge answered none of the first."""
    judged = Judged(**case.model_dump(), why=health.down)
    if health.down:
        return judged
    subject, context = Subject(name="Assistant", persona=""), case.context[-MOST_EARLIER:]
    answers, failure, _ = detect(own_words(case.text), subject, context=context, work_id=WORK)
    health.note(failed=bool(failure), why=failure)
    if (gate := answers.get("gate")) is None:
        judged.why = failure
        return judged
    judged.detected, judged.confidence = gate["has_request"], gate["confidence"]
    trait = read_map(answers["map"], traits=()).after if "map" in answers else None
    if trait is not None:
        judged.trait, judged.trait_strength = trait.name, trait.strength
    if case.request and case.behavior:
        if trait is None:
            judged.verdict = "no trait"
        elif not stems(case.behavior) & stems(f"{trait.name} {trait.description}"):
            judged.verdict = "other trait"
        else:
            asks_for_less = case.strength is not None and case.strength < UNSPECIFIED
            judged.verdict = "right" if (trait.strength < UNSPECIFIED) is asks_for_less else "opposite"
    return judged


def figures_of(judged: Sequence[Judged]) -> dict[str, Any]:
    """Precision, recall, F1 and false-positive rate, 0 to 1 (null = nothing to divide by), over the cases that could be judged.

    Intervals are Wilson's, 95 %. F1 is 2 TP ÷ (2 TP + FP + FN).
    """
    pairs = [(one.request, one.detected) for one in judged if one.detected is not None]
    hits, false, missed, rest = (
        pairs.count(pair) for pair in ((True, True), (False, True), (True, False), (False, False))
    )
    shares = {
        "precision": (hits, hits + false),
        "recall": (hits, hits + missed),
        "f1": (2 * hits, 2 * hits + false + missed),
        "false_positive_rate": (false, false + rest),
    }
    return {
        "n": len(pairs),
        **{name: round(part / of, 4) if of else None for name, (part, of) in shares.items()},
        "intervals": {name: wilson_interval(*share) for name, share in shares.items() if name != "f1" and share[1]},
        "confusion": {
            "true_positives": hits,
            "false_positives": false,
            "false_negatives": missed,
            "true_negatives": rest,
        },
        "unscored": len(judged) - len(pairs),
        "traits": {
            verdict: [one.verdict for one in judged].count(verdict)
            for verdict in ("right", "opposite", "other trait", "no trait")
        },
    }


def show(judged: Sequence[Judged], out: Any) -> None:
    figures, console, rows = figures_of(judged), console_on(out), []
    for name in ("precision", "recall", "f1", "false_positive_rate"):
        value, interval = figures[name], figures["intervals"].get(name)
        shown = None if value is None else f"{value:.3f}"
        rows.append((name, shown, f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""))
    print_table(console, ("", ">Value", "95 % interval"), rows, title=f"{figures['unscored']} could not be judged")
    wrong = [
        (one.line, "missed" if one.request else "false", one.confidence, snippet(one.text))
        for one in judged
        if one.detected is not None and one.detected is not one.request
    ]
    print_table(console, (">Line", "Is", "Confidence", "Message"), wrong, title="Judged wrongly")
    labelled = [
        (one.line, snippet(one.text), snippet(one.behavior), snippet(one.trait), one.verdict)
        for one in judged
        if one.verdict
    ]
    print_table(console, (">Line", "Message", "Labelled", "Proposed", "Verdict"), labelled)
