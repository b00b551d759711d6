"""The blocks of the docs that are whole programs of samples/."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.tools.source import ROOT

SAMPLES = {
    "fastapi": "web/orders_fastapi.py",
    "flask": "web/orders_flask.py",
    "celery": "celery/tasks.py",
}
"""The programs by the name of their block; tests/pair/outage/test_web.py and test_celery.py run them."""


def sample(file: str) -> str:
    return f"```python\n{(ROOT / 'samples' / file).read_text('utf-8')}```\n"


BLOCKS: dict[str, Callable[[], str]] = {
    f"sample-{name}": partial(sample, file) for name, file in SAMPLES.items()
}
