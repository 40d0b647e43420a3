from decimal import Decimal

import django.core.validators
from django.db import migrations, models

THRESHOLD = models.DecimalField(
    blank=True,
    decimal_places=1,
    help_text="score of the claim that the last messages merely agree with each other, 0 to 9, from which on the agent is "
    "nudged (default 6); needs a model as judge",
    max_digits=3,
    null=True,
    validators=[
        django.core.validators.MinValueValidator(Decimal("0")),
        django.core.validators.MaxValueValidator(Decimal("9")),
    ],
)


def inherit(apps, schema_editor):
    """Empty the thresholds: a similarity of 0 to 1 is no score, and would nudge always. In the history too, which can be reverted to."""
    for name in ("AgentEvaluationConfig", "HistoricalAgentEvaluationConfig"):
        rows = apps.get_model("correction", name).objects.using(schema_editor.connection.alias)
        rows.exclude(convergence_threshold=None).update(convergence_threshold=None)


class Migration(migrations.Migration):
    dependencies = [("correction", "0007_behavior_indexes")]

    operations = [
        migrations.RunPython(inherit, migrations.RunPython.noop),
        migrations.RemoveConstraint(model_name="agentevaluationconfig", name="config_convergence_threshold"),
        migrations.AlterField("agentevaluationconfig", "convergence_threshold", THRESHOLD),
        migrations.AlterField("historicalagentevaluationconfig", "convergence_threshold", THRESHOLD.clone()),
        migrations.AddConstraint(
            model_name="agentevaluationconfig",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("convergence_threshold__isnull", True),
                    models.Q(
                        ("convergence_threshold__gte", Decimal("0")), ("convergence_threshold__lte", Decimal("9"))
                    ),
                    _connector="OR",
                ),
                name="config_convergence_threshold",
                violation_error_message="convergence_threshold: from 0 to 9, or empty to inherit.",
            ),
        ),
        migrations.AddIndex(
            model_name="interventionlog",
            index=models.Index(
                fields=["channel", "name", "-channel_position"],
                condition=models.Q(("judge", ""), _negated=True),
                name="intervention_last_asked",
            ),
        ),
        migrations.RunPython(migrations.RunPython.noop, inherit),
    ]
