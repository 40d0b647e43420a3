from django.apps import AppConfig


class CorrectionConfig(AppConfig):
    name = "correction"
    verbose_name = "Correcting"
