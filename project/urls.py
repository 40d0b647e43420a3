from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from agents.admin.access import sign_in

admin.autodiscover()
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/login/", sign_in),  # before the admin site's own
    path("admin/", admin.site.urls),
    path("api/", include("agents.api.urls")),
    path("api/", include("evaluation.api.urls")),
    path("api/", include("correction.api.urls")),
]

handler400 = "agents.api.problems.bad_request"
handler404 = "agents.api.problems.not_found"
handler500 = "agents.api.problems.server_error"
