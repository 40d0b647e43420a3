"""``manage.py schedule``: measurements that are made again and again."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone
from rich.markup import escape

from agents.kit.commands import CodedCommand, console_on, print_table, unusable, wrong
from agents.kit.text.wording import time_text
from agents.kit.use_cases import add_options, read_options
from agents.models import Agent
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.commands import as_text, check_batches, tag_pairs
from evaluation.models import EvaluationSchedule
from evaluation.runs.request import EvaluationRequest
from evaluation.runs.schedules import (
    ALLOWED_EVERY,
    Fired,
    UnknownSchedule,
    default_window,
    every_name,
    find_schedule,
    fire_now,
    first_time,
    overlap_note,
    parse_every,
    save_schedule,
    schedule_json,
)
from evaluation.scorers import SCORERS
from evaluation.windows import ALLOWED

EXAMPLES = """
examples:
  manage.py schedule add nightly --every 1d --at 03:00      every agent and dimension, over the last day
  manage.py schedule add weekly --agents jim,pam --dimensions adherence --every 1w --limit 1.0
  manage.py schedule list
  manage.py schedule fire nightly                           now, besides its timetable
  manage.py schedule change nightly --samples 40
  manage.py schedule pause nightly      resume nightly      remove nightly

`manage.py work` (or Celery) fires what is due.
"""
# Actions that take a name alone.
ACTIONS_BY_NAME = {
    "pause": "stop firing it until it is resumed",
    "resume": "fire it again; what was missed is measured once",
    "remove": "delete it; what it measured stays",
    "fire": "measure now, besides its timetable",
}
# Fields of a schedule whose option is not called as they are.
OPTIONS = {"name": "name", "every_minutes": "--every", "drift_limit": "--limit"}


class Command(CodedCommand):
    help = "List, make and change schedules: measurements that the worker makes again and again, watched for drift."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = EXAMPLES
        actions = parser.add_subparsers(
            dest="action", metavar="list|add|change|pause|resume|remove|fire", required=True
        )
        self._action(actions, "list", "show all schedules")
        add = self._action(actions, "add", "make one")
        add.add_argument("name", help="its name")
        self._add_fields(add, is_new=True)
        change = self._action(actions, "change", "set what is named and nothing else")
        change.add_argument("name", help="its name")
        self._add_fields(change, is_new=False)
        for name, text in ACTIONS_BY_NAME.items():
            self._action(actions, name, text).add_argument("name", help="its name")

    def _action(self, actions: Any, name: str, text: str) -> ArgumentParser:
        parser: ArgumentParser = actions.add_parser(name, help=text, description=text)
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        return parser

    def _add_fields(self, parser: ArgumentParser, *, is_new: bool) -> None:
        """Add the options that set a schedule's fields; of a new one they have defaults."""

        def default(text: str) -> str:
            return f" (default: {text})" if is_new else ""

        parser.add_argument("--agents", help=f"slugs separated by commas, or all{default('all active ones')}")
        parser.add_argument("--dimensions", help=f"of {','.join(SCORERS)}, or all{default('all with propositions')}")
        parser.add_argument("--window", help=f"{ALLOWED}{default('as long as --every')}")
        parser.add_argument("--every", help=f"{ALLOWED_EVERY}{default('1d')}")
        parser.add_argument("--at", metavar="HH:MM", help=f"first time of day{default('at once')}")
        parser.add_argument(
            "--where", action="append", metavar="TAG=VALUE", help="only messages with this tag; repeatable"
        )
        parser.add_argument("--samples", type=int, help=f"most messages sampled per agent{default('20')}")
        parser.add_argument(
            "--batch",
            action=BooleanOptionalAction,
            help=f"ask the judge in batches: half the price, an answer within a day{default('no')}",
        )
        add_options(parser, EvaluationRequest, "additional_context")
        parser.add_argument("--judge", help=f"model{default('JUDGE_MODEL when it is fired')}")
        parser.add_argument(
            "--limit", type=float, metavar="POINTS", help=f"least fall that raises an alert, 0.1 to 9{default('0.8')}"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        asked = Namespace(**options)
        try:
            self._do(asked)
        except (UnknownAgent, UnknownSchedule) as error:
            raise unusable(error) from None
        except ValidationError as error:
            lines = []
            for field, messages in error.message_dict.items():
                lines.append(f"{OPTIONS.get(field, f'--{field}')}: {' '.join(messages)}")
            raise wrong("\n".join(lines)) from None
        except ValueError as error:
            raise wrong(error) from None

    def _do(self, asked: Namespace) -> None:
        """Do what was asked for; nothing but ``list`` and ``add`` works without a schedule of that name.

        Raises:
            UnknownSchedule: There is none of that name.
            ValidationError, ValueError, CommandError: As `_save`.
        """
        if asked.action == "list":
            self._list(as_json=asked.json)
            return
        if asked.action == "add":
            self._show_changed(self._save(EvaluationSchedule(name=asked.name), asked, is_new=True), asked)
            return
        schedule = find_schedule(asked.name)
        if asked.action == "change":
            self._show_changed(self._save(schedule, asked, is_new=False), asked)
        elif asked.action == "fire":
            self._show_fired(fire_now(schedule), as_json=asked.json)
        elif asked.action == "remove":
            self._remove(schedule, as_json=asked.json)
        else:
            schedule.is_active = asked.action == "resume"
            schedule.save(update_fields=["is_active"])
            self._show_changed(schedule, asked)

    def _save(self, schedule: EvaluationSchedule, asked: Namespace, *, is_new: bool) -> EvaluationSchedule:
        """Store the schedule with what was asked for; a new one also with the defaults that depend on the time and the period.

        Raises:
            ValidationError: A field cannot be so.
            ValueError, CommandError: An option cannot be read; names it.
        """
        # An option that is given empty sets the default again; one that is not given changes nothing.
        if is_new or asked.every is not None:
            try:
                schedule.every_minutes = parse_every(asked.every or "1d")
            except ValueError as error:
                raise wrong(f"--every {error}") from None
        if is_new or asked.at is not None:
            try:
                schedule.next_at = first_time(asked.at) if asked.at else timezone.now()
            except ValueError as error:
                raise wrong(f"--at {error}") from None
        if is_new or asked.window is not None:
            schedule.window = asked.window or default_window(schedule.every_minutes)
        if asked.dimensions is not None:
            named = [name.strip() for name in asked.dimensions.split(",") if name.strip()]
            schedule.dimensions = [] if named == ["all"] else named
        if asked.where is not None:
            schedule.where = tag_pairs(asked.where)
        if asked.additional_context == Path():  # of an empty text
            schedule.additional_context = {}
        elif asked.additional_context is not None:
            background = {"additional_context": asked.additional_context}
            schedule.additional_context = read_options(EvaluationRequest, background).additional_context
        if asked.batch:
            check_batches(asked.judge or schedule.judge or str(settings.JUDGE_MODEL))
        fields = {"samples": asked.samples, "judge": asked.judge, "drift_limit": asked.limit, "batch": asked.batch}
        for field, value in fields.items():
            if value is not None:
                setattr(schedule, field, value)
        return save_schedule(schedule, agents=self._agents_asked(asked.agents))

    def _agents_asked(self, slugs: str | None) -> list[Agent] | None:
        """Return the agents named; an empty list means all that are active, None that the option was not given."""
        if slugs is None:
            return None
        if slugs.strip().lower() == "all":
            return []
        return list(find_agents(slugs))

    def _remove(self, schedule: EvaluationSchedule, *, as_json: bool) -> None:
        """Delete a schedule, and print what it was."""
        document = schedule_json(schedule)
        schedule.delete()
        if as_json:
            self._print_json({"removed": document})
        else:
            self.stdout.write(f"Removed {schedule.name}. What it measured stays.")

    def _show_changed(self, schedule: EvaluationSchedule, asked: Namespace) -> None:
        """Print a schedule after a change, with a note where drift is tested more rarely than it measures, or not at all."""
        note = overlap_note(schedule)
        if asked.json:
            document: dict[str, Any] = {"schedule": schedule_json(schedule)}
            if note:
                document["note"] = note
            self._print_json(document)
            return
        self._print_table([schedule])
        if note:
            console_on(self.stdout).print(escape(note))

    def _list(self, *, as_json: bool) -> None:
        """Print all schedules."""
        schedules = list(EvaluationSchedule.objects.prefetch_related("agents"))
        if as_json:
            self._print_json({"schedules": [schedule_json(schedule) for schedule in schedules]})
        elif schedules:
            self._print_table(schedules)
        else:
            self.stdout.write("No schedules yet. Make one: manage.py schedule add nightly --every 1d --at 03:00")

    def _show_fired(self, fired: Fired, *, as_json: bool) -> None:
        """Print what came of firing a schedule."""
        if as_json:
            runs = [{"agent": run.agent.slug if run.agent else None, "evaluation_run": run.pk} for run in fired.runs]
            self._print_json({"schedule": fired.schedule.name, "runs": runs, "skipped": fired.skipped})
        else:
            self.stdout.write(f"{fired.outcome}. `manage.py work` makes the measurements.")

    def _print_json(self, document: dict[str, Any]) -> None:
        self.stdout.write(as_text(document))

    def _print_table(self, schedules: list[EvaluationSchedule]) -> None:
        """Print a line per schedule, then what it did last."""
        rows = [
            (
                schedule.name,
                ", ".join(agent.slug for agent in schedule.agents.all()) or "all",
                ", ".join(schedule.dimensions) or "all",
                schedule.window,
                every_name(schedule.every_minutes),
                f"{schedule.drift_limit:g}",
                time_text(schedule.next_at) if schedule.is_active else "paused",
            )
            for schedule in schedules
        ]
        console = console_on(self.stdout)
        next_fire = f"Next ({timezone.get_default_timezone_name()})"
        print_table(
            console,
            ("Schedule", "Agents", "Dimensions", "Window", "Every", ">Limit, points", next_fire),
            rows,
            tight=True,
        )
        for schedule in schedules:
            if schedule.last_fired_at:
                console.print(escape(f"{schedule.name}, {time_text(schedule.last_fired_at)}: {schedule.last_outcome}"))
