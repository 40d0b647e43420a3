"""``manage.py detect_behavior TEXT --agent SLUG``: what a message would change about an agent, without changing it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from rich.console import Console
from rich.markup import escape

from agents.kit.commands import NOT_ENOUGH, UNUSABLE, BaseCommand, console_on, print_table, printable, unusable, wrong
from agents.kit.llm.requests import is_misconfigured
from agents.kit.text.fences import fault_of
from agents.kit.text.wording import counted, money
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agent
from correction.behavior.policy import Requester
from correction.behavior.tiers import Trial, try_text
from correction.config.settings import resolve_config
from evaluation.wording import judge_label


class Command(BaseCommand):
    help = (
        "Look at TEXT as at a message to AGENT: does it ask for a change of behaviour, of which, as which trait, what would be decided, "
        "and what would the trait be? Nothing is changed; model calls cost what they cost and are in the ledger. "
        "Exit code: 0 looked at, 2 the model gave no answer."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("text", help="what a person writes; - reads it from standard input")
        parser.add_argument("--agent", required=True, metavar="SLUG", help="slug or name of the agent")
        parser.add_argument(
            "--user",
            default="",
            metavar="NAME",
            help="user name of who writes (default: some member of the channel who may not edit the persona)",
        )
        parser.add_argument(
            "--outsider", action="store_true", help="who writes is no user, or no member of the channel"
        )
        parser.add_argument(
            "--context",
            action="append",
            default=[],
            metavar="'NAME: TEXT'",
            help="what was said before it, for what “that” refers to; repeat it, oldest first: the last four count",
        )
        parser.add_argument("--model", default="", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agent = find_agent(options["agent"])
            text = sys.stdin.read().removesuffix("\n") if options["text"] == "-" else options["text"]
        except UnknownAgent as error:
            raise unusable(printable(str(error))) from None
        except UnicodeDecodeError as error:
            raise unusable(f"the text on standard input is not UTF-8: {error}") from None
        for message in (text, *options["context"]):
            if fault := fault_of(message):
                raise wrong(printable(fault))
        config = resolve_config(agent)
        # None, without a user of that name, is a person without an account, who may not edit the persona.
        writer = None if options["outsider"] else User.objects.filter(username=options["user"]).first()
        trial = try_text(
            text,
            agent=agent,
            config=config,
            requester=Requester(user=options["user"], is_member=not options["outsider"]),
            writer=writer,
            context=options["context"],
            model=options["model"],
        )
        if options["json"]:
            self.stdout.write(trial.model_dump_json(indent=2))
        else:
            show_trial(agent, trial, self.stdout)
        if trial.failure:
            sys.exit(UNUSABLE if is_misconfigured(trial.failure) else NOT_ENOUGH)


TIER_QUESTIONS = {"gate": "Is a change asked for?", "extract": "Of which behaviour?", "map": "As which trait?"}
SCOPE_SENTENCES = {
    "persona": "It would hold in the whole persona, for everybody.",
    "channel": "It would hold in its channel only.",
    "person": "It would hold towards this person only.",
}
VERDICT_SENTENCES = {
    "apply": "It would be applied automatically.",
    "review": "It would wait for a person:",
    "drop": "Nothing would come of it:",
}


def show_trial(agent: Agent, trial: Trial, out: Any) -> None:
    """Print the trial for people: a table of the tiers, warnings, the decision, the trait before and after (if any), and the cost."""
    console = console_on(out)
    rows = []
    for tier, question in TIER_QUESTIONS.items():
        answer = getattr(trial, tier)
        rows.append((tier, question, "not asked" if answer is None else printable(_answer(tier, answer))))
    print_table(console, ("Tier", "Question", "Answer"), rows, title=printable(f"A message to {agent.display_name}"))
    for warning in trial.warnings:
        console.print(_text(f"Note: {warning}."), style="yellow")
    _show_decision(trial, console)
    for when, trait in (("Before", trial.trait_before), ("After", trial.trait_after)):
        if trait is not None:
            console.print(_text(f"{when}: {trait.name}, strength {trait.strength:g}: {trait.description}"))
    cost = f"{counted(trial.calls, 'call')}, {money(trial.cost_usd)}"
    console.print(_text(f"\nJudge: {judge_label(trial.judge)}; {cost}. Nothing was changed."))


def _show_decision(trial: Trial, console: Console) -> None:
    """Print what would be decided, with the reasons and where it would hold; else why nothing is decided."""
    if trial.failure:
        console.print(_text(f"No answer. {trial.failure}"), style="red")
    elif trial.decision is not None:
        sentences = (VERDICT_SENTENCES[trial.decision.verdict], *trial.decision.reasons)
        console.print(_text("\n  ".join(sentences)))
        if trial.decision.verdict != "drop":
            console.print(SCOPE_SENTENCES[trial.scope])
    elif trial.has_request:
        console.print("Which behaviour is meant is not clear.")
    else:
        console.print("No change is asked for.")


def _text(text: str) -> str:
    """Return text of models and personas without effect on the terminal."""
    return escape(printable(text))


def _answer(tier: str, answer: dict[str, Any]) -> str:
    """Return a tier's answer in words."""
    if tier == "gate":
        return f"{'yes' if answer['has_request'] else 'no'}, confidence {answer['confidence']}. {answer['reason']}"
    if not answer or not any(answer.values()):
        return "nothing"
    return "\n".join(f"{name}: {value}" for name, value in answer.items() if value not in ("", None))
