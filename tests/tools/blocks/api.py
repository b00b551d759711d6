"""The blocks of the docs with the API and the snippets of the emulator page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import getdoc
from types import ModuleType

from tests.tools.source import ROOT, table

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
"""The snippets in samples/emulator by language; tests/broker/interop/test_emulator.py runs each."""


def emulator(language: str) -> str:
    file = EMULATOR[language]
    tag = "bash" if language == "curl" else language.removesuffix("-suite")
    return f"```{tag}\n{(ROOT / 'samples' / 'emulator' / file).read_text('utf-8')}```\n"


API = {
    "client": "sbpair",
    "aio": "sbpair.aio",
    "events": "sbpair.events",
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
    """A table of the public names of a module, for who reads the file, and the site's directives for their entries.

    sbpair.aio links what it shares with sbpair.
    """
    module = import_module(name)
    shared = [public for public in module.__all__ if name == "sbpair.aio" and _is_shared(module, public)]
    own = sorted(set(module.__all__) - set(shared))
    links = ", ".join(f"[`{public}`][sbpair.{public}]" for public in sorted(shared))
    rows = [(f"`{public}`", _summary(getattr(module, public))) for public in own]
    directives = "\n".join(f"::: {name}.{public}\n" for public in own)
    intro = f"The same objects as in `sbpair`: {links}.\n\n" if shared else ""
    return f"{intro}{table(('name', 'what it is'), rows)}\n{directives}"


def _summary(value: object) -> str:
    """The first line of its docstring; of a value, the value."""
    is_described = isinstance(value, type) or callable(value)
    return (getdoc(value) or "").partition("\n")[0] if is_described else f"`{value!r}`"


def _is_shared(module: ModuleType, name: str) -> bool:
    import sbpair

    return getattr(module, name) is getattr(sbpair, name)


BLOCKS: dict[str, Callable[[], str]] = {
    **{f"emulator-{language}": partial(emulator, language) for language in EMULATOR},
    **{f"api-{page}": partial(api, module) for page, module in API.items()},
}
