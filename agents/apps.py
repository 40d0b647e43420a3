from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class AgentsConfig(AppConfig):
    name = "agents"
    verbose_name = "Agents and conversations"

    def ready(self) -> None:
        from agents.groups import make_groups, note_what_is_there
        from agents.llm.prices import seed_prices
        from agents.ops import checks  # noqa: F401 (registers the system checks)

        post_migrate.connect(seed_prices, sender=self, dispatch_uid="agents.seed_prices")
        pre_migrate.connect(note_what_is_there, dispatch_uid="agents.note_what_is_there")
        post_migrate.connect(
            make_groups, dispatch_uid="agents.make_groups"
        )  # of every app: each has its own permissions
