# Two stages: one that installs, one that runs. What runs is not root, writes nowhere but /tmp and needs no compiler.
# The base of both. For builds that give the same image every time name it by its digest:
#   docker build --build-arg PYTHON_IMAGE=python:3.12-slim-bookworm@sha256:<digest> .
ARG PYTHON_IMAGE=python:3.12-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /venv
COPY requirements.lock /requirements.lock
RUN /venv/bin/pip install --require-hashes -r /requirements.lock
WORKDIR /app
COPY manage.py pyproject.toml ./
COPY project ./project
COPY agents ./agents
COPY evaluation ./evaluation
COPY correction ./correction
COPY propositions ./propositions
COPY templates ./templates
COPY docs ./docs
# The key signs nothing: collecting files only has to load the settings.
RUN SECRET_KEY=only-to-collect-files ALLOWED_HOSTS=build.invalid DATABASE_URL=sqlite:////tmp/build.sqlite3 STATIC_ROOT=/app/static \
    /venv/bin/python manage.py collectstatic --noinput \
    && /venv/bin/python -m compileall -q agents evaluation correction project \
    && rm -rf .local && chmod -R a+rX /app

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 plumbline \
    && useradd --uid 10001 --gid plumbline --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin plumbline
COPY --from=build /venv /venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    PRODUCTION=true STATIC_ROOT=/app/static WEB_BIND=0.0.0.0:8000 HOME=/tmp
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["gunicorn", "-c", "python:project.gunicorn", "project.wsgi"]
