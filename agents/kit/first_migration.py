"""The first migration of each app, which makes all of its tables."""

from __future__ import annotations

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState

PART_OF_A_TABLE = (migrations.AddField, migrations.AddIndex, migrations.AddConstraint, migrations.AlterUniqueTogether)


class FirstMigration(migrations.Migration):
    """Make an app's tables from one rendering of its models, complete with their indexes and constraints.

    For each operation Django renders the model again, and every model related to it: 5,200 renderings for our 67 tables,
    5.5 of the 8.7 CPU seconds that `migrate` took on an empty database. The operations stay as `makemigrations` writes them.
    """

    def apply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> ProjectState:
        """Run the operations against the models as they are after the last operation; return the state with those models.

        Operations on a part of a table are left out: the table is made with its fields, indexes and constraints already.
        """
        project_state.__dict__.pop("apps", None)  # else each change of the state renders models
        self.mutate_state(project_state, preserve=False)
        for operation in self.operations:
            if not isinstance(operation, PART_OF_A_TABLE):
                operation.database_forwards(self.app_label, schema_editor, project_state, project_state)
        return project_state
