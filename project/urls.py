from django.contrib import admin
from django.urls import include, path
from django.utils.module_loading import module_has_submodule
from django.views.generic import RedirectView

from agents.kit.admin.access import sign_in
from agents.kit.capability import capabilities
from agents.kit.console.logs import discover

discover()
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/login/", sign_in),  # before the admin site's own
    path("admin/", admin.site.urls),
    *(path("api/", include(f"{app.name}.urls")) for app in capabilities() if module_has_submodule(app.module, "urls")),
]

handler400 = "agents.kit.api.problems.bad_request"
handler404 = "agents.kit.api.problems.not_found"
handler500 = "agents.kit.api.problems.server_error"
