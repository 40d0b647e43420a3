from django.db import migrations, models

FAILURES = ("timeout", "rate_limited", "unavailable", "rejected", "refused", "truncated", "malformed")
OUT_OF_REACH = (
    "needs an LLM judge: the claim lists no cues for the offline one",
    "needs an LLM judge: hard mode takes off for every flaw, and cues list none",
)


def read_reasons(apps, schema_editor):
    unscored = apps.get_model("evaluation", "EvaluationScore").objects.filter(status="unscored")
    for cause in FAILURES:
        unscored.filter(reason__startswith=cause).update(cause=cause)
    unscored.filter(reason__in=OUT_OF_REACH).update(cause="out_of_reach")


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0012_position_bins")]

    operations = [
        migrations.AddField(
            model_name="evaluationscore",
            name="cause",
            field=models.CharField(
                blank=True,
                default="",
                help_text="why it is unscored: status of a failed call, malformed, or out_of_reach (of this judge)",
                max_length=16,
            ),
        ),
        migrations.RunPython(read_reasons, migrations.RunPython.noop),
    ]
