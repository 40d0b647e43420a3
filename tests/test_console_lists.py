"""Every list of the console asks the database the same number of questions, however many rows it shows.

The numbers stand in ``console_queries.json``. When a page asks more or fewer, the test prints its SQL;
``WRITE_QUERY_BASELINE=1 pytest tests/test_console_lists.py`` writes the file anew, to be read in the diff.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client

from tests.console import list_of, queries
from tests.listed_rows import MAKERS, people

pytestmark = [pytest.mark.databases_differ, pytest.mark.django_db]

BASELINE = Path(__file__).with_name("console_queries.json")
WITHOUT_ROWS = {"evaluation.proposition"}  # its page reads files


def test_every_list_of_the_console_is_counted() -> None:
    listed = {model._meta.label_lower for model in admin.site._registry}

    assert listed == set(MAKERS) | WITHOUT_ROWS
    assert set(json.loads(BASELINE.read_text())) <= set(MAKERS)


@pytest.mark.parametrize("label", sorted(MAKERS))
def test_a_list_of_any_length_makes_the_noted_number_of_queries(root: Client, label: str) -> None:
    model = apps.get_model(label)
    cast = people()
    MAKERS[label](cast, 0, 3)
    few = queries(root, list_of(model))
    MAKERS[label](cast, 3, 9)
    many = queries(root, list_of(model))
    statements = "\n\n".join(many)

    if os.environ.get("WRITE_QUERY_BASELINE"):
        noted = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
        BASELINE.write_text(json.dumps({**noted, label: len(many)}, indent=2, sort_keys=True) + "\n")
    assert len(many) == len(few), f"{len(few)} statements for 3 rows, {len(many)} for 12:\n{statements}"
    assert len(many) == json.loads(BASELINE.read_text()).get(label, len(many)), f"{len(many)} statements:\n{statements}"
