"""What measuring shows on the console's first page: the newest evaluations, and files that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.home import FAILURE_DAYS, HomePart, add_home, listing, since, step
from evaluation.admin.display import evaluation_link, judge_badge, overall_meter, target
from evaluation.models import EvaluationRun
from evaluation.propositions.files import file_problems
from evaluation.runs.summary import dimension_scores, shares_of, total

NAMED = 4  # mistakes
RUNS = 6
WENT_WRONG = (EvaluationRun.Status.FAILED, EvaluationRun.Status.ERRORED, EvaluationRun.Status.PAUSED_BUDGET)


def runs_list(request: HttpRequest) -> SafeString:
    """The newest evaluations, and the newest that failed or paused."""
    url = display.list_url(EvaluationRun)
    rows = EvaluationRun.objects.select_related("agent", "channel").defer(
        "figures", "proposition_digests", "additional_context", "swaps"
    )
    wrong = rows.filter(status__in=WENT_WRONG, created_at__gte=since(24 * FAILURE_DAYS)).order_by("-created_at")[:RUNS]
    newest, failed = list(rows.filter(agent_shares=None).order_by("-pk")[:RUNS]), list(wrong)
    judges = {run.judge for run in (*newest, *failed)}
    return listing(
        "Evaluations",
        heads=("Evaluation", "Of whom", "Status, overall score"),
        rows=_shown(newest, names_judge=len(judges) > 1),
        wrong=_shown(failed, names_judge=len(judges) > 1),
        note=judge_badge(*judges) if len(judges) == 1 else "",
        more=((url, "All evaluations"), (f"{url}?status__in={','.join(WENT_WRONG)}", "All that failed or paused")),
        empty="Nothing was measured yet. This measures every agent:",
        command="manage.py capture_baseline --agents all",
    )


def _shown(runs: Sequence[EvaluationRun], *, names_judge: bool) -> list[tuple[object, ...]]:
    shares, scores = shares_of([run.pk for run in runs]), dimension_scores(runs)
    rows: list[tuple[object, ...]] = []
    for run in runs:
        state = display.status_badge(run)
        score = overall_meter(run.overall_score, scores.get(run.pk, {}), share=total(shares[run.pk].values()))
        said = display.lines(format_html("{} {}", state, score), judge_badge(run.judge) if names_judge else "")
        if run.error:
            said = format_html("{} {}", state, display.folded(run.error, 90))
        rows.append((display.lines(evaluation_link(run.pk), display.moment(run.created_at)), target(run), said))
    return rows


def files_unusable(request: HttpRequest) -> SafeString | None:
    """Proposition files with mistakes: what needs them cannot be measured until they are corrected."""
    problems = file_problems()
    if not problems:
        return None
    text = display.visible("; ".join(str(problem) for problem in problems[:NAMED]))
    return step("Proposition files cannot be used", text, command="manage.py check_propositions")


add_home(
    HomePart(place="setup", order=45, permission="evaluation.view_proposition", render=files_unusable),
    HomePart(place="lists", order=20, permission="evaluation.view_evaluationrun", render=runs_list),
)
