"""What our users' tests import: the ledger that says whether anything was lost."""

from sbpair.testing.ledger import Ledger, LedgerReport

__all__ = ["Ledger", "LedgerReport"]
