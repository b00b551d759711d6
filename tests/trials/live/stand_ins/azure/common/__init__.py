"""Names that the tests import and do not use."""


class AzureHttpError(Exception):
    """Of an older SDK."""


class AzureConflictHttpError(AzureHttpError):
    """Of an older SDK."""
