"""Bodies are decoded in a time that grows with their length alone, whatever charset a request names."""

from __future__ import annotations

from io import BytesIO
from unittest.mock import Mock
from wsgiref.util import setup_testing_defaults

import pytest
from django.core.wsgi import get_wsgi_application
from django.test import Client

from agents.kit.api.problems import ReadableContentTypes

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


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ("boundary*=unheard-of''B", "400 Bad Request"),
        ("boundary*=idna''xn--%FF", "400 Bad Request"),
        ("boundary*=\x00''B", "400 Bad Request"),
        ("boundary=B; note*=unheard-of''x", "400 Bad Request"),
        ("boundary*=utf-8''B", "200 OK"),
    ],
)
def test_a_form_whose_content_type_cannot_be_read_is_the_callers_mistake(parameters: str, status: str) -> None:
    token = "t" * 32
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/admin/login/",
        "CONTENT_TYPE": f"multipart/form-data; {parameters}",
        "CONTENT_LENGTH": str(len(FORM)),
        "HTTP_HOST": "testserver",
        "HTTP_ORIGIN": "https://testserver",
        "HTTP_COOKIE": f"csrftoken={token}",
        "HTTP_X_CSRFTOKEN": token,
        "wsgi.url_scheme": "https",
        "wsgi.input": BytesIO(FORM),
    }
    setup_testing_defaults(environ)
    start_response = Mock()

    ReadableContentTypes(get_wsgi_application())(environ, start_response)

    assert start_response.call_args.args[0] == status
