"""Which Bicep template makes the backlog queues, where senders have no Manage right? (P-11)

Resource Manager reserves ``/`` for itself: in its names a queue's path is written with ``~``. Pure.
"""

from __future__ import annotations

from sbpair.pairing.backlog import FOREVER
from sbpair.pairing.names import backlog_queue_name

API_VERSION = "2021-11-01"

# as Backlogs creates them; a test holds the two against each other
PROPERTIES: tuple[tuple[str, str], ...] = (
    ("maxSizeInMegabytes", "5120"),
    ("maxDeliveryCount", str(2**31 - 1)),
    ("defaultMessageTimeToLive", f"'{FOREVER}'"),
    ("autoDeleteOnIdle", f"'{FOREVER}'"),
    ("lockDuration", "'PT1M'"),
    ("deadLetteringOnMessageExpiration", "true"),
    ("enableBatchedOperations", "true"),
)

TEMPLATE = """\
// The backlog queues of {label}. Deploy into the resource group of the secondary namespace:
//   az deployment group create -g RESOURCE_GROUP -f backlogs.bicep -p namespaceName=SECONDARY

@description('The secondary namespace, which exists.')
param namespaceName string

@description('As many as senders and syphon are told: backlog_queue_count.')
@minValue(1)
param backlogCount int = {count}

resource secondary 'Microsoft.ServiceBus/namespaces@{version}' existing = {{
  name: namespaceName
}}

// {example}: '~' stands for '/' in the names of Resource Manager.
resource backlogs 'Microsoft.ServiceBus/namespaces/queues@{version}' = [for i in range(0, backlogCount): {{
  parent: secondary
  name: '{name}${{i}}'
  properties: {{
{properties}
  }}
}}]
"""


def bicep(label: str, count: int) -> str:
    """A template for ``count`` backlog queues of the primary called ``label``."""
    example = backlog_queue_name(label, 0)
    return TEMPLATE.format(
        label=label,
        count=count,
        version=API_VERSION,
        example=example,
        name=example.removesuffix("0").replace("/", "~").replace("'", "\\'"),
        properties="\n".join(f"    {name}: {value}" for name, value in PROPERTIES),
    )
