"""The tables of evaluation as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from agents.kit.erasing import Derived, Erase, of_agents, there
from agents.kit.registry import Export, Table, export_of
from evaluation.models import (
    ChannelShare,
    EvaluationRun,
    EvaluationSchedule,
    EvaluationScore,
    FewShotExamples,
    Idea,
    IdeaPart,
    Job,
    PatternTimeout,
    Proposition,
)
from evaluation.runs.export import COLUMNS, TEXTS, score_rows


def scores_there(path: str = "") -> tuple[Derived, ...]:
    """Choose the judgements that are erased with a person: of what was said where they spoke, if judged after they first did.

    These are judgements of messages there, of pairs whose earlier message is there, in evaluations of these channels; and of whole windows
    of the agents that spoke there.

    Args:
        path: From the table to the judgement, e.g. ``evaluation_score__``.
    """
    judged_at = f"{path}judged_at"
    only_windows = {f"{path}message": None, f"{path}evaluation_run__channel": None}
    return (
        there(f"{path}message__channel", at=judged_at),
        there(f"{path}compared_with__channel", at=judged_at),
        there(f"{path}evaluation_run__channel", at=judged_at),
        of_agents(f"{path}evaluation_run__agent", at=judged_at, **only_windows),
    )


TABLES = (
    Table(
        model=EvaluationRun,
        has_saved_views=True,
        operator="add change",
        menu="Quality",
        icon="straighten",
        title="Evaluations",
        columns="name status measured overall judged spent judge",
        filters="part_of=agent_runs? status judge is_baseline dimension error agent where created_at",
        fields=(
            (
                "What was asked",
                "dimension_badges window window_start=earliest_message window_end=latest_message where=tags_asked_for history "
                "history_where=tags_of_the_history samples sample_size seed per_call procedure_mark repeats additional_context",
            ),
            ("Times", "created_at started_at finished_at attempt lease_owner"),
            (
                "Digests",
                "judge_endpoint served_models=models_that_answered prompt_digest persona_digest proposition_digest spec_digest",
            ),
        ),
        empty="Choose Evaluate or Capture baseline on an agent's page, or run manage.py capture_baseline --agents all.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        export=export_of(
            "id=pk agent=agent.slug channel=channel.slug status dimensions overall_score judge is_heuristic procedure repeats is_baseline "
            "window window_start window_end where history history_where samples sample_size seed simulated swap_test actor_model batch "
            "token_usage error judge_endpoint served_models prompt_digest persona_digest proposition_digest created_at started_at "
            "finished_at"
        ),
        erase=(
            Erase(
                columns="error",
                rows=(there("channel", at="finished_at"), of_agents("agent", at="finished_at", channel=None)),
            ),
        ),
        typed="additional_context where history_where",
        no_speech="figures dimensions judge judge_endpoint served_models few_shot window history position_bins series_points "
        "proposition_digests actor_model swaps situations",
    ),
    Table(
        model=Proposition,
        editor="*",
        menu="Quality",
        icon="edit_note",
        empty="Write what to measure of an agent here. With a model, manage.py draft_propositions --agents all suggests it from the "
        "personas.",
    ),
    Table(
        model=EvaluationScore,
        below="evaluation.EvaluationRun",
        title="Scores",
        columns="pk=score outcome claimed judged why judge_mark",
        filters="run=evaluation_run? message? dimension status judge proposition_id height evaluation_run__agent message__tags "
        "evaluation_run__created_at",
        search="proposition_id*",
        empty="Evaluations make them: choose Evaluate on an agent's page, or run manage.py evaluate.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        fields=(
            ("", "outcome reason dimension judge who evaluation_run judged_at"),
            ("Proposition", "proposition claim weight inverted"),
            ("What was judged", "message_link earlier_link context_snippet=snippet repeat"),
            (
                "The judge's answer",
                "score count first_score raw_score flaw_list evidence confidence reasoning justification recommendations served_model call",
            ),
        ),
        export=Export(columns=COLUMNS, rows=score_rows, texts=TEXTS),
        erase=(
            Erase(
                columns="flaws reasoning justification recommendations reason context_snippet",
                rows=scores_there(),
            ),
        ),
        typed="claim",
        no_speech="proposition_id judge served_model evidence cause",
    ),
    Table(
        model=EvaluationSchedule,
        editor="*",
        order=3,
        tab_of="evaluation.EvaluationRun",
        title="Schedules",
        columns="name_and_state whom what how due outcome",
        filters="is_active",
        search="name*",
        empty="Add one to measure every day and be alerted to drift, or run manage.py schedule add nightly --every 1d.",
        deleting="Nothing is measured by it any more. Its evaluations and alerts stay, without its name; its series is not continued by "
        "another schedule. To keep it, pause it instead.",
        typed="name where additional_context last_outcome",
        no_speech="dimensions window judge",
    ),
    # Without a list of their own.
    Table(model=Job, typed="result error", no_speech="options"),
    Table(model=ChannelShare),
    Table(model=IdeaPart),
    Table(
        model=Idea,
        erase=(Erase(columns="idea description", rows=scores_there("part__evaluation_score__")),),
        no_speech="positions",
    ),
    Table(model=FewShotExamples, no_speech="judge scores figures"),
    Table(model=PatternTimeout, no_speech="proposition_id pattern"),
)
