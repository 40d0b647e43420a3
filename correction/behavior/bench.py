"""How well the configured judge reads behaviour requests, on labelled messages (specification 002): detection, trait and direction."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from pydantic import AliasChoices, BaseModel, Field, StrictBool, ValidationError

from agents.kit.commands import console_on, print_table, snippet
from agents.kit.llm import ledger
from agents.kit.llm.requests import describe_validation
from agents.kit.running import side_by_side
from agents.personas.persona import TraitValue
from correction.behavior.own_words import own_words
from correction.behavior.patterns import stems
from correction.behavior.tiers import MOST_EARLIER, Subject, detect
from correction.behavior.trait_change import STOP, UNSPECIFIED, read_map
from correction.gate.thresholds import wilson_interval
from evaluation.judge.questions import JudgeHealth

Verdict = Literal["", "right", "opposite", "other trait", "other strength", "no trait"]


class Case(BaseModel):
    """A labelled message; `behavior` and `strength` (0 to 1) say what a request asks for, where that is known.

    `context` is what was said before it, oldest first, as ``name: text``; the last four count.
    """

    line: int = 0
    text: str = Field(validation_alias=AliasChoices("text", "message"))
    request: StrictBool = Field(validation_alias=AliasChoices("request", "has_request"))
    context: list[str] = []
    behavior: str | None = None
    strength: float | None = Field(None, strict=True, ge=0, le=1)


class Judged(Case):
    """A case and the judge's answer.

    Attributes:
        found: Whether it is taken for a request; None where that could not be judged, and `why` says why.
        trait, trait_strength: What is proposed; empty where there is no proposal.
        verdict: Of a request with a labelled behaviour, see `verdict_of`.
    """

    found: bool | None = None
    confidence: str = ""
    why: str = ""
    trait: str = ""
    trait_strength: float | None = None
    verdict: Verdict = ""


def read_cases(path: Path) -> list[Case]:
    """The cases of a file of JSON lines: ``text`` (or ``message``) and ``request`` (or ``has_request``), the rest where known.

    Raises:
        ValueError: The file cannot be read, or lines are not of the form; names each.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    cases: list[Case] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                cases.append(Case.model_validate_json(line).model_copy(update={"line": number}))
            except ValidationError as error:
                wrong.append(f"line {number}: {describe_validation(error)}")
    if wrong or not cases:
        raise ValueError(f"{path}: " + ("\n  ".join(wrong) or "there is no case in it"))
    return cases


def judge_cases(cases: Sequence[Case]) -> tuple[list[Judged], ledger.Totals]:
    """Ask the configured judge about each case; also what that took. Stores nothing but the ledger's rows."""
    health, work_id = JudgeHealth(), f"behavior-bench:{uuid.uuid4().hex[:12]}"
    asked = [partial(judge_case, case, health=health, work_id=work_id) for case in cases]
    return side_by_side(asked, settings.LLM_MAX_CONCURRENCY), ledger.totals(work_id=work_id)


def judge_case(case: Case, *, health: JudgeHealth, work_id: str) -> Judged:
    """Ask the tiers about a case; not when the judge answered none of the first."""
    judged = Judged(**case.model_dump(), why=health.down)
    if health.down:
        return judged
    subject, context = Subject(name="Assistant", persona=""), case.context[-MOST_EARLIER:]
    answers, failure, _ = detect(own_words(case.text), subject, context=context, work_id=work_id)
    health.note(failed=bool(failure), why=failure)
    if (gate := answers.get("gate")) is None:
        judged.why = failure
        return judged
    judged.found, judged.confidence = gate["has_request"], gate["confidence"]
    judged.verdict = verdict_of(judged, read_map(answers["map"], traits=()).after if "map" in answers else None)
    return judged


def verdict_of(one: Judged, trait: TraitValue | None) -> Verdict:
    """Judge the trait proposed for a labelled request, which is noted on the case; empty for other cases.

    Right is a trait that shares a telling word with the label, at a strength above or below 0.5 as labelled; without a labelled
    strength, of at least 0.5. Opposite is the labelled behaviour at a strength beyond 0.5, or its end where no strength is labelled.
    """
    if trait is not None:
        one.trait, one.trait_strength = trait.name, trait.strength
    if not (one.request and one.behavior):
        return ""
    if trait is None:
        return "no trait"
    label = one.strength
    if not stems(one.behavior) & stems(f"{trait.name} {trait.description}"):
        return "other trait"
    if label is None or label == UNSPECIFIED:
        lowered: Verdict = "opposite" if trait.strength == STOP else "other strength"
        return "right" if trait.strength >= UNSPECIFIED else lowered
    if trait.strength == UNSPECIFIED:
        return "right" if label > UNSPECIFIED else "other strength"
    return "right" if (label > UNSPECIFIED) is (trait.strength > UNSPECIFIED) else "opposite"


def figures_of(judged: Sequence[Judged]) -> dict[str, Any]:
    """Precision, recall, F1 and false-positive rate, 0 to 1 (null = nothing to divide by), over the cases that could be judged.

    Intervals are Wilson's, 95 %. F1 is 2 TP ÷ (2 TP + FP + FN).
    """
    pairs = [(one.request, one.found) for one in judged if one.found is not None]
    hits, false, missed, rest = (
        pairs.count(pair) for pair in ((True, True), (False, True), (True, False), (False, False))
    )
    verdicts = [one.verdict for one in judged if one.verdict]
    shares = {
        "precision": (hits, hits + false),
        "recall": (hits, hits + missed),
        "f1": (2 * hits, 2 * hits + false + missed),
        "false_positive_rate": (false, false + rest),
    }
    right = verdicts.count("right")
    return {
        "n": len(pairs),
        **{name: _share(*share) for name, share in shares.items()},
        "intervals": {name: _interval(*share) for name, share in shares.items() if name != "f1"},
        "confusion": {
            "true_positives": hits,
            "false_positives": false,
            "false_negatives": missed,
            "true_negatives": rest,
        },
        "unscored": len(judged) - len(pairs),
        "traits": {
            "n": len(verdicts),
            "right": right,
            "opposite": verdicts.count("opposite"),
            "share_right": _share(right, len(verdicts)),
            "interval": _interval(right, len(verdicts)),
        },
    }


def _share(hits: int, of: int) -> float | None:
    return round(hits / of, 4) if of else None


def _interval(hits: int, of: int) -> list[float] | None:
    return [round(end, 4) for end in wilson_interval(hits, of)] if of else None


def show(judged: Sequence[Judged], out: Any) -> None:
    """Write the figures, what was judged wrongly, and each labelled request."""
    figures, console, rows = figures_of(judged), console_on(out), []
    for name in ("precision", "recall", "f1", "false_positive_rate"):
        value, interval = figures[name], figures["intervals"].get(name)
        shown = None if value is None else f"{value:.3f}"
        rows.append((name, shown, f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""))
    print_table(console, ("", ">Value", "95 % interval"), rows, title=f"{figures['unscored']} could not be judged")
    wrong = [
        (one.line, "missed" if one.request else "false", one.confidence, snippet(one.text))
        for one in judged
        if one.found is not None and one.found is not one.request
    ]
    print_table(console, (">Line", "Is", "Confidence", "Message"), wrong, title="Judged wrongly")
    if (traits := figures["traits"])["n"]:
        out.write(
            f"Right trait and direction: {traits['right']} of {traits['n']} labelled requests; opposite: {traits['opposite']}\n"
        )
    labelled = [
        (
            one.line,
            snippet(one.text),
            _labelled(one.behavior, one.strength),
            _labelled(one.trait, one.trait_strength),
            one.verdict,
        )
        for one in judged
        if one.verdict
    ]
    print_table(console, (">Line", "Message", "Labelled", "Proposed", "Verdict"), labelled)


def _labelled(name: str | None, strength: float | None) -> str:
    return snippet(f"{name or ''}{'' if strength is None else f' {strength:g}'}")
