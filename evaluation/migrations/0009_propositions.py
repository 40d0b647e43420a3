from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [('evaluation', '0008_newest_judged_message')]

    operations = [migrations.RenameModel(old_name='PropositionDraft', new_name='Proposition')]
