"""The project, with one more route and without limits on how often one may ask."""

from django.conf import settings
from django.core.wsgi import get_wsgi_application

settings.ROOT_URLCONF = "tests.bench.bare"
settings.API_SENDS_PER_MINUTE = settings.API_INGESTS_PER_MINUTE = 10_000_000
application = get_wsgi_application()
