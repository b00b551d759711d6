"""How are a rate and a size said on the command line?"""

from __future__ import annotations

import re

import click

from sbpair.cli.option_flags import UNITS

BYTES = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "kB": 1000, "MB": 1000**2}
NUMBER = r"(\d{1,12}(?:\.\d{1,6})?)"
RATE = re.compile(rf"{NUMBER}(?:/(s|m|h))?", re.ASCII)
SIZE = re.compile(rf"{NUMBER} ?({'|'.join(filter(None, BYTES))})?", re.ASCII)


class Rate(click.ParamType[float]):
    """Messages a second: `200/s`, `5000/m`, or a plain number."""

    name = "rate"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = RATE.fullmatch(str(value).strip())
        rate = float(match[1]) / UNITS[match[2] or "s"] if match else 0.0
        if rate <= 0:
            self.fail(f"{value!r} is not a rate such as 200/s, 5000/m or 12", param, ctx)
        return rate


class Size(click.ParamType[int]):
    """Bytes: `1KiB`, `256kB`, or a plain number."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a size such as 1KiB, 256kB or 1000", param, ctx)
        return int(float(match[1]) * BYTES[match[2] or ""])
