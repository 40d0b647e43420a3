from django.apps import AppConfig


class CorrectionConfig(AppConfig):
    name = "correction"
    verbose_name = "Correcting"

    def ready(self) -> None:
        from correction import checks  # noqa: F401 (registers the system checks)
