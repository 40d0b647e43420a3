"""``manage.py export_scores``: every judgement as a row."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.db.models import Q

from agents.kit.commands import BaseCommand, unusable
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.change.models import Baseline
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.export import write_csv, write_jsonl


class Command(BaseCommand):
    help = "Export judgements, one row per message and proposition. Default: the current baselines of agents, and their channels."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=["csv", "jsonl"], default="csv", help="default: csv")
        parser.add_argument("--out", type=Path, metavar="FILE", help="write here instead of standard output")
        parser.add_argument(
            "--run", action="append", type=int, default=[], metavar="ID", help="only this evaluation run; repeatable"
        )
        parser.add_argument("--agents", default="", help="only these agents, slugs separated by commas")
        parser.add_argument("--all", action="store_true", help="all runs, not only current baselines")

    def handle(self, *args: Any, **options: Any) -> None:
        scores = EvaluationScore.objects.exclude(status=EvaluationScore.Status.PENDING)
        if options["run"]:
            missing = set(options["run"]) - EvaluationRun.objects.in_bulk(options["run"]).keys()
            if missing:
                raise unusable(f"--run {', '.join(map(str, sorted(missing)))}: there is no such evaluation run")
            scores = scores.filter(evaluation_run__in=options["run"])
        elif not options["all"]:
            current = Baseline.objects.values("evaluation_run")
            channels = ChannelShare.objects.filter(agent_run__in=current).values("channel_run")
            scores = scores.filter(Q(evaluation_run__in=current) | Q(evaluation_run__in=channels))
        if options["agents"]:
            try:
                agents = find_agents(options["agents"])
                theirs = ChannelShare.objects.filter(agent_run__agent__in=agents).values("channel_run")
                scores = scores.filter(Q(evaluation_run__agent__in=agents) | Q(evaluation_run__in=theirs))
            except UnknownAgent as error:
                raise unusable(error) from None
        write = write_csv if options["format"] == "csv" else write_jsonl
        if options["out"] is None:
            write(scores, sys.stdout)
            return
        try:
            with options["out"].open("w", encoding="utf-8", newline="") as out:
                count = write(scores, out)
        except OSError as error:
            raise unusable(f"--out {options['out']}: {error}") from None
        self.stderr.write(f"{count} rows written to {options['out']}.")
