"""``manage.py bench_behavior FILE``: how well the judge tells behaviour requests from other messages."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from agents.kit.commands import CodedCommand, unanswered, unusable
from agents.kit.llm.endpoints import model_of
from agents.kit.text.wording import counted
from correction.behavior.bench import figures_of, judge_cases, read_cases, show
from evaluation.commands import as_text
from evaluation.models import is_heuristic
from evaluation.wording import cost_line, judge_label, spent_json


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
        try:
            cases = read_cases(options["file"])
        except ValueError as error:
            raise unusable(error) from None
        judge = model_of("judge")
        judged, spent = judge_cases(cases)
        if options["json"]:
            by = {"judge": judge, "heuristic": is_heuristic(judge)}
            rows = [one.model_dump(mode="json") for one in judged]
            self.stdout.write(as_text({**figures_of(judged), **by, **spent_json(spent), "cases": rows}))
        else:
            self.stdout.write(f"{counted(len(judged), 'message')} judged by {judge_label(judge)}")
            show(judged, self.stdout)
            self.stdout.write(cost_line(spent))
        unscored = [one for one in judged if one.found is None]
        if unscored:
            few = f"{len(unscored)} of {len(judged)} messages could not be judged: {unscored[0].why}"
            raise unanswered(few)
