"""Bodies are decoded in a time that grows with their length alone, whatever charset a request names."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db
FORM = b'--B\r\nContent-Disposition: form-data; name="username"\r\n\r\nada\r\n--B--\r\n'


@pytest.mark.parametrize("charset", ["punycode", "idna", "zlib", "undefined"])
def test_a_form_or_a_body_in_a_charset_that_is_slow_or_none_of_texts_is_refused(client: Client, charset: str) -> None:
    form_type = f"multipart/form-data; boundary=B; charset={charset}"
    page = client.generic("POST", "/admin/login/", FORM, form_type, secure=True)
    assert page.status_code == 415
    assert page.content.decode().startswith(f"the charset {charset} is not read; allowed: utf-8")
    answer = client.generic("POST", "/api/quality-checks/", b"{}", f"application/json; charset={charset}", secure=True)
    assert answer.status_code == 415
    assert answer.json()["detail"] == page.content.decode()


@pytest.mark.parametrize("charset", ["UTF-8", "utf8", "us-ascii", "ISO-8859-1", "utf-16", "unheard-of"])
def test_a_form_in_a_usual_charset_is_read(client: Client, charset: str) -> None:
    form_type = f"multipart/form-data; boundary=B; charset={charset}"
    assert client.generic("POST", "/admin/login/", FORM, form_type, secure=True).status_code == 200
