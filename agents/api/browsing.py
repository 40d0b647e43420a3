"""The API as pages for people."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.renderers import BrowsableAPIRenderer


class BrowsablePages(BrowsableAPIRenderer):
    """A form holds the view's ``example``, or nothing: DRF's own hold every field, empty, which no route takes."""

    def get_raw_data_form(self, data: Any, view: Any, method: str, request: Any) -> Any:
        form: Any = super().get_raw_data_form(data, view, method, request)
        if form is not None:
            example = getattr(view, "example", None) or {}
            form.fields["_content"].initial = json.dumps(example, indent=4, ensure_ascii=False)
        return form
