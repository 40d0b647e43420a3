"""What is shipped for production works: the image's contents, the compose file, gunicorn, the settings."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.test import Client

from tests import zygote
from tests.machinery import Plumbline, answers, free_port, missing, wait_until

ROOT = Path(settings.BASE_DIR)
BIN = Path(sys.executable).parent
UNITS = sorted(unit for unit in (ROOT / "project" / "systemd").glob("*.s*") if unit.is_file())

# Python refuses every write outside the folders it was given, as a read-only file system with a tmpfs does.
READ_ONLY = """
import os, sys
ALLOWED = tuple(os.environ["WRITABLE"].split(os.pathsep)) + ("/dev/",)
FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
def hook(event, arguments):
    path = arguments[0] if arguments else None
    if event == "open" and isinstance(path, str) and (arguments[2] or 0) & FLAGS or event in ("os.mkdir", "os.rename", "os.remove"):
        if not os.path.abspath(path).startswith(ALLOWED):
            raise OSError(30, f"read-only file system ({event})", path)
sys.addaudithook(hook)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the Dockerfile's COPY lines make of the checkout, with files collected."""
    app = tmp_path_factory.mktemp("image") / "app"
    app.mkdir()
    for line in re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
        *sources, target = line.split()
        for source in sources if target.startswith("./") else ():
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, app / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, app / target)
    run = zygote.run(
        [sys.executable, "manage.py", "collectstatic", "--noinput", "-v", "0"],
        cwd=app,
        env={**environment(app, app.parent), "SECRET_KEY": "only-to-collect-files"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return app


def environment(app: Path, writable: Path) -> dict[str, str]:
    """Production's, with secrets in files, as the compose file has them."""
    for name, value in (("secret_key", "k" * 64), ("database_url", f"sqlite:///{writable}/db.sqlite3")):
        (writable / name).write_text(f"{value}\n")
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "TMPDIR": str(writable),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PRODUCTION": "true",
        "ALLOWED_HOSTS": "plumbline.example.org",
        "TRUST_PROXY_HEADERS": "true",
        "SECRET_KEY_FILE": str(writable / "secret_key"),
        "DATABASE_URL_FILE": str(writable / "database_url"),
        "STATIC_ROOT": str(app / "static"),
        "LOG_LEVEL": "INFO",
    }


@pytest.fixture(scope="module")
def served(image: Path, migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """gunicorn on the image's contents, which it cannot write to; its address, and its log."""
    folder = tmp_path_factory.mktemp("served")
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(READ_ONLY)
    port = free_port()
    writable = folder / "tmp"
    writable.mkdir()
    shutil.copy(migrated_file, writable / "db.sqlite3")
    env = {
        **environment(image, writable),
        "PYTHONPATH": str(hook),
        "WRITABLE": str(writable),
        "WEB_BIND": f"127.0.0.1:{port}",
        "WEB_PROCESSES": "2",
        "WEB_THREADS": "4",
    }
    log = folder / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [str(BIN / "gunicorn"), "-c", "python:project.gunicorn", "project.wsgi"],
            cwd=image, env=env, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{url}/healthz"), timeout=60, what="gunicorn answers")
        yield url, log
    finally:
        server.terminate()
        server.wait(timeout=40)


def get(url: str, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    asked = {"Host": "plumbline.example.org", "X-Forwarded-Proto": "https", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, headers=asked), timeout=30) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


@pytest.mark.slow
def test_the_images_content_serves_pages_and_files_where_nothing_can_be_written(served: tuple[str, Path]) -> None:
    url, log = served

    status, page, headers = get(url, "/admin/login/")
    assert status == 200, log.read_text()
    assert "Strict-Transport-Security" in headers
    assert "Content-Security-Policy" in headers
    files = re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"', page)
    assert len(files) > 3
    assert {file: get(url, file)[0] for file in files} == dict.fromkeys(files, 200)
    assert get(url, "/api/evaluations/")[0] == 401
    assert get(url, "/readyz")[0] == 200


@pytest.mark.slow
def test_every_request_is_logged_by_its_id_without_what_it_asked_for(served: tuple[str, Path]) -> None:
    url, log = served

    answer = get(url, "/api/evaluations/?agent=a-secret-word", **{"X-Request-ID": "from-the-caller-7"})
    made = get(url, "/api/evaluations/", **{"X-Request-ID": "no id: has spaces"})[2]["X-Request-ID"]

    lines = log.read_text()
    assert answer[2]["X-Request-ID"] == "from-the-caller-7"
    assert re.fullmatch("[0-9a-f]{32}", made)
    assert '"request_id": "from-the-caller-7"' in lines
    assert made in lines
    assert "a-secret-word" not in lines
    for line in lines.strip().splitlines():
        assert {"time", "level", "logger", "message"} <= yaml.safe_load(line).keys(), line


@pytest.mark.slow
def test_the_local_server_answers_malformed_requests_as_the_callers_mistakes(
    database_file: Path, tmp_path: Path
) -> None:
    port = free_port()
    here = Plumbline(tmp_path, {"DATABASE_URL": f"sqlite:///{database_file}"})
    here.start("serve", "manage.py", "serve", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(f"{url}/healthz"), timeout=60, what="the console answers")

        assert get(url, "/static/kit/console.css", Host="localhost")[0] == 200
        assert get(url, "/static/../x", Host="localhost")[0] == 404
        content_type = "multipart/form-data; boundary*=unheard-of''B"
        assert get(url, "/admin/login/", Host="localhost", **{"Content-Type": content_type})[0] == 200
    finally:
        here.stop()


@pytest.mark.slow
def test_check_deploy_finds_nothing_under_production_settings(image: Path, tmp_path: Path) -> None:
    env = {**environment(image, tmp_path), "CELERY_BROKER_URL": "redis://127.0.0.1:6379/0", "ANTHROPIC_API_KEY": "x"}
    env["METRICS_TOKEN"] = "a-token"
    (tmp_path / "secret_key").write_text("vZ0-long-and-random-8Ufe_qLw2R7nXb4TjYk1Gm5HsPd9Ca3E")
    (tmp_path / "database_url").write_text("postgres://plumbline@127.0.0.1/plumbline")

    run = zygote.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "INFO"],
        cwd=image, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert run.returncode == 0, run.stdout + run.stderr
    assert "no issues" in run.stdout + run.stderr


@pytest.mark.slow
def test_only_check_deploy_says_what_is_missing_when_nothing_is_set() -> None:
    env = {"PATH": os.environ["PATH"]}
    for name in ("SECRET_KEY", "DATABASE_URL", "ALLOWED_HOSTS", "DEBUG", "PRODUCTION"):
        env[name] = ""
    del env["ALLOWED_HOSTS"]

    deploy, plain = (
        zygote.run(
            [sys.executable, "manage.py", "check", *arguments, "--fail-level", "WARNING"],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=60,
        )
        for arguments in (["--deploy"], [])
    )  # fmt: skip

    said = deploy.stdout + deploy.stderr
    assert deploy.returncode == 1
    assert [
        name for name in ("SECRET_KEY is not", "ALLOWED_HOSTS names", "DATABASE_URL is not") if name not in said
    ] == []
    assert plain.returncode == 0, plain.stderr
    assert "no issues" in plain.stdout + plain.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DEBUG", "maybe", "DEBUG is 'maybe'; allowed: true, "),
        ("SECRET_KEY_FILE", "/nonexistent/key", "SECRET_KEY_FILE"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(name: str, value: str, said: str) -> None:
    run = zygote.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT, env={"PATH": os.environ["PATH"], name: value}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert run.returncode == 3
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_a_list_in_the_environment_may_have_spaces_beside_its_commas() -> None:
    read = "from django.conf import settings; print(settings.READY_WITHOUT)"

    run = zygote.run(
        [sys.executable, "manage.py", "shell", "-v0", "-c", read],
        cwd=ROOT, env={"PATH": os.environ["PATH"], "DEBUG": "1", "READY_WITHOUT": " judge, broker "},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert run.stdout.strip() == "['judge', 'broker']"


def test_dockerfile_passes_its_linter() -> None:
    run = subprocess.run([str(BIN / "hadolint"), "Dockerfile"], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (run.returncode, run.stdout) == (0, "")


def test_compose_file_follows_the_compose_specification() -> None:
    checked = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    run = subprocess.run(checked, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert run.returncode == 0, run.stdout + run.stderr


def test_compose_file_sets_only_settings_that_exist_and_passes_secrets_by_file() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    known = set(re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    ours = {name: service for name, service in compose["services"].items() if "build" in service}

    assert ours.keys() == {"migrate", "web", "worker", "turns", "beat"}
    assert all("mem_limit" in service and "pids_limit" in service for service in compose["services"].values())
    assert all(service["cap_drop"] == ["ALL"] for service in compose["services"].values())
    for name, service in ours.items():
        files = {key: value for key, value in service["environment"].items() if key.endswith("_FILE")}
        assert {key.removesuffix("_FILE") for key in service["environment"]} <= known, name
        assert {value.removeprefix("/run/secrets/") for value in files.values()} == set(service["secrets"]), name
        assert service["read_only"] is True
        assert (
            not {"SECRET_KEY", "DATABASE_URL", "CELERY_BROKER_URL", "ANTHROPIC_API_KEY", "METRICS_TOKEN"}
            & service["environment"].keys()
        )
    open_to_others = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert open_to_others == {
        "proxy": ["127.0.0.1:${WEB_PORT:-8000}:8080"],
        "litellm": ["127.0.0.1:${LITELLM_PORT:-4000}:4000"],
    }
    mounted = [volume.split(":")[0] for volume in compose["services"]["proxy"]["volumes"]]
    assert all((ROOT / path).is_file() for path in mounted)
    wanted = {secret for service in compose["services"].values() for secret in service.get("secrets", ())}
    assert wanted == set(compose["secrets"])
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def started_by(unit: Path) -> list[str]:
    """Return the words of the command that a unit of systemd starts."""
    [command] = re.findall(r"^ExecStart=(.+)$", unit.read_text(), re.MULTILINE)
    return shlex.split(command)


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Copy our units into a folder, with programs that there are here, and have `systemd-analyze` read them."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    units = folder / "units"
    shutil.copytree(ROOT / "project" / "systemd", units)
    for unit in UNITS:
        (units / unit.name).write_text(unit.read_text().replace("/srv/plumbline/current/.venv/bin", str(BIN)))
    command = ["systemd-analyze", "--man=no", "--no-pager", *arguments]
    return subprocess.run(command, cwd=units, capture_output=True, text=True, timeout=60, check=False)


def test_systemd_understands_our_units(tmp_path: Path) -> None:
    run = analyze(tmp_path, "verify", *(f"./{unit.name}" for unit in UNITS))

    assert len(UNITS) == 5
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


def test_a_service_that_is_broken_into_has_no_privileges_and_writes_nowhere_but_to_its_own_tmp(tmp_path: Path) -> None:
    services = [f"./{unit.name}" for unit in UNITS if unit.suffix == ".service"]

    run = analyze(tmp_path, "security", "--offline=true", "--threshold=20", *services)  # of 100

    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("exposure level") == len(services)


def first_choice(text: str) -> str:
    """The text as compose reads it where no variable is set."""
    return re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", text)


@pytest.mark.slow
def test_the_programs_of_containers_and_units_take_the_options_they_are_started_with(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    commands = [service["command"] for service in services.values() if "build" in service and "command" in service]
    commands += [
        service["healthcheck"]["test"][1:]
        for service in services.values()
        if "manage.py" in str(service.get("healthcheck"))
    ]
    commands.append(yaml.safe_load(re.findall(r"^CMD (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0]))
    started = [started_by(unit) for unit in UNITS if unit.suffix == ".service"]
    commands += [[Path(program).name, *words] for program, *words in started]
    assert len(commands) == 7 + 4
    production = {**environment(tmp_path, tmp_path), "CELERY_BROKER_URL": "redis://127.0.0.1:9/0"}

    for program, *words in commands:
        options = [word for word in words if word.startswith("--")]
        if program == "python":
            start, asked = [sys.executable, *words[:2]], "--help"
        elif program == "celery":
            start, asked = [sys.executable, "-m", "celery", *words[:3]], "--help"
        else:
            start, asked = [sys.executable, "-m", program, *words], "--check-config"
        done = zygote.run([*start, asked], cwd=ROOT, env=production, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{program} {words}: {done.stderr}"
        assert [option for option in options if option not in done.stdout] == [], f"{program} {words}"


def test_images_are_pinned_and_ours_does_not_run_as_root() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    bases = re.findall(r"^ARG PYTHON_IMAGE=(.+)$", dockerfile, re.MULTILINE)
    bases += [first_choice(service["image"]) for service in services.values() if "build" not in service]
    built_from = {
        first_choice(service["build"]["args"]["PYTHON_IMAGE"]) for service in services.values() if "build" in service
    }

    assert [image for image in bases if not re.search(r":v?\d[\w.-]*$|@sha256:", image)] == []
    assert built_from == set(bases[:1])
    last_stage = dockerfile.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (\d+)", last_stage, re.MULTILINE)[-1] != "0"


def test_health_checks_ask_pages_that_are_there(client: Client) -> None:
    asked = re.findall(r"http://127\.0\.0\.1:8000(/\w+)", (ROOT / "Dockerfile").read_text())
    assert asked
    assert [path for path in asked if client.get(path).status_code != 200] == []

    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    awaited = {
        name
        for service in services.values()
        for name, how in (service.get("depends_on") or {}).items()
        if how["condition"] == "service_healthy"
    }
    own_check = {name for name, service in services.items() if "test" in service.get("healthcheck", {})}
    from_the_image = {name for name, service in services.items() if "build" in service and "healthcheck" not in service}
    assert awaited <= own_check | from_the_image
    upstreams = re.findall(r"server (\w+):8000", (ROOT / "project" / "nginx.conf").read_text())
    assert set(upstreams) <= set(services)


@pytest.mark.service
def test_redis_as_compose_starts_it_answers_nobody_without_the_password(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        missing("redis-server")
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["redis"]
    (tmp_path / "redis_password").write_text("p4ss-w0rd")
    port = free_port()

    def here(text: str) -> str:
        placed = text.replace("$$", "$").replace("/run/secrets", str(tmp_path)).replace("/data", str(tmp_path))
        return placed.replace("redis-cli", f"redis-cli -p {port}")

    server = subprocess.Popen(
        [here(word) for word in service["command"][:2]] + [f"{here(service['command'][2])} --port {port}"]
    )
    try:
        healthy = ["sh", "-c", here(service["healthcheck"]["test"][1])]
        wait_until(lambda: subprocess.run(healthy, check=False).returncode == 0, timeout=20, what="it is healthy")
        stranger = subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, text=True, check=False)
        assert "NOAUTH" in stranger.stdout + stranger.stderr
    finally:
        server.terminate()
        assert server.wait(timeout=20) == 0, "it ends when it is asked to"
