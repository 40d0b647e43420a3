"""``manage.py bench_behavior FILE``: how well the judge reads behaviour requests, on labelled messages (specification 002)."""

from __future__ import annotations

import json
import sys
import uuid
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from django.conf import settings
from django.core.management.base import CommandError
from pydantic import BaseModel, Field, StrictBool, ValidationError
from rich.progress import Progress

from agents.commands import (
    NOT_ENOUGH,
    WRONG_USAGE,
    CodedCommand,
    console_for_bars,
    console_on,
    print_table,
    snippet,
)
from agents.llm import ledger
from agents.llm.endpoints import model_of
from agents.llm.requests import describe_validation
from agents.work.running import side_by_side
from correction.behavior.patterns import stems
from correction.behavior.rules import UNSPECIFIED, own_words, read_map
from correction.behavior.tiers import MOST_EARLIER, Subject, detect
from correction.gate.thresholds import wilson_interval
from evaluation.judge.questions import JudgeHealth
from evaluation.models import is_heuristic
from evaluation.wording import cost_line, counted, judge_label, spent_json


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


class Command(CodedCommand):
    help = (
        "Judge labelled messages with the configured judge. FILE has a JSON object a line: text, request (true or false), and where known "
        "behavior, strength (0 to 1) and context. Print precision, recall, F1 and false-positive rate with 95 % intervals, what was "
        "judged wrongly, and for each request with a behavior whether the proposed trait and its direction are right. A message takes up "
        "to three calls, which are in the ledger; nothing else is stored. "
        "Exit code: 0 all could be judged, 2 some or all could not, 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="labelled messages, one JSON object a line")
        parser.add_argument("--judge", default="", metavar="MODEL", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        cases, model = read_cases(options["file"]), options["judge"]
        work_id, health = f"behavior-bench:{uuid.uuid4().hex[:12]}", JudgeHealth()
        with Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
            task = bar.add_task("Judging", total=len(cases))

            def judge(case: Case) -> Judged:
                judged = judge_case(case, model=model, work_id=work_id, health=health)
                bar.advance(task)
                return judged

            judged = side_by_side([partial(judge, case) for case in cases], settings.LLM_MAX_CONCURRENCY)
        figures, spent, judge_name = figures_of(judged), ledger.totals(work_id=work_id), model or model_of("judge")
        if options["json"]:
            shown = {
                **figures,
                "judge": judge_name,
                "heuristic": is_heuristic(judge_name),
                **spent_json(spent),
                "cases": [one.model_dump() for one in judged],
            }
            self.stdout.write(json.dumps(shown, ensure_ascii=False, indent=2))
        else:
            self.stdout.write(f"{counted(len(cases), 'message')} judged by {judge_label(judge_name)}")
            self.show(figures, judged)
            self.stdout.write(cost_line(spent).capitalize())
        if figures["unscored"]:
            why = next(one.why for one in judged if one.detected is None)
            raise CommandError(
                f"{figures['unscored']} of {len(judged)} messages could not be judged and are in no figure: {why}",
                returncode=NOT_ENOUGH,
            )

    def show(self, figures: dict[str, Any], judged: Sequence[Judged]) -> None:
        console, rows = console_on(self.stdout), []
        for name in ("precision", "recall", "f1", "false_positive_rate"):
            value, interval = figures[name], figures["intervals"].get(name)
            shown = None if value is None else f"{value:.3f}"
            rows.append((name, shown, f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else ""))
        print_table(console, ("", ">Value", "95 % interval"), rows)
        wrong = [
            (one.line, "missed" if one.request else "false", one.confidence, snippet(one.text))
            for one in judged
            if one.detected is not None and one.detected is not one.request
        ]
        if wrong:
            print_table(console, (">Line", "Is", "Confidence", "Message"), wrong, title="Judged wrongly")
        labelled = [
            (one.line, snippet(one.text), snippet(one.behavior), snippet(one.trait), one.verdict)
            for one in judged
            if one.verdict
        ]
        if labelled:
            print_table(console, (">Line", "Message", "Labelled", "Proposed", "Verdict"), labelled)


def read_cases(path: Path) -> list[Case]:
    """The cases of a JSONL file.

    Raises:
        CommandError: The file cannot be read, holds no case, or a line is wrong; names the first of them.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}", returncode=WRONG_USAGE
        ) from None
    cases: list[Case] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                cases.append(Case.model_validate_json(line).model_copy(update={"line": number}))
            except ValidationError as error:
                said = f"{path}: line {number}: {describe_validation(error)}"
                raise CommandError(said, returncode=WRONG_USAGE) from None
    if not cases:
        raise CommandError(f"{path}: there is no case in it", returncode=WRONG_USAGE)
    return cases


def judge_case(case: Case, *, model: str, work_id: str, health: JudgeHealth) -> Judged:
    """Ask the tiers about a case; not when the judge answered none of the first."""
    judged = Judged(**case.model_dump(), why=health.down)
    if health.down:
        return judged
    subject, context = Subject(name="Assistant", persona=""), case.context[-MOST_EARLIER:]
    answers, failure, _ = detect(own_words(case.text), subject, context=context, model=model, work_id=work_id)
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
