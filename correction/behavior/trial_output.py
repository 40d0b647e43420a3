"""How `manage.py detect_behavior` shows what it found: one JSON object, or a page for people."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import console_on, printable
from agents.models import Agent
from correction.behavior.detect import Trial
from correction.behavior.rules import trait_json
from correction.behavior.tiers import TIERS, warnings_about
from evaluation.runs.terminal import judge_label

_QUESTIONS = {"gate": "Is a change asked for?", "extract": "Of which behaviour?", "map": "As which trait?"}
_VERDICTS = {
    "apply": "It would be applied by itself.",
    "review": "It would wait for a person:",
    "drop": "Nothing would come of it:",
}


def trial_json(agent: Agent, trial: Trial) -> dict[str, Any]:
    """The trial as data. Tiers that were not asked are null, and so are change and decision where it did not come to them."""
    detection, change, decision = trial.detection, trial.change, trial.decision
    cost = detection.cost_usd()
    return {
        "agent": agent.slug,
        "judge": detection.judge,
        "has_request": detection.has_request,
        "confidence": detection.confidence or None,
        **{tier: detection.found.get(tier) for tier in TIERS},
        "operation": change.operation if change is not None else "none",
        "trait_before": trait_json(change.before) if change is not None and change.before is not None else None,
        "trait_after": trait_json(change.after) if change is not None and change.after is not None else None,
        "decision": {"verdict": decision.verdict, "reasons": list(decision.reasons)} if decision is not None else None,
        "warnings": warnings_of(trial),
        "persona_diff": list(trial.diff),
        "characters_quoted": detection.words.quoted,
        "characters_cut": detection.words.cut,
        "failure": detection.failure,
        "calls": len(detection.calls),
        "cost_usd": None if cost is None else float(cost),
    }


def show_trial(agent: Agent, trial: Trial, out: Any) -> None:
    """The trial for people: the tiers, what would come of it, the persona before and after."""
    console, detection = console_on(out), trial.detection
    table = Table(box=box.SIMPLE_HEAD, title=f"A message to {_text(agent.display_name)}", title_justify="left")
    for heading in ("Tier", "Question", "Answer"):
        table.add_column(heading, overflow="fold")
    for tier in TIERS:
        answer = detection.found.get(tier)
        table.add_row(tier, _QUESTIONS[tier], _text("not asked" if answer is None else _answer(tier, answer)))
    console.print(table)
    for warning in warnings_of(trial):
        console.print(_text(f"Note: {warning}."), style="yellow")
    if detection.failure:
        console.print(_text(f"No answer. {detection.failure}"), style="red")
    elif trial.decision is None:
        console.print(
            "No change is asked for." if not detection.has_request else "Which behaviour is meant is not clear."
        )
    else:
        console.print(_text("\n  ".join((_VERDICTS[trial.decision.verdict], *trial.decision.reasons))))
    if trial.diff:
        console.print("\nThe persona, before and after:", style="bold")
        for line in trial.diff:
            console.print(_text(line), style={"+": "green", "-": "red"}.get(line[:1], ""))
    cost = detection.cost_usd()
    spent = "unpriced" if cost is None else f"${cost:.4f}"
    calls = len(detection.calls)
    console.print(
        _text(
            f"\nJudge: {judge_label(detection.judge)}; {calls} call{'s' * (calls != 1)}, {spent}. Nothing was changed."
        )
    )


def warnings_of(trial: Trial) -> list[str]:
    """What was odd about message and answers."""
    found = warnings_about(trial.detection.words, trial.detection.found)
    return [*found, *(trial.change.warnings if trial.change is not None else ())]


def _text(text: str) -> str:
    """What models and personas say, without effect on the terminal."""
    return escape(printable(text))


def _answer(tier: str, answer: dict[str, Any]) -> str:
    if tier == "gate":
        return f"{'yes' if answer['has_request'] else 'no'}, confidence {answer['confidence']}. {answer['reason']}"
    if not answer or not any(answer.values()):
        return "nothing"
    return "\n".join(f"{name}: {value}" for name, value in answer.items() if value not in ("", None))
