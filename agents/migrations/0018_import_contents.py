from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("agents", "0017_plain_words")]
    operations = [migrations.RenameField("import", "found", "contents")]
