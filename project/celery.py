"""The Celery application: ``celery -A project worker``. Only of use with CELERY_BROKER_URL; `manage.py work` needs no broker."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
app = Celery("plumbline")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
