"""Measure how well the configured judge reads behaviour requests, on labelled messages: ``manage.py dev bench_behavior FILE``."""

from __future__ import annotations

import uuid
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from pydantic import AliasChoices, BaseModel, Field, StrictBool, ValidationError

from agents.kit.commands import CodedCommand, console_on, print_table, snippet, unanswered, unusable
from agents.kit.llm import ledger
from agents.kit.llm.endpoints import model_of
from agents.kit.llm.requests import describe_validation
from agents.kit.running import side_by_side
from agents.kit.text.wording import counted
from agents.personas.persona import TraitValue
from correction.behavior.naming import stems
from correction.behavior.own_words import own_words
from correction.behavior.tiers import MOST_EARLIER, Subject, detect
from correction.behavior.trait_change import STOP, UNSPECIFIED, read_map
from correction.gate.thresholds import wilson_interval
from evaluation.commands import as_text
from evaluation.judge.asking import JudgeHealth
from evaluation.models import is_heuristic
from evaluation.wording import cost_line, judge_label, spent_json

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


class JudgedCase(Case):
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


def print_figures(path: Path, out: Any, *, as_json: bool = False) -> None:
    """Judge the labelled messages of a file with the configured judge, and write figures, mistakes and the cost, for people or as JSON.

    Calls are in the ledger; nothing else is stored.

    Raises:
        CommandError: The file is unusable, or some messages could not be judged (after the figures are written).
    """
    try:
        cases = read_cases(path)
    except ValueError as error:
        raise unusable(error) from None
    judge = model_of("judge")
    judged_cases, spent = judge_cases(cases)
    if as_json:
        result = figures_of(judged_cases)
        result |= {"judge": judge, "heuristic": is_heuristic(judge), **spent_json(spent)}
        result["cases"] = [case.model_dump(mode="json") for case in judged_cases]
        out.write(as_text(result))
    else:
        out.write(f"{counted(len(judged_cases), 'message')} judged by {judge_label(judge)}")
        write_figures(judged_cases, out)
        out.write(cost_line(spent))
    unscored = [case for case in judged_cases if case.found is None]
    if unscored:
        raise unanswered(f"{len(unscored)} of {len(judged_cases)} messages could not be judged: {unscored[0].why}")


def read_cases(path: Path) -> list[Case]:
    """Read a file of JSON lines: ``text`` (or ``message``) and ``request`` (or ``has_request``), the rest where known.

    Blank lines are passed over, but count in the cases' line numbers.

    Raises:
        ValueError: The file cannot be read or has no case, or lines are not of the form; names each of these lines.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    cases: list[Case] = []
    wrong_lines: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            case = Case.model_validate_json(line)
        except ValidationError as error:
            wrong_lines.append(f"line {number}: {describe_validation(error)}")
            continue
        case.line = number
        cases.append(case)
    if wrong_lines:
        wrong = "\n  ".join(wrong_lines)
        raise ValueError(f"{path}: {wrong}")
    if not cases:
        raise ValueError(f"{path}: there is no case in it")
    return cases


def judge_cases(cases: Sequence[Case]) -> tuple[list[JudgedCase], ledger.Totals]:
    """Ask the configured judge about each case; return the cases with its answers, and what that took."""
    health = JudgeHealth()
    work_id = f"behavior-bench:{uuid.uuid4().hex[:12]}"
    jobs = [partial(judge_case, case, health=health, work_id=work_id) for case in cases]
    judged_cases = side_by_side(jobs, settings.LLM_MAX_CONCURRENCY)
    return judged_cases, ledger.totals(work_id=work_id)


def judge_case(case: Case, *, health: JudgeHealth, work_id: str) -> JudgedCase:
    """Ask the tiers about a case, as of an assistant without persona and traits; not when the judge answered none of the first cases.

    `found` stays None, with the reason in `why`, where it was not asked or gave no answer.
    """
    judged_case = JudgedCase(**case.model_dump(), why=health.down)
    if health.down:
        return judged_case
    subject = Subject(name="Assistant", persona="")
    context = case.context[-MOST_EARLIER:]
    detection = detect(own_words(case.text), subject, context=context, work_id=work_id)
    health.note(failed=bool(detection.failure), why=detection.failure)
    gate = detection.answers.get("gate")
    if gate is None:
        judged_case.why = detection.failure
        return judged_case
    judged_case.found = gate["has_request"]
    judged_case.confidence = gate["confidence"]
    trait = None
    if "map" in detection.answers:
        trait = read_map(detection.answers["map"], traits=()).after
    if trait is not None:
        judged_case.trait = trait.name
        judged_case.trait_strength = trait.strength
    judged_case.verdict = verdict_of(case, trait)
    return judged_case


def verdict_of(case: Case, trait: TraitValue | None) -> Verdict:
    """Judge the trait proposed for a labelled request; empty for other cases.

    Right is a trait that shares a telling word with the label, on the labelled side of 0.5; where no strength, or 0.5, is labelled, one of
    at least 0.5. Opposite is that behaviour on the other side of 0.5, or its end (0) where no strength is labelled. A proposed 0.5 is right
    for a labelled strength above it, and another strength for one below.

    Args:
        trait: The one that was proposed; None where none was.
    """
    if not case.request or not case.behavior:
        return ""
    if trait is None:
        return "no trait"
    if not stems(case.behavior) & stems(f"{trait.name} {trait.description}"):
        return "other trait"
    if case.strength is None or case.strength == UNSPECIFIED:
        if trait.strength >= UNSPECIFIED:
            return "right"
        return "opposite" if trait.strength == STOP else "other strength"
    is_raised = case.strength > UNSPECIFIED
    if trait.strength == UNSPECIFIED:
        return "right" if is_raised else "other strength"
    return "right" if is_raised is (trait.strength > UNSPECIFIED) else "opposite"


def figures_of(judged_cases: Sequence[JudgedCase]) -> dict[str, Any]:
    """Return precision, recall, F1 and false-positive rate, 0 to 1 (null = nothing to divide by), over the cases that were judged.

    Intervals are Wilson's, 95 %. F1 is 2 TP ÷ (2 TP + FP + FN).
    """
    # Whether a request was labelled, and whether one was found; without the cases that could not be judged.
    pairs = [(case.request, case.found) for case in judged_cases if case.found is not None]
    hits = pairs.count((True, True))
    false = pairs.count((False, True))
    missed = pairs.count((True, False))
    rest = pairs.count((False, False))
    verdicts = [case.verdict for case in judged_cases if case.verdict]
    right = verdicts.count("right")
    shares = {  # as what is divided, and what it is divided by
        "precision": (hits, hits + false),
        "recall": (hits, hits + missed),
        "f1": (2 * hits, 2 * hits + false + missed),
        "false_positive_rate": (false, false + rest),
    }
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
        "unscored": len(judged_cases) - len(pairs),
        "traits": {
            "n": len(verdicts),
            "right": right,
            "opposite": verdicts.count("opposite"),
            "share_right": _share(right, len(verdicts)),
            "interval": _interval(right, len(verdicts)),
        },
    }


def _share(hits: int, total: int) -> float | None:
    return round(hits / total, 4) if total else None


def _interval(hits: int, total: int) -> list[float] | None:
    return [round(end, 4) for end in wilson_interval(hits, total)] if total else None


def write_figures(judged_cases: Sequence[JudgedCase], out: Any) -> None:
    """Write the figures, the cases in which a request was missed or falsely found, and each request whose behaviour is labelled."""
    figures = figures_of(judged_cases)
    console = console_on(out)
    rows = []
    for name in ("precision", "recall", "f1", "false_positive_rate"):
        value = figures[name]
        interval = figures["intervals"].get(name)
        value_text = None if value is None else f"{value:.3f}"
        interval_text = f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
        rows.append((name, value_text, interval_text))
    print_table(console, ("", ">Value", "95 % interval"), rows, title=f"{figures['unscored']} could not be judged")
    wrong = []
    for case in judged_cases:
        if case.found is not None and case.found is not case.request:
            wrong.append((case.line, "missed" if case.request else "false", case.confidence, snippet(case.text)))
    print_table(console, (">Line", "Is", "Confidence", "Message"), wrong, title="Judged wrongly")
    traits = figures["traits"]
    if traits["n"]:
        right = f"Right trait and direction: {traits['right']} of {traits['n']} labelled requests"
        out.write(f"{right}; opposite: {traits['opposite']}\n")
    labelled = []
    for case in judged_cases:
        if case.verdict:
            label = _name_and_strength(case.behavior or "", case.strength)
            proposal = _name_and_strength(case.trait, case.trait_strength)
            labelled.append((case.line, snippet(case.text), label, proposal, case.verdict))
    print_table(console, (">Line", "Message", "Labelled", "Proposed", "Verdict"), labelled)


def _name_and_strength(name: str, strength: float | None) -> str:
    return snippet(name if strength is None else f"{name} {strength:g}")


class Command(CodedCommand):
    help = (
        "Judge labelled messages (JSONL: text or message, request or has_request, and optionally context, behavior and strength) with the "
        "configured judge. Print precision, recall, F1 and false-positive rate with 95 % intervals, what was judged wrongly, and for each "
        "request with a labelled behavior whether the proposed trait and its direction are right. Calls are in the ledger, nothing else "
        "is stored. "
        "Exit code: 0 all could be judged, 2 some or all could not."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="labelled messages, one JSON object a line")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        print_figures(options["file"], self.stdout, as_json=options["json"])
