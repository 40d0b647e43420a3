"""`played` becomes `simulated`: the column, the end of a procedure's name, and the tag ``simulation`` of simulated conversations."""

from django.db import migrations, models
from django.db.models import F, Value
from django.db.models.functions import Replace

PROCEDURES = ("Baseline", "Evidence", "LabelSet", "JudgeCalibration", "DriftAlert")
TAGGED = (
    ("agents", "Channel", ("tags",)),
    ("agents", "Message", ("tags",)),
    ("evaluation", "EvaluationRun", ("where", "history_where")),
)


def rename(old, new):
    def move(apps, schema_editor):
        using = schema_editor.connection.alias
        for name in PROCEDURES:
            rows = apps.get_model("evaluation", name).objects.using(using).filter(procedure__endswith=f"+{old[0]}")
            rows.update(procedure=Replace(F("procedure"), Value(f"+{old[0]}"), Value(f"+{new[0]}")))
        for app, name, fields in TAGGED:
            for field in fields:
                rows = apps.get_model(app, name).objects.using(using).filter(**{f"{field}__has_key": old[1]})
                if name != "EvaluationRun":
                    rows = rows.filter(synthetic=True)
                for row in list(rows.only("pk", field)):
                    tags = getattr(row, field)
                    tags[new[1]] = tags.pop(old[1])
                    row.save(update_fields=[field])

    return move


OLD, NEW = ("played", "play"), ("simulated", "simulation")


class Migration(migrations.Migration):
    dependencies = [("evaluation", "0008_newest_judged_message"), ("agents", "0011_agent_origin")]

    operations = [
        migrations.RenameField("evaluationrun", "played", "simulated"),
        migrations.AlterField(
            "evaluationrun",
            "simulated",
            models.BooleanField(default=False, help_text="what was judged was said in simulated conversations, marked synthetic"),
        ),
        migrations.AlterField(
            "evaluationrun",
            "actor_model",
            models.CharField(blank=True, default="", help_text="model that acted in a simulation", max_length=200),
        ),
        migrations.RunPython(rename(OLD, NEW), rename(NEW, OLD), elidable=True),
    ]
