"""The console as a Django app: the admin, which the routes load, so that commands start without it."""

from django.contrib.admin.apps import SimpleAdminConfig


class ConsoleConfig(SimpleAdminConfig):
    """The admin with our site. `project.urls` calls `autodiscover`."""

    default_site = "agents.kit.console.site.Site"
