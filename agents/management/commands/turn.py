"""``manage.py turn``: let an agent take a turn here and now, and show what happened."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from typing import Any

import sentry_sdk
from django.core.management.base import CommandError

from agents.kit.commands import FAILED, STOPPED, BaseCommand, printable, unanswered, unusable
from agents.kit.models import owner_name
from agents.kit.running import stopping_on_sigterm
from agents.models import Agent, Channel, Run
from agents.models.conversations import UnknownAgent, find_agent
from agents.turn import timeline
from agents.turn.orchestrator import TurnRefused, run_turn, start_turn

POLL = 0.5  # seconds between two tries while the agent is busy or a worker was faster


class Command(BaseCommand):
    help = (
        "Queue a turn of an agent, take it in this process, and print what happened as a timeline: steps, tools, stages, cost. "
        "Exit code: 0 the turn ended well, 1 it failed, 130 interrupted (it is back in the queue)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("agent", help="slug of the agent")
        parser.add_argument("--channel", required=True, metavar="SLUG", help="one of the agent's channels")
        parser.add_argument(
            "--prompt", default="", metavar="TEXT", help="what you ask of this turn; not said in the channel"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Queue a turn, take it here and print what happened; a turn that did not complete is then an error of the command."""
        agent = self._agent(options["agent"])
        run = self._queue(agent, options["channel"], options["prompt"])
        try:
            with stopping_on_sigterm():
                run = self._take(run, quiet=options["json"])
        except KeyboardInterrupt:
            raise CommandError(self._stopped(run), returncode=STOPPED) from None
        if options["json"]:
            self.stdout.write(json.dumps(timeline.as_json(run), ensure_ascii=False, indent=2))
        else:
            for line in timeline.lines(run):
                self.stdout.write(printable(line))
        if run.status != Run.Status.COMPLETED:
            raise unanswered(f"turn {run.pk} {run.get_status_display()}: {run.error}", otherwise=FAILED)

    def _agent(self, name: str) -> Agent:
        try:
            return find_agent(name)
        except UnknownAgent as error:
            raise unusable(error) from None

    def _queue(self, agent: Agent, slug: str, prompt: str) -> Run:
        """Return the queued turn; an error of the command where there is no such channel, or the agent may not speak there."""
        channel = Channel.objects.filter(slug=slug.removeprefix("#")).first()
        if channel is None:
            joined = Channel.objects.filter(memberships__agent=agent).order_by("slug").values_list("slug", flat=True)
            allowed = ", ".join(joined) or "none, it has joined no channel"
            raise unusable(f"no channel {slug!r}; allowed for {agent.slug}: {allowed}")
        try:
            return start_turn(agent=agent, channel=channel, prompt=prompt)
        except TurnRefused as error:
            raise unusable(error) from None

    def _take(self, run: Run, *, quiet: bool) -> Run:
        """Take the turn here, or wait for the worker that was faster, or until the agent's present turn has ended.

        Looks again every half second, without end; unless `quiet` it says once what it waits for.
        """
        owner = owner_name()
        has_said_so = False
        while True:
            with sentry_sdk.start_transaction(op="agents.command", name="turn"):
                run = run_turn(run, owner=owner)
            if run.status in Run.FINAL:
                return run
            if not has_said_so and not quiet:
                self.stderr.write(self._waiting_for(run))
                has_said_so = True
            time.sleep(POLL)

    def _stopped(self, run: Run) -> str:
        run.refresh_from_db()
        if run.status == Run.Status.RUNNING:
            return f"Stopped waiting. Turn {run.pk} goes on at {run.lease_owner}."
        return f"Stopped. Turn {run.pk} is back in the queue: `manage.py work` continues it."

    def _waiting_for(self, run: Run) -> str:
        if run.status == Run.Status.RUNNING:
            return f"Waiting: turn {run.pk} is held by {run.lease_owner}."
        other = Run.objects.filter(agent=run.agent, status=Run.Status.RUNNING).first()
        return f"Waiting: {run.agent} is taking another turn{f' ({other.pk})' if other else ''}."
