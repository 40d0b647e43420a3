"""``make screenshots``: pictures of the main pages under docs/screenshots, made from the data of ``manage.py demo`` and its scenes.

Everything happens in a throw-away database, behind the console's own server with a worker beside it. Needs Chromium
(CHROMIUM = its path). ``python -m tests.screenshots import`` takes that picture alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.machinery import answers, free_port, wait_until

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "screenshots"
PASSWORD = "correct horse"  # of a database that lives for a minute
ON_A_PHONE = ("home", "channel")
CONVERSATION = """\
ticket;posted;by;message;build
8841;2026-11-24 09:12;Kim Lee;Is my parcel still in Hamburg?;42
8841;2026-11-24 09:12;Parcel bot;It left Hamburg last night and is due tomorrow before noon.;42
8841;2026-11-24 09:14;Kim Lee;Can it go to my neighbour instead?;42
8841;2026-11-24 09:14;Parcel bot;Yes. Tell me the name, and I will note it for the driver.;42
8852;2026-11-24 10:03;Ana Ruiz;The box arrived open.;42
8852;2026-11-24 10:03;Parcel bot;I am sorry. A photo of the box and its label is enough for a claim.;42
"""
TALLEST = 2000  # pixels; what lies below is cut off


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            DATABASE_URL=f"sqlite:///{folder}/demo.sqlite3",
            DJANGO_SETTINGS_MODULE="project.settings",
            PROPOSITION_DIRS="",
            ANTHROPIC_API_KEY="",
            DEBUG="1",
        )
        _manage("demo")
        _manage("demo", "--scene", "all")
        import django

        django.setup()
        from django.contrib.auth.models import User
        from django.core.files.base import ContentFile

        from agents.transcripts.imports.jobs import upload
        from tests.console import page_of
        from tests.e2e.main_pages import main_pages

        photographer = User.objects.create_superuser("photographer", password=PASSWORD)
        pages = main_pages()
        wanted = sys.argv[1:] or list(pages)
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--port", str(port)], stdout=subprocess.DEVNULL
        )
        try:
            home = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(f"{home}/healthz"), timeout=60, what="the console answers")
            _photograph(home, {name: pages[name] for name in wanted if name != "import"})
            if "import" in wanted:  # last, as it waits for an answer, which Home would say; the demo imports nothing
                job = upload(upload=ContentFile(CONVERSATION.encode(), name="support-november.csv"), user=photographer)
                _photograph(home, {"import": page_of(job)})
        finally:
            server.terminate()
            server.wait(timeout=30)


def _manage(*arguments: str) -> None:
    subprocess.run([sys.executable, "manage.py", *arguments], check=True, stdout=subprocess.DEVNULL)


def _photograph(home: str, pages: dict[str, str]) -> None:
    from playwright.sync_api import Browser, sync_playwright

    def session(browser: Browser, width: int, scheme: str, names: dict[str, str], suffix: str) -> None:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]  # "light" or "dark"
        page = context.new_page()
        page.goto(f"{home}/admin/")
        page.get_by_label("Username").fill("photographer")
        page.locator("[name=password]").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/admin/")
        for name, path in names.items():
            page.goto(home + path)
            page.wait_for_load_state("networkidle")
            tall = int(page.evaluate("document.documentElement.scrollHeight"))
            page.set_viewport_size({"width": width, "height": min(tall, TALLEST)})
            page.screenshot(path=PICTURES / f"{name}{suffix}.png")
            page.set_viewport_size({"width": width, "height": 900})
            sys.stdout.write(f"docs/screenshots/{name}{suffix}.png\n")
        context.close()

    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        session(browser, 1440, "light", pages, "")
        on_a_phone = {name: pages[name] for name in ON_A_PHONE if name in pages}
        session(browser, 390, "dark", on_a_phone, "-phone-dark")
        browser.close()


if __name__ == "__main__":
    main()
