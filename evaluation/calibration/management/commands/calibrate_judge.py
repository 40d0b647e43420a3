"""``manage.py calibrate_judge``: how well does a judge agree with people?"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management.base import CommandError
from rich.console import Console

from agents.kit.commands import NOT_ENOUGH, CodedCommand, console_on, print_table, unusable, wrong
from agents.kit.text.wording import counted
from agents.models.conversations import UnknownAgent, find_agents
from evaluation.calibration.agreement import JudgeAgreement, compute_agreement, labelled_keys, labels_of
from evaluation.calibration.few_shot import CannotTry, FewShotResult, JudgeDown, plan_trial, run_trial
from evaluation.calibration.label_files import LabelFileError, export_labels, export_template, import_labels, is_json
from evaluation.calibration.labels import NothingToDraw, check_dimension, draw_label_set
from evaluation.calibration.models import LabelSet
from evaluation.calibration.next_labels import draw_next
from evaluation.calibration.passport import passport_lines, passports
from evaluation.calibration.stored import refresh
from evaluation.commands import ProgressBar, as_text, estimate_line, measuring, spent_line
from evaluation.dimensions import OF_PERSONA
from evaluation.models import EvaluationRun, Method, procedure_fields
from evaluation.models.evaluations import FEW_SHOT_MARK
from evaluation.models.few_shot import LOSS
from evaluation.runs.numbers import Spending
from evaluation.runs.summary import spending_json
from evaluation.wording import judge_label

SOURCE = (
    "Prediction-powered mean: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, Science 382 (2023), 669–674; λ as in PPI++\n"
    "(Angelopoulos, Duchi & Zrnic, arXiv:2311.01453, 2023). It holds for the judgements its label set was drawn from."
)


class Command(CodedCommand):
    help = """How well a judge agrees with people: kappa, Spearman, Krippendorff's alpha and bias with intervals, per dimension.

  1. calibrate_judge --draw 80 --name first --dimension adherence    draws judgements at random
  2. people label them in the console (Quality › Labels), or in a file:
     --label-set first --template labels.csv, then --import labels.csv
  3. calibrate_judge                                                 prints the figures
  4. calibrate_judge --label-set first --next 20                     adds 20 judgements, spread over the judge's scores
  5. calibrate_judge --few-shot                                      does the judge agree better when it is shown labels?

People score the claim as written, 0 to 9, without seeing the judge's score. With 50 labels or more of a random draw there is
also a prediction-powered mean: what people would have given on average, from their labels and the judge's scores of the rest.

--few-shot asks the judge about each labelled message twice, without examples and with examples from labels of other conversations,
and prints kappa before and after. evaluate --few-shot then shows the judge examples; such scores compare with no others.

Exit code: 0 done, 2 there is nothing to calibrate or to draw from."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        add = parser.add_argument
        file: dict[str, Any] = {"type": Path, "metavar": "FILE"}
        add("--judge", help="only this judge (default: every judge with labels; to draw, the configured one)")
        add("--procedure", help=f"only this procedure (to draw, default: {Method.PLUMBLINE.value})")
        add("--dimension", help="only this dimension")
        add("--label-set", metavar="NAME", help="only the labels of this draw")
        add("--draw", type=int, metavar="N", help="draw N judgements at random as a new label set")
        add("--name", help="of the new label set")
        add("--agents", help="draw only from these agents, slugs separated by commas")
        add("--run", action="append", type=int, metavar="ID", help="draw only from this evaluation; repeatable")
        add("--seed", type=int, help="of the draw (default: 0)")
        add(
            "--next",
            type=int,
            metavar="N",
            help="draw N more judgements into the label set, spread over the judge's scores",
        )
        add("--few-shot", action="store_true", help="ask the judge with and without labelled examples, and compare")
        add("--dry-run", action="store_true", help="with --few-shot: print calls, tokens and cost, ask nothing")
        add("--template", **file, help="write the label set to be filled in, without the judge's scores")
        add("--import", dest="labels", **file, help="store labels from CSV or JSON lines (.jsonl)")
        add("--annotator", help="for rows of the file that name none, and in the template")
        add("--replace", action="store_true", help="labels of the file win over stored ones that differ")
        add("--export", **file, help="write the labels, CSV or (.jsonl) JSON lines")
        add("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the options ask for.

        Raises:
            CommandError: Nothing can be drawn or calibrated (exit code 2), a file or agent cannot be used, or options are wrong.
        """
        try:
            _check(options)
            if options["few_shot"]:
                self._try_examples(options)
            else:
                self._calibrate(options)
        except (NothingToDraw, CannotTry) as error:
            raise CommandError(str(error), returncode=NOT_ENOUGH) from None
        except (UnknownAgent, LabelFileError) as error:
            raise unusable(error) from None
        except ValueError as error:
            raise wrong(error) from None

    def _calibrate(self, options: dict[str, Any]) -> None:
        """Draw, import, write the template and export, as far as each is asked for; then print the figures, which are stored, too.

        Raises:
            CommandError: Nothing was drawn, imported or written as a template, and there are no figures; or a file cannot be written.
            ValueError: As `draw_label_set`.
            LabelFileError: As `import_labels`.
            UnknownAgent: An agent to draw from does not exist.
        """
        document: dict[str, Any] = {}
        label_set = self._find_label_set(options["label_set"]) if options["label_set"] else None
        shown_set = label_set  # figures of a set that was only just drawn are those of all labels
        if options["draw"] is not None:
            label_set = self._draw(options)
            document["label_set"] = _label_set_json(label_set)
        if options["next"] is not None and label_set is not None:
            self._draw_next(label_set, options)
            document["label_set"] = _label_set_json(label_set)
        if options["labels"]:
            document["imported"] = self._import(options)
        if options["template"] and label_set is not None:
            self._write_template(label_set, options)
        if options["export"]:
            self._export(label_set, options)
        filters = {name: options[name] for name in ("judge", "procedure", "dimension")}
        figures = _figures(filters, shown_set)
        did_something = bool(document) or bool(options["template"])
        document["calibrations"] = [agreement.model_dump() for agreement in figures]
        if options["json"]:
            self.stdout.write(as_text(document))
        elif figures:
            _print_tables(figures, console_on(self.stdout))
        if not figures and not did_something:
            raise CommandError(_nothing(options), returncode=NOT_ENOUGH)

    def _import(self, options: dict[str, Any]) -> dict[str, Any]:
        imported = import_labels(options["labels"], annotator=options["annotator"] or "", replace=options["replace"])
        self._say(str(imported), options)
        return asdict(imported)

    def _write_template(self, label_set: LabelSet, options: dict[str, Any]) -> None:
        """Write a label set to the file of ``--template``, to be filled in."""
        annotator = options["annotator"] or ""

        def write(out: IO[str], as_json: bool) -> int:
            return export_template(label_set, out, annotator=annotator, as_json=as_json)

        _write(options["template"], write)
        self._say(f"{options['template']}: fill in the column value, then --import it.", options)

    def _export(self, label_set: LabelSet | None, options: dict[str, Any]) -> None:
        """Write labels to the file of ``--export``: of this label set (None: of any), narrowed by judge, procedure and dimension."""
        filters = {name: options[name] for name in ("judge", "procedure", "dimension")}
        labels = labels_of(**filters, label_set=label_set)

        def write(out: IO[str], as_json: bool) -> int:
            return export_labels(labels, out, as_json=as_json)

        count = _write(options["export"], write)
        self._say(f"{options['export']}: {counted(count, 'label')} written.", options)

    def _draw(self, options: dict[str, Any]) -> LabelSet:
        """Draw a label set, say how many judgements it has, and how to label them.

        Raises:
            NothingToDraw, ValueError: As `draw_label_set`.
            UnknownAgent, CommandError: There is no such agent or evaluation.
        """
        label_set = draw_label_set(
            name=options["name"],
            judge=options["judge"] or str(settings.JUDGE_MODEL),
            procedure=options["procedure"] or Method.PLUMBLINE.value,
            dimension=options["dimension"],
            n=options["draw"],
            runs=_find_runs(options["run"]) if options["run"] else None,
            agents=find_agents(options["agents"]) if options["agents"] else None,
            seed=options["seed"] or 0,
        )
        drawn = label_set.drawn.count()
        fewer = (
            f" (there are no {options['draw']:,}; what exact rules scored needs no label)"
            if drawn < options["draw"]
            else ""
        )
        self._say(
            f"{label_set.name}: {drawn:,} judgements drawn{fewer} of {label_set.population_size:,} by {label_set.judge}, "
            f"{label_set.procedure}, {label_set.dimension}.\nLabel them in the console under Quality › Labels, or with "
            f"--label-set {label_set.name} --template FILE.",
            options,
        )
        return label_set

    def _draw_next(self, label_set: LabelSet, options: dict[str, Any]) -> None:
        """Add judgements to a label set, and say how many.

        Raises:
            NothingToDraw, ValueError: As `draw_next`.
        """
        added = draw_next(label_set=label_set, n=options["next"])
        self._say(
            f"{label_set.name}: {counted(added, 'judgement')} added, spread over the judge's scores; now "
            f"{label_set.drawn.count():,} of {label_set.population_size:,}.",
            options,
        )

    def _try_examples(self, options: dict[str, Any]) -> None:
        """Print what a trial of examples would cost; unless it is a dry run make it, and print agreement before and after.

        Raises:
            CannotTry, ValueError: As `plan_trial`.
            CommandError: The judge does not answer.
        """
        with measuring(stored="Nothing is stored of a trial that was stopped."):
            trial = plan_trial(
                judge=options["judge"] or str(settings.JUDGE_MODEL),
                procedure=options["procedure"] or Method.PLUMBLINE.value,
                dimension=options["dimension"] or OF_PERSONA,
            )
            estimate = trial.estimate()
            if options["dry_run"]:
                self._show_estimate(estimate, options)
                return
            self._say(estimate_line(estimate), options)
            with ProgressBar("Judging", sys.stderr, quiet=options["json"] and not sys.stderr.isatty()) as bar:
                task = bar.add_task("Judging", total=len(trial.questions))
                try:
                    result = run_trial(trial, done=lambda judged: bar.advance(task, judged))
                except JudgeDown as error:
                    raise unusable(error) from None
        if options["json"]:
            document = {"few_shot": result.model_dump(mode="json"), **spending_json(estimate, trial.spent())}
            self.stdout.write(as_text(document))
            return
        _print_trial(result, console_on(self.stdout))
        self._say(spent_line(estimate, trial.spent()), options)

    def _show_estimate(self, estimate: Spending, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(as_text({"estimate": estimate.model_dump()}))
        else:
            self.stdout.write(estimate_line(estimate))

    def _find_label_set(self, name: str) -> LabelSet:
        label_set = LabelSet.objects.filter(name=name).first()
        if label_set is None:
            names = ", ".join(LabelSet.objects.values_list("name", flat=True)[:20])
            raise unusable(f"--label-set {name!r}: there is none of that name; label sets: {names or 'none yet'}")
        return label_set

    def _say(self, text: str, options: dict[str, Any]) -> None:
        if not options["json"]:
            self.stdout.write(text)


def _check(options: dict[str, Any]) -> None:
    """Refuse options that do not go together, and a dimension or procedure that does not exist.

    Raises:
        ValueError: Says which.
    """
    draws = options["draw"] is not None
    draw_options = options["name"] or options["agents"] or options["run"] or options["seed"] is not None
    if draws and not (options["name"] and options["dimension"]):
        raise ValueError("--draw needs --name and --dimension")
    if draw_options and not draws:
        raise ValueError("--name, --agents, --run and --seed go with --draw N")
    if draws and options["label_set"]:
        raise ValueError("--draw makes a new label set, --label-set names one that exists")
    if options["next"] is not None and not options["label_set"]:
        raise ValueError("--next N goes with --label-set NAME")
    if options["dry_run"] and not options["few_shot"]:
        raise ValueError("--dry-run goes with --few-shot")
    if options["few_shot"]:
        _check_few_shot(options)
    if options["template"] and not draws and not options["label_set"]:
        raise ValueError("--template needs --label-set or --draw")
    if options["replace"] and not options["labels"]:
        raise ValueError("--replace goes with --import FILE")
    if options["annotator"] and not options["labels"] and not options["template"]:
        raise ValueError("--annotator goes with --import FILE or --template FILE")
    if options["dimension"]:
        check_dimension(options["dimension"])
    if options["procedure"]:
        procedure_fields(options["procedure"])  # raises where it does not exist


def _check_few_shot(options: dict[str, Any]) -> None:
    """Refuse what does something else than a trial of examples.

    Raises:
        ValueError: Says which.
    """
    others = ("label_set", "draw", "next", "labels", "template", "export", "annotator", "replace")
    other_options = [name for name in others if options[name] not in (None, False)]
    if other_options:
        names = ", ".join("--import" if name == "labels" else f"--{name.replace('_', '-')}" for name in other_options)
        raise ValueError(f"--few-shot goes with --judge, --procedure and --dimension, not with {names}")


def _find_runs(ids: Sequence[int]) -> list[EvaluationRun]:
    runs = EvaluationRun.objects.in_bulk(ids)
    missing = set(ids) - runs.keys()
    if missing:
        raise unusable(f"--run {', '.join(map(str, sorted(missing)))}: there is no such evaluation")
    return list(runs.values())


def _label_set_json(label_set: LabelSet) -> dict[str, Any]:
    fields = ("name", "judge", "procedure", "dimension", "population_size", "seed")
    return {**{field: getattr(label_set, field) for field in fields}, "drawn": label_set.drawn.count()}


def _figures(filters: dict[str, str | None], label_set: LabelSet | None) -> list[JudgeAgreement]:
    """Return the figures of every judge and dimension with labels; those of all labels are stored for the pages, too."""
    figures = []
    for key in labelled_keys(**filters, label_set=label_set):
        agreement = refresh(key)  # from all labels, and stored
        if label_set is not None:
            agreement = compute_agreement(**key._asdict(), label_set=label_set)
        figures.append(agreement)
    return figures


def _nothing(options: dict[str, Any]) -> str:
    """Say that nothing has labels, of what was asked for."""
    choices = [
        f"--{name.replace('_', '-')} {options[name]}"
        for name in ("judge", "procedure", "dimension", "label_set")
        if options[name]
    ]
    which = f" for {' '.join(choices)}" if choices else ""
    return f"nothing to calibrate: there are no labels{which}. --draw 80 --name NAME --dimension DIMENSION begins."


def _write(path: Path, write: Callable[[IO[str], bool], int]) -> int:
    try:
        with path.open("w", encoding="utf-8", newline="") as out:
            return write(out, is_json(path))
    except OSError as error:
        raise unusable(f"{path}: {error.strerror}") from None


def _print_trial(result: FewShotResult, console: Console) -> None:
    """Print agreement without and with examples and their difference, the verdict, and how to use the examples."""
    about = f"{counted(result.items, 'judgement')} of {counted(result.conversations, 'conversation')}"
    title = f"{judge_label(result.judge)} · {result.procedure} · {result.dimension}: {about}, {result.folds} folds"
    cells = [(name, figure.text, figure.interval_text, figure.n) for name, figure in result.rows()]
    print_table(
        console, ("Agreement with labels it was not shown", ">Value", "95 % interval", ">n"), cells, title=title
    )
    lines = [result.sentence]
    if result.items < result.labelled:
        left_out = counted(result.labelled - result.items, "labelled judgement")
        lines.append(f"{left_out} not scored both times: in no figure.")
    if result.verdict == LOSS:
        lines.append("evaluate and capture_baseline refuse these examples.")
    else:
        lines.append(
            f"evaluate and capture_baseline --few-shot show the judge {counted(result.examples, 'example')}; the procedure is then "
            f"{result.procedure}+{FEW_SHOT_MARK}{result.digest} and needs a baseline and labels of its own."
        )
    console.print("\n".join(lines), markup=False)


def _print_tables(figures: Sequence[JudgeAgreement], console: Console) -> None:
    """Print a table per judge and dimension: each figure with its interval, notes, what is too little, and the judge's passport.

    Below all of them stands the source of the prediction-powered mean, where there is one.
    """
    for agreement in figures:
        people = counted(agreement.annotators, "annotator")
        about = f"{counted(agreement.labels, 'label')} of {counted(agreement.items, 'judgement')} by {people}"
        title = f"{judge_label(agreement.judge)} · {agreement.procedure} · {agreement.dimension}: {about}"
        cells = [(name, figure.text, figure.interval_text, figure.n) for name, _, figure in agreement.rows()]
        print_table(console, ("Agreement of judge and people", ">Value", "95 % interval", ">n"), cells, title=title)
        lines = agreement.notes()
        if agreement.needed:
            lines += ["To say more:", *(f"  • {needed}" for needed in agreement.needed)]
        lines += passport_lines(passports(agreement.judge, agreement.procedure, [agreement.dimension]))
        console.print("\n".join(lines) + "\n", markup=False)
    means = [powered.mean for agreement in figures for powered in agreement.prediction_powered]
    if any(mean.value is not None for mean in means):
        console.print(SOURCE)
