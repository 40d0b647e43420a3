"""A list with nothing in it says what fills it and what to do next."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.contrib import admin
from django.core.management import get_commands
from django.db.models import Model

from agents.models import Agent, ModelPrice
from evaluation.models import Proposition
from tests.console import list_of, plain, read, signed_in, superuser, viewer

MODELS = list(admin.site._registry)
NEVER_EMPTY = {
    "auth.User",
    "auth.Group",
    "agents.ModelPrice",
    "correction.AgentEvaluationConfig",
}  # but after a deletion


def test_every_list_has_a_sentence_and_its_commands_exist() -> None:
    assert set(settings.CONSOLE_EMPTY) == {model._meta.label_lower for model in MODELS}
    for label, text in settings.CONSOLE_EMPTY.items():
        assert text.endswith("."), label
        assert set(re.findall(r"manage\.py ([a-z_]+)", text)) <= set(get_commands()), label


@pytest.mark.django_db
@pytest.mark.parametrize("model", [m for m in MODELS if m._meta.label not in NEVER_EMPTY], ids=lambda m: m._meta.label)
def test_an_empty_list_says_what_to_do_next(model: type[Model]) -> None:
    if model is Proposition:
        pytest.skip("its page shows the files of the checkout")
    told = plain(read(signed_in(superuser()), list_of(model)))

    assert settings.CONSOLE_EMPTY[model._meta.label_lower] in told


@pytest.mark.django_db
def test_an_empty_list_offers_to_add_only_to_those_who_may() -> None:
    assert "Add agent" in plain(read(signed_in(superuser()), list_of(Agent)))
    assert "Add agent" not in plain(read(signed_in(viewer()), list_of(Agent)))
    assert ModelPrice.objects.exists()  # migrate adds the shipped ones
