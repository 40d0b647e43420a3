"""``manage.py measure_behavior REQUEST_ID``: did an applied behaviour request change what the agent does?"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from rich.progress import Progress

from agents.commands import NOT_ENOUGH, STOPPED, WRONG_USAGE, CodedCommand, console_for_bars, printable
from agents.work.running import stopping_on_sigterm
from correction.behavior.effects import (
    EffectPlan,
    EffectResult,
    effect_json,
    measure_now,
    plan_request,
    result_of,
    show_effect,
    show_plan,
)
from correction.models import BehaviorEffect, BehaviorRequest
from correction.models.behavior import MESSAGES, MOST_MESSAGES

NOT_AS_REQUESTED = 1
LARGEST = 2**63 - 1


class Command(CodedCommand):
    help = (
        "Judge the trait of an applied behaviour request on the agent's last messages before it and on the next ones after it, and say "
        "whether the behaviour changed as requested. The result is stored with the request. "
        "Exit code: 0 as requested, 1 not as requested, 2 it is not known (too few messages, or scores), 3 wrong usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("request", type=int, metavar="REQUEST_ID", help="number of the behaviour request")
        parser.add_argument(
            "--messages", type=int, default=MESSAGES, metavar="N",
            help=f"messages before and after each, 1 to {MOST_MESSAGES} (default: {MESSAGES}); fewer are judged where there are no more",
        )  # fmt: skip
        parser.add_argument("--model", default="", help="model to ask (default: JUDGE_MODEL)")
        parser.add_argument("--dry-run", action="store_true", help="print messages, calls and cost, ask nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        request, as_json = self._request(options["request"]), options["json"]
        try:
            plan = plan_request(request=request, n=options["messages"], model=options["model"])
        except ValueError as error:
            raise CommandError(printable(str(error)), returncode=WRONG_USAGE) from None
        if as_json and (options["dry_run"] or plan.why_not):
            self.stdout.write(plan.model_dump_json(indent=2))
        elif not as_json:
            show_plan(plan, self.stdout)
        if options["dry_run"]:
            return
        if plan.why_not:
            raise CommandError(printable(plan.why_not), returncode=NOT_ENOUGH)
        effect = self._measure(request, plan, options)
        if as_json:
            self.stdout.write(json.dumps(effect_json(effect), ensure_ascii=False, indent=2))
        else:
            show_effect(effect, self.stdout)
        self._end(effect)

    def _request(self, pk: int) -> BehaviorRequest:
        known = pk if 0 < pk <= LARGEST else None
        request: BehaviorRequest | None = BehaviorRequest.objects.select_related("agent").filter(pk=known).first()
        if request is None:
            raise CommandError(
                f"there is no behaviour request {pk}; allowed: the number of one that was applied",
                returncode=WRONG_USAGE,
            )
        return request

    def _measure(self, request: BehaviorRequest, plan: EffectPlan, options: dict[str, Any]) -> BehaviorEffect:
        try:
            with stopping_on_sigterm(), Progress(console=console_for_bars(sys.stderr), transient=True) as bar:
                task = bar.add_task("Judging", total=plan.before + plan.after)
                return measure_now(
                    request=request,
                    messages=options["messages"],
                    model=options["model"],
                    done=lambda judged: bar.advance(task, judged),
                )
        except KeyboardInterrupt:
            raise CommandError(
                "Stopped: there is no result, and the calls made are paid for.", returncode=STOPPED
            ) from None
        except ValueError as error:
            raise CommandError(printable(str(error)), returncode=WRONG_USAGE) from None

    def _end(self, effect: BehaviorEffect) -> None:
        """With the exit code that says what came out."""
        if effect.status != BehaviorEffect.Status.COMPLETED:
            raise CommandError(printable(effect.error) or f"it ended as {effect.status}", returncode=NOT_ENOUGH)
        result = result_of(effect)
        assert result is not None  # noqa: S101 (a completed effect has one)
        if result.as_requested is None:
            raise CommandError(printable(_why_unclear(result)), returncode=NOT_ENOUGH)
        if not result.as_requested:
            raise CommandError(
                f"{printable(result.trait)}: {result.expected} of it was asked for; the verdict is {result.verdict}",
                returncode=NOT_AS_REQUESTED,
            )


def _why_unclear(result: EffectResult) -> str:
    if result.expected == "otherwise":
        return "the request only reworded its trait: how much it shows does not say whether that was followed"
    return f"it is not known: {result.reason or 'too few messages were scored'}"
