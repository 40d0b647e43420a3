"""The tables of experiments as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from agents.kit.erasing import Erase, there
from agents.kit.registry import Table, export_of
from evaluation.experiments.models import EnvironmentEvaluation, Experiment, ExperimentEnvironment

TABLES = (
    Table(
        model=Experiment,
        operator="add change",
        menu="Quality",
        icon="science",
        empty="Play one with manage.py experiment run gate-on-off; manage.py experiment list names the scenarios that come with Plumbline.",
        columns="pk name state created_by=started_by created_at=started judge",
        filters="judge created_at",
        fields=(
            (
                "",
                "state paused name judge actor_model seed created_by=started_by created_at=started measured_at cancelled_at "
                "error",
            ),
            ("What is played", "scenario"),
        ),
        search="name*",
        deleting="Its conversations stay, marked synthetic; its evaluations stay, too.",
        export=export_of(
            "id=pk name state judge actor_model seed started_by=created_by.username created_at measured_at cancelled_at"
        ),
        typed="scenario error paused",
        no_speech="name judge actor_model report",
    ),
    Table(
        model=ExperimentEnvironment,
        erase=(Erase(columns="error missing", rows=(there("channel", at="finished_at"),), keep="agent"),),
        no_speech="arm agents counters figures answers",
    ),
    Table(model=EnvironmentEvaluation),
)
