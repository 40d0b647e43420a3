from typing import Any

from django.db.models.signals import post_migrate, pre_migrate

from agents.kit import capability


class KitConfig(capability.Capability):
    name = "agents.kit"
    verbose_name = "Operation"
    work_queues = {"batches": "agents.kit.work.batches.work_one"}
    chores = {"agents.kit.work.queues.release_lost_leases": 30, "agents.kit.ops.sums.sum_up": 60}
    rollups = ["agents.kit.ops.sums.LEDGER"]
    metrics_collectors = ["agents.kit.ops.metrics.collect_work", "agents.kit.ops.metrics.collect_calls"]

    def ready(self) -> None:
        super().ready()
        pre_migrate.connect(note_what_is_there, dispatch_uid="agents.note_what_is_there")
        post_migrate.connect(seed_prices, sender=self, dispatch_uid="agents.seed_prices")
        # After the migrations of every app: each has its own permissions.
        post_migrate.connect(make_groups, dispatch_uid="agents.make_groups")


def note_what_is_there(**kwargs: Any) -> None:
    from agents.kit import groups

    groups.note_what_is_there(**kwargs)


def make_groups(**kwargs: Any) -> None:
    from agents.kit import groups

    groups.make_groups(**kwargs)


def seed_prices(**kwargs: Any) -> None:
    from agents.kit.llm import prices

    prices.seed_prices(**kwargs)
