"""`sbpair spark`: what needs Spark, on this machine."""

from __future__ import annotations

import click

from sbpair.cli.spark.audit import audit
from sbpair.cli.spark.drain import drain
from sbpair.cli.spark.replay import replay
from sbpair.cli.spark.settle import settle


@click.group("spark")
def command() -> None:
    """Audit journals, drain backlogs, settle checkpoints: with Spark.

    Needs the extra sbpair[spark], and Java 17 or later or the extra sbpair[jdk].
    """


for each in (audit, drain, replay, settle):
    command.add_command(each)
