"""sbpair that accepts first: a send returns when it is on disk."""

from sbpair import PairedNamespaceOptions

from . import paired


class Sender(paired.Sender):
    def options(self, folder: str) -> PairedNamespaceOptions:
        return PairedNamespaceOptions(spool=f"{folder}/spool", spool_policy="always")
