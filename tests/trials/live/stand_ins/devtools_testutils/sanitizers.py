"""Recordings are cleaned of secrets; there are none here."""


def _nothing(*_: object, **__: object) -> None:
    """Nothing is recorded."""


add_remove_header_sanitizer = add_general_regex_sanitizer = add_oauth_response_sanitizer = _nothing
