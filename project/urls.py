from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/", admin.site.urls),
    path("api/evaluations/", include("evaluation.api.urls")),
    path("api/evaluations/", include("correction.api.urls")),
]
