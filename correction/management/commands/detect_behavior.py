"""``manage.py detect_behavior TEXT --agent SLUG``: what a message would change about an agent, without changing it."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.commands import printable
from agents.finding import UnknownAgent, find_agent
from agents.turn.send_message import fault_of
from correction.behavior.detect import show_trial, trial_json, try_text
from correction.behavior.policy import Requester, applied_today
from correction.config.settings import resolve_config

NO_ANSWER, BAD_INPUT = 1, 2


class Command(BaseCommand):
    help = (
        "Look at TEXT as at a message to AGENT: does it ask for a change of behaviour, of which, as which trait, what would be decided, "
        "and what would the persona be? Nothing is changed; model calls cost what they cost and are in the ledger. "
        "Exit code: 0 looked at, 1 the model gave no answer, 2 wrong input."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("text", help="what somebody writes; - reads it from standard input")
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
