"""The tables of evaluation as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.erasure import keys_said_by
from agents.kit.models import LLMPayload
from agents.kit.registry import Erase, Export, Person, Table, export_of
from evaluation.models import (
    ChannelShare,
    EvaluationRun,
    EvaluationSchedule,
    EvaluationScore,
    Idea,
    IdeaPart,
    Job,
    PatternTimeout,
    Proposition,
)
from evaluation.runs.export import COLUMNS, TEXTS, score_rows


def _on_their_messages(person: Person) -> Q:
    return Q(message__in=keys_said_by(person)) | Q(compared_with__in=keys_said_by(person))


def _of_evaluations_there(person: Person) -> Q:
    there = EvaluationScore.objects.filter(
        Q(evaluation_run__channel__in=person.channels) | Q(message__channel__in=person.channels), call__isnull=False
    )
    return Q(call__in=there.order_by().values("call"))


TABLES = (
    Table(
        model=EvaluationRun,
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
            ("Digests", "persona_digest proposition_digest spec_digest"),
        ),
        empty="Choose Evaluate now or Capture baseline on an agent's page, or run manage.py capture_baseline --agents all.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        export=export_of(
            "id=pk agent=agent.slug channel=channel.slug status dimensions overall_score judge is_heuristic procedure repeats is_baseline "
            "window window_start window_end where history history_where samples sample_size seed simulated swap_test actor_model batch "
            "token_usage error persona_digest proposition_digest created_at started_at finished_at"
        ),
        erase=(
            Erase(columns="error additional_context figures where history_where", channel="channel", agent="agent"),
        ),
        no_speech="dimensions judge window history position_bins series_points proposition_digests actor_model swaps situations",
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
        order=1,
        tab_of="evaluation.EvaluationRun",
        title="Scores",
        columns="pk=score outcome claimed said why judge_mark",
        filters="run=evaluation_run? message? dimension status judge proposition_id height evaluation_run__agent message__tags "
        "evaluation_run__created_at",
        search="proposition_id*",
        empty="Evaluations make them: choose Evaluate now on an agent's page, or run manage.py evaluate.",
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
                columns="claim flaws reasoning justification recommendations reason context_snippet",
                channel="evaluation_run__channel message__channel",
                agent="evaluation_run__agent",
                blank=_on_their_messages,
            ),
            Erase(
                model=LLMPayload,
                columns="request reply tool_calls",
                agent="call__agent",
                blank=_of_evaluations_there,
                delete=True,
            ),
        ),
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
        empty="Add one to measure every day and be told of drift, or run manage.py schedule add nightly --every 1d.",
        deleting="Nothing is measured by it any more. Its evaluations and alerts stay, without its name; its series is not continued by "
        "another schedule. To keep it, pause it instead.",
        erase=(Erase(columns="name where last_outcome", report_only=True),),
        no_speech="dimensions window judge",
    ),
    Table(
        model=Job,
        order=6,
        tab_of="evaluation.EvaluationRun",
        title="Checks and suggestions",
        empty="A page that asks for suggestions, or checks a judge, makes one; a worker does it.",
        start=(
            ("Suggest propositions", "admin:evaluation_job_suggest", "evaluation.change_proposition"),
            ("Check a judge", "admin:evaluation_job_check", "evaluation.add_evaluationrun"),
        ),
        columns="pk=job kind state chosen created_by=asked_by created_at=asked_at",
        filters="kind status created_at",
        fields=(("", "kind state chosen created_by=asked_by created_at=asked_at started_at finished_at error"),),
        erase=(Erase(columns="result error", report_only=True),),
        no_speech="options",
    ),
    # Without a page of their own.
    Table(model=ChannelShare),
    Table(model=IdeaPart),
    Table(
        model=Idea,
        erase=(
            Erase(
                columns="idea description",
                channel="part__evaluation_score__evaluation_run__channel",
                agent="part__evaluation_score__evaluation_run__agent",
            ),
        ),
        no_speech="positions",
    ),
    Table(model=PatternTimeout, no_speech="proposition_id pattern"),
)
