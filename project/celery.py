"""The Celery application: ``celery -A project worker -c 8``. It needs CELERY_BROKER_URL; `manage.py work` needs no broker."""

import os

from celery import Celery
from celery.signals import setup_logging
from kombu.transport.virtual import QoS

from project.environment import env

if not env.str("CELERY_BROKER_URL", default=""):  # Celery would try a broker on this machine, and again, for ever
    raise SystemExit(
        "CELERY_BROKER_URL is not set, so Celery has no broker: set it, e.g. to redis://127.0.0.1:6379/0, or run "
        "`manage.py work`, which needs none."
    )
# A message that was received is not put back when its connection is lost: see `ack_emulation` in the settings.
QoS.restore_at_shutdown = False

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")


@setup_logging.connect
def log_as_settings_say(**kwargs: object) -> None:
    """Do nothing: Django has set the log up. Without a receiver Celery would replace our handlers, and what they hide would be shown."""


app = Celery("plumbline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["agents.kit.work"])
