"""Reading a form with files: what is more than may be imported is read to its end and not kept."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler, StopUpload
from django.http import HttpRequest

MOST_OF_STRANGERS = 5  # files of a form by somebody who is not signed in, or by a token: that is found out later
_MARK = "plumbline.files_too_large"


class LimitedUploads(FileUploadHandler):
    """Stands before Django's own: ends keeping files when the form's are larger than `IMPORT_MOST_BYTES` together."""

    def __init__(self, request: HttpRequest | None = None) -> None:
        super().__init__(request)
        self._bytes, self._files = 0, 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """A stranger's form is read before anybody asks who sent it: few files of it are kept, for each holds a file open."""
        super().new_file(*args, **kwargs)
        self._files += 1
        user = getattr(self.request, "user", None)
        if self._files > MOST_OF_STRANGERS and not (user is not None and user.is_authenticated):
            raise StopUpload(connection_reset=False)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        self._bytes += len(raw_data)
        if self._bytes > settings.IMPORT_MOST_BYTES:
            if self.request is not None:
                self.request.META[_MARK] = True
            raise StopUpload(connection_reset=False)
        return raw_data

    def file_complete(self, file_size: int) -> Any:
        return None


def files_were_too_large(request: HttpRequest) -> bool:
    """Whether the files of this form were not kept because of their size."""
    return bool(request.META.get(_MARK))
