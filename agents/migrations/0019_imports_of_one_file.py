"""An import is one transcript: its name and size stand in its row, and personas are imported at once."""

from __future__ import annotations

from typing import Any, ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("agents", "0018_import_contents")]

    operations: ClassVar[list[Any]] = [
        migrations.DeleteModel(name="ImportChunk"),
        migrations.DeleteModel(name="ImportFile"),
        migrations.RemoveField(model_name="import", name="kind"),
        migrations.AddField(
            model_name="import",
            name="name",
            field=models.CharField(default="", help_text="of the file, as it was called where it came from", max_length=255),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="import",
            name="size",
            field=models.PositiveBigIntegerField(default=0, help_text="of the file, in bytes"),
        ),
        migrations.AlterField(
            model_name="import",
            name="choices",
            field=models.JSONField(
                blank=True, default=dict, help_text="what was chosen: format, channel, speakers, tags, columns, time zone"
            ),
        ),
        migrations.AlterField(
            model_name="import",
            name="contents",
            field=models.JSONField(blank=True, default=dict, help_text="what is in the file, as far as it was read"),
        ),
        migrations.AlterField(
            model_name="import",
            name="stored",
            field=models.PositiveBigIntegerField(
                default=0, help_text="messages stored, each counted in the transaction that stored it"
            ),
        ),
        migrations.CreateModel(
            name="ImportChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveIntegerField(help_text="from 0")),
                ("content", models.BinaryField()),
                (
                    "of",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="chunks",
                        to="agents.import",
                    ),
                ),
            ],
            options={"db_table": "import_chunks", "ordering": ["of", "number"]},
        ),
        migrations.AddConstraint(
            model_name="importchunk",
            constraint=models.UniqueConstraint(fields=["of", "number"], name="import_chunk_number_unique"),
        ),
    ]
