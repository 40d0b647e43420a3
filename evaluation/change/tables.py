"""The tables of comparisons and drift as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from agents.kit.registry import Table, export_of
from evaluation.change.models import Baseline, Change, DriftAlert, Evidence, JudgeSentinel, SentinelCheck

TABLES = (
    Table(
        model=Baseline,
        order=2,
        tab_of="evaluation.EvaluationRun",
        columns="pk agent dimension value passport_mark stale captured_at judge_mark",
        filters="dimension judge agent captured_at",
        fields=(
            (
                "",
                "agent dimension value judge_mark passport_mark simulated stale evaluation_run captured_at persona_digest",
            ),
        ),
        empty="Choose Capture baseline on an agent's page, or run manage.py capture_baseline --agents all; --dry-run shows the cost first.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        no_speech="judge",
    ),
    Table(
        model=Change,
        order=3,
        tab_of="evaluation.EvaluationRun",
        columns="pk agent dimension proposition outcome scores difference interval judged measured_at judge_mark",
        filters="current verdict dimension judge agent measured_at",
        fields=(
            (
                "",
                "agent dimension proposition outcome scores difference interval chance judged n_more inverted current",
            ),
            (
                "What was compared",
                "baseline_run=baseline_evaluation evaluation_run=evaluation measured_at computed_at judge_mark",
            ),
            ("The judge, as it was known then", "agreement labels"),
        ),
        empty="An evaluation makes them when it ends and the agent has a baseline by the same judge.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        export=export_of(
            "id=pk agent=agent.slug dimension proposition current verdict baseline candidate points low high p n baseline_n n_more scored "
            "baseline_scored unscored inverted judge procedure agreement labels baseline_run=baseline_run_id "
            "evaluation_run=evaluation_run_id measured_at since_tag since_value since_at"
        ),
        no_speech="judge proposition since_tag value baseline_course course",
        typed="since_value",
    ),
    Table(
        model=DriftAlert,
        operator="change",
        below="alerts.Alert",
        title="Drift alerts",
        empty="A schedule makes one when a score fell and stayed down; from its ninth measurement on it can tell. None is good news once "
        "schedules run.",
        columns="pk created_at=raised agent dimension change since=low_since schedule state judge_mark",
        filters="acknowledged dimension judge agent schedule created_at",
        fields=(
            (
                "",
                "agent dimension change since=low_since evaluation_run=noticed_in schedule judge_mark created_at=raised state",
            ),
        ),
        no_speech="judge",
        typed="note",
    ),
    Table(
        model=JudgeSentinel,
        operator="change",
        order=5,
        tab_of="evaluation.EvaluationRun",
        title="Sentinels",
        columns="pk=sentinel judge_mark state frozen reference",
        filters="judge",
        fields=(("", "judge_mark state frozen reference created_at"),),
        empty="A schedule whose judge is a model makes one: it asks some judgements again each time, to see that the judge did not change.",
        no_speech="judge items identity",
    ),
    Table(model=SentinelCheck, typed="error", no_speech="answers identity change"),
    Table(model=Evidence, no_speech="judge"),
)
