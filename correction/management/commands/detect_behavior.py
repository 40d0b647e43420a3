"""``manage.py detect_behavior TEXT --agent SLUG``: what a message would change about an agent, without changing it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from rich import box
from rich.markup import escape
from rich.table import Table

from agents.commands import BaseCommand, console_on, printable
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agent
from agents.text.fences import fault_of
from correction.behavior.rules import Change, Requester, applied_today
from correction.behavior.tiers import TIERS, Trial, try_text
from correction.config.settings import resolve_config

NO_ANSWER, BAD_INPUT = 1, 2


class Command(BaseCommand):
    help = (
        "Look at TEXT as at a message to AGENT: does it ask for a change of behaviour, of which, as which trait, what would be decided, "
        "and what would the persona be? Nothing is changed; model calls cost what they cost and are in the ledger. "
        "Exit code: 0 looked at, 1 the model gave no answer, 2 wrong input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("text", help="what a person writes; - reads it from standard input")
        parser.add_argument("--agent", required=True, metavar="SLUG", help="slug or name of the agent")
        parser.add_argument(
            "--user", default="", metavar="NAME", help="user name of who writes (default: some member of the channel)"
        )
        parser.add_argument(
            "--outsider", action="store_true", help="who writes is no user, or no member of the channel"
        )
        parser.add_argument("--model", default="", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agent = find_agent(options["agent"])
            text = sys.stdin.read().removesuffix("\n") if options["text"] == "-" else options["text"]
        except UnknownAgent as error:
            raise CommandError(printable(str(error)), returncode=BAD_INPUT) from None
        except UnicodeDecodeError as error:
            raise CommandError(f"the text on standard input is not UTF-8: {error}", returncode=BAD_INPUT) from None
        if fault := fault_of(text):
            raise CommandError(printable(fault), returncode=BAD_INPUT)
        trial = try_text(
            text,
            agent=agent,
            config=resolve_config(agent),
            requester=Requester(options["user"], not options["outsider"]),
            applied_today=applied_today(agent.pk),
            model=options["model"],
        )
        if options["json"]:
            self.stdout.write(json.dumps(trial_json(agent, trial), ensure_ascii=False, indent=2))
        else:
            show_trial(agent, trial, self.stdout)
        if trial.detection.failure:
            sys.exit(NO_ANSWER)


_QUESTIONS = {"gate": "Is a change asked for?", "extract": "Of which behaviour?", "map": "As which trait?"}
_VERDICTS = {
    "apply": "It would be applied automatically.",
    "review": "It would wait for a person:",
    "drop": "Nothing would come of it:",
}


def trial_json(agent: Agent, trial: Trial) -> dict[str, Any]:
    """The trial as data. Tiers that were not asked are null, and so are change and decision where it did not come to them."""
    detection, change, decision = trial.detection, trial.change, trial.decision
    cost, columns = detection.cost_usd(), (change or Change(operation="none")).columns()
    return {
        "agent": agent.slug,
        "judge": detection.judge,
        "has_request": detection.has_request,
        "confidence": detection.confidence or None,
        **{tier: detection.answers.get(tier) for tier in TIERS},
        "operation": columns["operation"],
        "trait_before": columns["trait_before"],
        "trait_after": columns["trait_after"],
        "decision": {"verdict": decision.verdict, "reasons": list(decision.reasons)} if decision is not None else None,
        "warnings": trial.warnings,
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
        answer = detection.answers.get(tier)
        table.add_row(tier, _QUESTIONS[tier], _text("not asked" if answer is None else _answer(tier, answer)))
    console.print(table)
    for warning in trial.warnings:
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
        _text(f"\nJudge: {_judge(detection.judge)}; {calls} call{'s' * (calls != 1)}, {spent}. Nothing was changed.")
    )


def _text(text: str) -> str:
    """What models and personas say, without effect on the terminal."""
    return escape(printable(text))


def _answer(tier: str, answer: dict[str, Any]) -> str:
    if tier == "gate":
        return f"{'yes' if answer['has_request'] else 'no'}, confidence {answer['confidence']}. {answer['reason']}"
    if not answer or not any(answer.values()):
        return "nothing"
    return "\n".join(f"{name}: {value}" for name, value in answer.items() if value not in ("", None))


def _judge(judge: str) -> str:
    return f"{judge} (heuristic)" if judge.startswith("offline:") else judge
