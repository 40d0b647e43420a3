"""Text from agents, users and files is shown on every page of the console, and never run."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from django.contrib import admin
from django.db import DataError, IntegrityError, transaction
from django.db.models import CharField, TextField
from django.test import Client
from django.urls import reverse

from agents.kit.registry import tables
from agents.models import Agent, Channel
from tests.console import HOSTILE, list_of, page_of
from tests.listed_rows import MAKERS, people

pytestmark = pytest.mark.django_db


def make_everything_hostile() -> None:
    """Two rows of each table, with hostile text in every column that any text may stand in."""
    cast = people()
    for make in MAKERS.values():
        make(cast, 0, 2)
    for model in tables():
        for field in model._meta.concrete_fields:
            if type(field) in (CharField, TextField) and not field.choices and field.name not in OURS:
                with (
                    suppress(IntegrityError, DataError),
                    transaction.atomic(),
                ):  # a name that must differ, or a row's own kind
                    model._default_manager.exclude(**{field.name: ""}).update(**{field.name: HOSTILE})


# What the code itself writes and looks up again.
OURS = {
    *(
        "judge",
        "procedure",
        "dimension",
        "dimensions",
        "model",
        "provider",
        "window",
        "history",
        "function",
        "lease_owner",
        "password",
    ),
    *("base_url", "username", "path", "method", "status", "name_of_sums", "key"),
}


@pytest.mark.slow
def test_hostile_text_is_shown_and_never_run(root: Client) -> None:
    make_everything_hostile()
    agent, channel = Agent.objects.earliest("pk"), Channel.objects.earliest("pk")
    pages = [page_of(agent, view) for view in ("prompt", "turn", "versions")]
    pages += [page_of(channel, "transcript"), reverse("admin:index"), reverse("admin:evaluation_drift_overview")]
    pages += [reverse("admin:correction_agentevaluationconfig_target", args=[agent.pk])]
    pages += [reverse(f"admin:evaluation_agent_{what}", args=[agent.pk]) for what in ("evaluate", "capture")]
    for model in admin.site._registry:
        row = model._default_manager.first() if model._meta.label_lower in MAKERS else None
        pages += [list_of(model), *([page_of(row)] if row is not None else [])]
    shown = {}
    for page in pages:
        answer = root.get(page, follow=True)
        html = answer.content.decode()
        assert answer.status_code == 200, page
        assert "<script>alert" not in html, page
        assert re.findall(r"<script(?![^>]*\b(?:src|type)=)[^>]*>", html) == [], page
        shown[page] = "&lt;script&gt;alert" in html
    assert sum(shown.values()) > len(pages) // 2
