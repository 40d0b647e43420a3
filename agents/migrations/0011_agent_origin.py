"""Say of each agent whether it is an example; of those there are, as far as their versions say so."""

from typing import Any

from django.db import migrations, models

SEEDED, IMPORTED = "example data", "import"  # notes of the versions that the seed and an import make


def mark_examples(apps: Any, schema_editor: Any) -> None:
    """An agent is an example when the seed wrote its persona and no import replaced it since."""
    using = schema_editor.connection.alias
    versions = apps.get_model("agents", "PersonaVersion").objects.using(using)
    written: dict[int, str] = dict(
        versions.filter(note__in=[SEEDED, IMPORTED]).order_by("number").values_list("agent", "note")
    )
    seeded = [agent for agent, note in written.items() if note == SEEDED]
    apps.get_model("agents", "Agent").objects.using(using).filter(pk__in=seeded).update(origin="seed")


class Migration(migrations.Migration):
    dependencies = [("agents", "0010_list_orders")]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="origin",
            field=models.CharField(
                blank=True,
                choices=[("", "your own"), ("seed", "example")],
                default="",
                editable=False,
                help_text="an example of `manage.py seed`, or your own; the examples' propositions and nudges are for examples only",
                max_length=10,
            ),
        ),
        migrations.RunPython(mark_examples, migrations.RunPython.noop, elidable=True),
    ]
