from django.urls import path

from correction.api.quality_checks import QualityChecks

app_name = "quality"
urlpatterns = [path("", QualityChecks.as_view(), name="checks")]
