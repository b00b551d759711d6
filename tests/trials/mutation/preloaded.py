"""What every process that tries a mutant of the broker imports, except the broker."""

from __future__ import annotations

from importlib import import_module

import aiohttp.web
import azure.servicebus.aio
import azure.servicebus.management
import cryptography.x509
import pytest

from sbpair.contract.book import entries
from sbpair.contract.run import Run

for _name in ("sbpair.pair.syphon.land.transaction",):
    import_module(_name)

__all__ = ["Run", "aiohttp", "azure", "cryptography", "entries", "pytest"]
entries()
