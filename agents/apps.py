from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Agents and conversations"

    def ready(self) -> None:
        from agents.ops import checks  # noqa: F401 (registers the system checks)

        pre_migrate.connect(note_what_is_there, dispatch_uid="agents.note_what_is_there")
        post_migrate.connect(seed_prices, sender=self, dispatch_uid="agents.seed_prices")
        post_migrate.connect(
            make_groups, dispatch_uid="agents.make_groups"
        )  # of every app: each has its own permissions


def note_what_is_there(**kwargs: Any) -> None:
    from agents import groups

    groups.note_what_is_there(**kwargs)


def make_groups(**kwargs: Any) -> None:
    from agents import groups

    groups.make_groups(**kwargs)


def seed_prices(**kwargs: Any) -> None:
    from agents.llm import prices

    prices.seed_prices(**kwargs)
