"""The Celery application: ``celery -A project worker``. Only of use with CELERY_BROKER_URL; `manage.py work` needs no broker."""

import os

from celery import Celery
from celery.signals import setup_logging
from kombu.transport.virtual import QoS

# A message that was taken is not put back when its connection is lost: see `ack_emulation` in project/celery_settings.py.
QoS.restore_at_shutdown = False

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")


@setup_logging.connect
def log_as_settings_say(**kwargs: object) -> None:
    """Nothing: Django has set the log up. Without a receiver Celery would replace our handlers, and what they hide would be shown."""


app = Celery("plumbline")
app.config_from_object("project.celery_settings")
app.autodiscover_tasks()
