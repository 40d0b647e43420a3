"""The tables of voice line-ups as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from agents.kit.erasing import Erase, there
from agents.kit.registry import Table
from evaluation.lineup.models import LineUpRun

TABLES = (
    Table(
        model=LineUpRun,
        order=5,
        tab_of="evaluation.EvaluationRun",
        operator="add",
        empty="Choose Measure voices on a channel's page, or run manage.py lineup --channel CHANNEL.",
        start=(("Choose a channel", "admin:agents_channel_changelist", "agents.view_channel"),),
        columns="pk channel status accuracy finished_at=measured",
        filters="status created_at",
        fields=(("", "channel status window where=tags_asked_for error finished_at=measured"),),
        erase=(Erase(columns="result error", rows=(there("channel"),), keep="channel speaker taken_for"),),
        typed="where",
        no_speech="window options",
    ),
)
