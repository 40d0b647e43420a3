"""``manage.py calibrate_judge``: how well does a judge agree with people?"""

from __future__ import annotations

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management.base import CommandError
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.commands import NOT_ENOUGH, WRONG_USAGE, CodedCommand, console_on
from evaluation.calibration.agreement import (
    Calibration,
    calibration,
    figure_rows,
    interval_text,
    labelled_keys,
    labels_of,
    notes_of,
    refresh,
    value_text,
)
from evaluation.calibration.label_files import (
    LabelFileError,
    export_labels,
    export_template,
    import_labels,
)
from evaluation.calibration.population import NothingToDraw, check_dimension, draw_label_set, procedure_fields
from evaluation.models import EvaluationRun, LabelSet, Method
from evaluation.runs.capture import UnknownAgents, choose_agents
from evaluation.wording import counted, judge_label

SOURCE = (
    "Prediction-powered mean: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, Science 382 (2023), 669–674; λ as in PPI++\n"
    "(Angelopoulos, Duchi & Zrnic, arXiv:2311.01453, 2023). It holds for the judgements its label set was drawn from."
)


class Command(CodedCommand):
    help = """How well a judge agrees with people: kappa, Spearman, Krippendorff's alpha and bias with intervals, per dimension.

  1. calibrate_judge --draw 80 --name first --dimension adherence    draws judgements at random
  2. people label them in the console (Label sets), or in a file:
     --label-set first --template labels.csv, then --import labels.csv
  3. calibrate_judge                                                 prints the figures

People score the claim as written, 0 to 9, without seeing the judge's score. With 50 labels or more of a random draw there is
also a prediction-powered mean: what people would have given on average, from their labels and the judge's scores of the rest.

Exit code: 0 done, 2 there is nothing to calibrate or to draw from, 3 wrong usage."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.add_argument(
            "--judge", help="only this judge (default: every judge with labels; to draw, the configured one)"
        )
        parser.add_argument("--procedure", help=f"only this procedure (to draw, default: {Method.PLUMBLINE.value})")
        parser.add_argument("--dimension", help="only this dimension")
        parser.add_argument("--label-set", metavar="NAME", help="only the labels of this draw")
        parser.add_argument("--draw", type=int, metavar="N", help="draw N judgements at random as a new label set")
        parser.add_argument("--name", help="of the new label set")
        parser.add_argument("--agents", help="draw only from these agents, slugs separated by commas")
        parser.add_argument(
            "--run", action="append", type=int, metavar="ID", help="draw only from this evaluation; repeatable"
        )
        parser.add_argument("--seed", type=int, help="of the draw (default: 0)")
        parser.add_argument(
            "--template",
            type=Path,
            metavar="FILE",
            help="write the label set to be filled in, without the judge's scores",
        )
        parser.add_argument("--import", dest="labels", type=Path, metavar="FILE", help="store labels from CSV or JSONL")
        parser.add_argument("--annotator", help="for rows of the file that name none, and in the template")
        parser.add_argument(
            "--replace", action="store_true", help="labels of the file win over stored ones that differ"
        )
        parser.add_argument("--export", type=Path, metavar="FILE", help="write the labels, CSV or (.jsonl) JSON lines")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._check(options)
            self._work(options)
        except (ValueError, UnknownAgents, LabelFileError) as error:
            code = NOT_ENOUGH if isinstance(error, NothingToDraw) else WRONG_USAGE
            raise CommandError(str(error), returncode=code) from None

    def _check(self, options: dict[str, Any]) -> None:
        drawing = options["draw"] is not None
        if drawing and not (options["name"] and options["dimension"]):
            raise ValueError("--draw needs --name NAME and --dimension DIMENSION")
        if not drawing and (options["name"] or options["agents"] or options["run"] or options["seed"] is not None):
            raise ValueError("--name, --agents, --run and --seed go with --draw N")
        if drawing and options["label_set"]:
            raise ValueError("--draw makes a new label set, --label-set names one that exists: use one of the two")
        if options["template"] and not (drawing or options["label_set"]):
            raise ValueError("--template needs --label-set NAME, or --draw N")
        if options["replace"] and not options["labels"]:
            raise ValueError("--replace goes with --import FILE")
        if options["annotator"] and not (options["labels"] or options["template"]):
            raise ValueError("--annotator goes with --import FILE or --template FILE")
        if options["dimension"]:
            check_dimension(options["dimension"])
        if options["procedure"]:
            procedure_fields(options["procedure"])

    def _work(self, options: dict[str, Any]) -> None:
        document: dict[str, Any] = {}
        label_set = self._named(options["label_set"]) if options["label_set"] else None
        if options["draw"] is not None:
            label_set = self._drawn(options)
            fields = ("name", "judge", "procedure", "dimension", "population_size", "seed")
            document["label_set"] = {name: getattr(label_set, name) for name in fields}
            document["label_set"]["drawn"] = label_set.drawn.count()
        if options["labels"]:
            done = import_labels(options["labels"], annotator=options["annotator"] or "", replace=options["replace"])
            counts = ("path", "added", "replaced", "unchanged", "empty")
            document["imported"] = {name: getattr(done, name) for name in counts}
            self._say(str(done), options)
        if options["template"] and label_set is not None:
            which, name = label_set, options["annotator"] or ""
            self._write(
                options["template"], lambda out, lines: export_template(which, out, annotator=name, as_json=lines)
            )
            self._say(f"{options['template']}: fill in the column value, then --import it.", options)
        filters = {"judge": options["judge"], "procedure": options["procedure"], "dimension": options["dimension"]}
        only = None if options["draw"] is not None else label_set
        if options["export"]:
            labels = labels_of(**filters, label_set=label_set)
            count = self._write(options["export"], lambda out, lines: export_labels(labels, out, as_json=lines))
            self._say(f"{options['export']}: {counted(count, 'label')} written.", options)
        figures = self._figures(filters, only)
        document["calibrations"] = [row.model_dump() for row in figures]
        if options["json"]:
            self.stdout.write(json.dumps(document, ensure_ascii=False, indent=2))
        elif figures:
            _print_tables(figures, console_on(self.stdout))
        if not figures and not (set(document) - {"calibrations"} or options["template"]):
            raise CommandError(_nothing(options), returncode=NOT_ENOUGH)

    def _figures(self, filters: dict[str, str | None], label_set: LabelSet | None) -> list[Calibration]:
        """The figures of every judge and dimension with labels; they are stored for the pages, too."""
        figures = []
        for key in labelled_keys(**filters, label_set=label_set):
            whole = refresh(key)
            figures.append(whole if label_set is None else calibration(**key._asdict(), label_set=label_set))
        return figures

    def _drawn(self, options: dict[str, Any]) -> LabelSet:
        runs = None if options["run"] is None else list(EvaluationRun.objects.filter(pk__in=options["run"]))
        if runs is not None and (missing := set(options["run"]) - {run.pk for run in runs}):
            raise ValueError(f"--run {', '.join(map(str, sorted(missing)))}: there is no such evaluation")
        label_set = draw_label_set(
            name=options["name"],
            judge=options["judge"] or str(settings.JUDGE_MODEL),
            procedure=options["procedure"] or Method.PLUMBLINE.value,
            dimension=options["dimension"],
            n=options["draw"],
            runs=runs,
            agents=choose_agents(options["agents"]) if options["agents"] else None,
            seed=options["seed"] or 0,
        )
        drawn = label_set.drawn.count()
        fewer = f" (there are no {options['draw']:,})" if drawn < options["draw"] else ""
        self._say(
            f"{label_set.name}: {drawn:,} judgements drawn{fewer} of {label_set.population_size:,} by {label_set.judge}, "
            f"{label_set.procedure}, {label_set.dimension}.\nLabel them in the console under Label sets, or with "
            f"--label-set {label_set.name} --template FILE.",
            options,
        )
        return label_set

    def _named(self, name: str) -> LabelSet:
        label_set = LabelSet.objects.filter(name=name).first()
        if label_set is None:
            known = ", ".join(LabelSet.objects.values_list("name", flat=True)[:20])
            raise ValueError(f"--label-set {name!r}: there is none of that name; label sets: {known or 'none yet'}")
        return label_set

    def _write(self, path: Path, write: Callable[[IO[str], bool], int]) -> int:
        try:
            with path.open("w", encoding="utf-8", newline="") as out:
                return write(out, path.suffix.lower() in (".jsonl", ".ndjson", ".json"))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None

    def _say(self, text: str, options: dict[str, Any]) -> None:
        if not options["json"]:
            self.stdout.write(text)


def _nothing(options: dict[str, Any]) -> str:
    asked = [f"--{name} {options[name]}" for name in ("judge", "procedure", "dimension") if options[name]]
    asked += [f"--label-set {options['label_set']}"] if options["label_set"] else []
    which = f" for {' '.join(asked)}" if asked else ""
    return f"nothing to calibrate: there are no labels{which}. --draw 80 --name NAME --dimension DIMENSION begins."


def _print_tables(figures: Sequence[Calibration], console: Console) -> None:
    """A table per judge and dimension: each figure with its interval, then what is too little."""
    powered = False
    for row in figures:
        details = row.model_dump()
        people = counted(row.annotators, "annotator")
        title = f"{judge_label(row.judge)} · {row.procedure} · {row.dimension}"
        caption = f"{counted(row.labels, 'label')} of {counted(row.items, 'judgement')} by {people}"
        table = Table(title=escape(f"{title}: {caption}"), box=box.SIMPLE_HEAD, title_justify="left")
        table.add_column("Agreement of judge and people")
        table.add_column("Value", justify="right", no_wrap=True)
        table.add_column("95 % interval")
        table.add_column("n", justify="right")
        for name, _, figure in figure_rows(details):
            table.add_row(escape(name), value_text(figure), escape(interval_text(figure)), str(figure["n"]))
        console.print(table)
        for sentence in notes_of(details):
            console.print(escape(sentence))
        if row.needed:
            console.print("To say more:")
        for needed in row.needed:
            console.print(f"  • {escape(needed)}")
        console.print()
        powered = powered or any(mean.mean.value is not None for mean in row.prediction_powered)
    if powered:
        console.print(SOURCE)
