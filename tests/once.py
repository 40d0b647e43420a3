"""Rows that several tests share, made once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from django.test import override_settings
from pytest_django.plugin import DjangoDbBlocker


@contextmanager
def rows_for_all(blocker: DjangoDbBlocker, **overridden: object) -> Iterator[None]:
    """Keep the rows that are made inside until the end, under these settings; each test is rolled back to them.

    For a fixture of a module whose tests need no transactions of their own. It has to depend on `django_db_setup`.
    """
    outermost = transaction.atomic()
    outermost._from_testcase = True  # type: ignore[attr-defined]  # as Django marks its own: durable blocks fit inside
    with blocker.unblock(), override_settings(**overridden), outermost:
        yield
        transaction.set_rollback(True)
