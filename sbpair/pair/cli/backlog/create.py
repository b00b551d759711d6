"""`sbpair backlog create`: create the missing backlog queues, or print a Bicep template that does."""

from __future__ import annotations

from collections.abc import Iterable

import click

from sbpair.pair.cli.backlog.target import BacklogTarget, with_target
from sbpair.pair.cli.connection import administering
from sbpair.pair.cli.namespaces import MAX_BACKLOGS
from sbpair.pair.envelope.names import backlog_queue_name, ordered_backlog_name
from sbpair.pair.ground import entity_settings as settings
from sbpair.pair.pairing.shared.backlog import FOREVER

API_VERSION = "2021-11-01"
# the same as Backlogs creates; a test compares the two
PROPERTIES: tuple[tuple[settings.EntitySetting, str], ...] = (
    (settings.SIZE, "5120"),
    (settings.MAX_DELIVERIES, str(settings.MAX_DELIVERIES.high)),
    (settings.TIME_TO_LIVE, f"'{FOREVER}'"),
    (settings.DELETE_WHEN_IDLE, f"'{FOREVER}'"),
    (settings.LOCK_DURATION, "'PT1M'"),
    (settings.DEAD_LETTER_EXPIRED, "true"),
    (settings.BATCHED_OPERATIONS, "true"),
    (settings.PARTITIONING, "isPartitioned"),
)
TEMPLATE = """\
// The backlog queues of {label}. Deploy into the resource group of the secondary namespace:
//   az deployment group create -g RESOURCE_GROUP -f backlogs.bicep -p namespaceName=SECONDARY

@description('The existing secondary namespace.')
param namespaceName string

@description('backlog_queue_count of the senders and the syphon.')
@minValue(1)
param backlogCount int = {count}

@description('true for a partitioned Premium namespace, which takes no other queues.')
param isPartitioned bool = false

resource secondary 'Microsoft.ServiceBus/namespaces@{version}' existing = {{
  name: namespaceName
}}

// {example}: resource names use '~' for '/'.
resource backlogs 'Microsoft.ServiceBus/namespaces/queues@{version}' = [for i in range(0, backlogCount): {{
  parent: secondary
  name: '{name}${{i}}'
  properties: {{
{properties}
  }}
}}]
"""


ORDERED_TEMPLATE = """
// {example}: the ordered ones, one session at a time.
resource orderedBacklogs 'Microsoft.ServiceBus/namespaces/queues@{version}' = [for i in range(0, backlogCount): {{
  parent: secondary
  name: '{name}${{i}}'
  properties: {{
{properties}
  }}
}}]
"""


@click.command("create")
@with_target
@click.option(
    "--count", type=click.IntRange(1, MAX_BACKLOGS), help="The number of queues.  [default: as --backlogs]"
)
@click.option(
    "--print", "form", type=click.Choice(["bicep"]), help="Print a template instead of creating queues."
)
@click.option(
    "--twins",
    is_flag=True,
    help="Also create the entities of the primary that the secondary lacks; needs Manage on both.",
)
def create(target: BacklogTarget, count: int | None, form: str | None, twins: bool) -> None:
    """Create the missing backlog queues; existing ones are not changed.

    With --ordered, also creates the ordered ones, for senders with ordering="session".

    Needs the Manage right on the secondary. If senders must not have it, create the queues
    once with this command or with the template of --print bicep, and set
    assume_backlogs_exist for the senders.

    \b
    Examples:
      sbpair backlog create --count 10
      sbpair backlog create --ordered
      sbpair backlog create --twins
      sbpair backlog create --primary contoso --print bicep > backlogs.bicep
    """
    wanted = count or target.count
    if form is not None:
        click.echo(bicep(target.label, wanted, is_ordered=target.is_ordered), nl=False)
        return
    from sbpair.pair.pairing.shared.backlog import Backlogs

    with administering():
        backlogs = Backlogs(target.label, wanted, target.administration, is_ordered=target.is_ordered)
        created = backlogs.ensure()
    for name in created:
        click.echo(f"created {name}")
    total = 2 * wanted if target.is_ordered else wanted
    click.echo(f"{len(created)} created, {total - len(created)} existed")
    if twins:
        create_twins(target)


def create_twins(target: BacklogTarget) -> None:
    """Create the twins that the secondary lacks, and print their paths."""
    from sbpair.pair.cli.twins import create_missing

    with administering(), target.administration_of_primary() as primary, target.administration() as secondary:
        made = create_missing(primary, secondary)
    for path in made:
        click.echo(f"created {path}")
    click.echo(f"twins created: {len(made)}")


def bicep(label: str, count: int, *, is_ordered: bool = False) -> str:
    """Render the Bicep template for ``count`` backlog queues of the primary called ``label``.

    Resource Manager reserves ``/``: in resource names the path of a queue is written with ``~``.
    """
    example = backlog_queue_name(label, 0)
    text = TEMPLATE.format(
        label=label,
        count=count,
        version=API_VERSION,
        example=example,
        name=_resource_name(example),
        properties=_render(PROPERTIES),
    )
    if not is_ordered:
        return text
    example = ordered_backlog_name(label, 0)
    properties = _render((*PROPERTIES, (settings.SESSIONS, "true")))
    return text + ORDERED_TEMPLATE.format(
        version=API_VERSION, example=example, name=_resource_name(example), properties=properties
    )


def _resource_name(example: str) -> str:
    return example.removesuffix("0").replace("/", "~").replace("'", "\\'")


def _render(properties: Iterable[tuple[settings.EntitySetting, str]]) -> str:
    elements = ((each.element, value) for each, value in properties)
    return "\n".join(f"    {name[0].lower()}{name[1:]}: {value}" for name, value in elements)
