"""The blocks of the docs with the API and the snippets of the emulator page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType

from tests.tools.source import ROOT

EMULATOR = {
    "python": "emulator.py",
    "javascript": "emulator.js",
    "java": "Emulator.java",
    "go": "go/main.go",
    "curl": "emulator.sh",
    "javascript-suite": "orders.test.js",
    "java-suite": "OrdersTest.java",
    "go-suite": "go/orders_test.go",
}
"""The snippets in samples/emulator by language; tests/interop/test_emulator.py runs each."""


def emulator(language: str) -> str:
    file = EMULATOR[language]
    tag = "bash" if language == "curl" else language.removesuffix("-suite")
    return f"```{tag}\n{(ROOT / 'samples' / 'emulator' / file).read_text('utf-8')}```\n"


API = {
    "client": "sbpair",
    "aio": "sbpair.aio",
    "syphon": "sbpair.syphon",
    "processor": "sbpair.processor",
    "observation": "sbpair.observation",
    "broker": "sbpair.broker",
    "testing": "sbpair.testing",
    "tracing": "sbpair.tracing",
    "spark": "sbpair.spark",
    "audit": "sbpair.audit",
    "spark-audit": "sbpair.spark.audit",
}
"""The public module that each page below docs/reference/api describes."""


def api(name: str) -> str:
    """Directives of mkdocstrings for the public names of a module; sbpair.aio links what it shares with sbpair."""
    module = import_module(name)
    shared = [public for public in module.__all__ if name == "sbpair.aio" and _is_shared(module, public)]
    own = sorted(set(module.__all__) - set(shared))
    links = ", ".join(f"[`{public}`][sbpair.{public}]" for public in sorted(shared))
    directives = "\n".join(f"::: {name}.{public}\n" for public in own)
    return (f"The same objects as in `sbpair`: {links}.\n\n" if shared else "") + directives


def _is_shared(module: ModuleType, name: str) -> bool:
    import sbpair

    return getattr(module, name) is getattr(sbpair, name)


BLOCKS: dict[str, Callable[[], str]] = {
    **{f"emulator-{language}": partial(emulator, language) for language in EMULATOR},
    **{f"api-{page}": partial(api, module) for page, module in API.items()},
}
