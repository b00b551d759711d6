"""sbpair with a spool, for when neither namespace accepts."""

from sbpair import PairedNamespaceOptions

from . import paired


class Sender(paired.Sender):
    def options(self, folder: str) -> PairedNamespaceOptions:
        return PairedNamespaceOptions(spool=f"{folder}/spool")
