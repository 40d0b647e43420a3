import os

from django.core.wsgi import get_wsgi_application
from django.db import connection

WEB_SECONDS_FOR_A_LOCK = 3

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django_application = get_wsgi_application()

from agents.kit.api.problems import ReadableContentTypes  # noqa: E402 (needs the apps that are loaded above)

application = ReadableContentTypes(django_application)

if connection.vendor == "sqlite":  # a worker waits longer for a locked file than a person should
    connection.settings_dict["OPTIONS"]["timeout"] = WEB_SECONDS_FOR_A_LOCK
