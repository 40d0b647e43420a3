"""The console as a Django app: the admin, which the routes load, so that commands start without it."""

from django.contrib.admin.apps import SimpleAdminConfig


class ConsoleConfig(SimpleAdminConfig):
    """The admin with the theme's site. `project.urls` calls `autodiscover`."""

    default_site = "unfold.sites.UnfoldAdminSite"
