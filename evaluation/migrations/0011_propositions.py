from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [('evaluation', '0010_leases')]

    operations = [migrations.RenameModel(old_name='PropositionDraft', new_name='Proposition')]
