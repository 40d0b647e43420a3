from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Max, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce

from evaluation.models.evaluations import Dimension, procedure_name

BATCH = 2_000
OF_RUN = ("id", "agent", "judge", "method", "hard", "double_check", "played", "created_at", "window_end", "where")


def note_evidence(apps: Any, schema_editor: Any) -> None:
    """Store which dimensions the evaluations there are scored something in, and up to which message."""
    Evidence, Run = (apps.get_model("evaluation", name) for name in ("Evidence", "EvaluationRun"))
    scored = apps.get_model("evaluation", "EvaluationScore").objects.filter(status="scored").order_by()
    messages = apps.get_model("agents", "Message").objects.annotate(at=Coalesce("sent_at", "created_at")).order_by()
    completed = Run.objects.filter(status="completed", turn_bins=[], agent__isnull=False).order_by("pk")

    def newest(run: dict[str, Any]) -> Any:
        """Of what was judged over its window, or deleted since: the newest message of the window that is still there."""
        spoken = messages.filter(agent=run["agent"], synthetic=run["played"], created_at__lte=run["created_at"])
        if run["window_end"] is not None:
            spoken = spoken.filter(sent_at__lte=run["window_end"])
        for number, (key, value) in enumerate(sorted(run["where"].items())):
            tag = Cast(KeyTextTransform(key, "tags"), TextField())
            spoken = spoken.alias(**{f"tag_{number}": tag}).filter(**{f"tag_{number}": value})
        return spoken.aggregate(newest=Max("at"))["newest"] or run["window_end"] or run["created_at"]

    last = 0
    while runs := {run["id"]: run for run in completed.filter(pk__gt=last).values(*OF_RUN)[:BATCH]}:
        last = max(runs)
        said = Max(Coalesce("message__sent_at", "message__created_at"))
        own = scored.filter(evaluation_run__in=runs).values_list("evaluation_run", "dimension").annotate(at=said)
        linked = scored.filter(evaluation_run__agent_shares__agent_run__in=runs, evaluation_run__status="completed")
        of_channels = linked.values_list(F("evaluation_run__agent_shares__agent_run"), "dimension").distinct()
        found = {(run, dimension): None for run, dimension in of_channels if run in runs}
        found |= {(run, dimension): at for run, dimension, at in own}
        windows = {pk: newest(runs[pk]) for pk in {run for (run, _), at in found.items() if at is None}}
        Evidence.objects.bulk_create(
            Evidence(
                evaluation_run_id=pk,
                dimension=dimension,
                agent_id=runs[pk]["agent"],
                judge=runs[pk]["judge"],
                procedure=procedure_name(**{name: runs[pk][name] for name in OF_RUN[3:7]}),
                newest_message_at=at or windows[pk],
            )
            for (pk, dimension), at in found.items()
        )


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0010_list_orders"),
        ("evaluation", "0007_pattern_timeouts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Evidence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("dimension", models.CharField(choices=Dimension.choices, max_length=32)),
                ("judge", models.CharField(max_length=200)),
                ("procedure", models.CharField(max_length=64)),
                (
                    "newest_message_at",
                    models.DateTimeField(
                        help_text="when the newest message that was judged was said (stored, where it has no time)"
                    ),
                ),
                (
                    "agent",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to="agents.agent"),
                ),
                (
                    "evaluation_run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="evidence",
                        to="evaluation.evaluationrun",
                    ),
                ),
            ],
            options={
                "db_table": "evaluation_evidence",
                "ordering": ["-newest_message_at", "-evaluation_run_id"],
                "indexes": [
                    models.Index(
                        fields=["agent", "judge", "procedure", "dimension", "-newest_message_at", "-evaluation_run"],
                        name="evidence_newest",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("evaluation_run", "dimension"), name="evidence_once_per_dimension")
                ],
            },
        ),
        migrations.RunPython(note_evidence, migrations.RunPython.noop, elidable=True),
    ]
