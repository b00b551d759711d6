"""`sbpair spark`: the commands that run Spark on this machine."""

from __future__ import annotations

import click

from sbpair.data.cli.audit import command as audit
from sbpair.data.cli.spark.settle import settle

from .pair_jobs import drain, replay


@click.group("spark")
def command() -> None:
    """Audit journals, drain backlogs and settle checkpoints with Spark.

    Needs the extra sbpair[spark], and Java 17 or later or the extra sbpair[jdk].
    """


for each in (audit, drain, replay, settle):
    command.add_command(each)
