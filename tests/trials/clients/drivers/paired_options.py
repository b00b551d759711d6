"""The options of the paired drivers, by the name they are started with."""

from __future__ import annotations

from datetime import timedelta

from sbpair import PairedNamespaceOptions
from sbpair.processor import ProcessorOptions

BACKLOGS = 2
PAIRED = {
    # failover only after a minute, and errors until then: no fault of the table makes it use the secondary
    "raise": PairedNamespaceOptions(
        primary_namespace_name="contoso", backlog_queue_count=BACKLOGS, suspect_policy="raise"
    ),
    "failover": PairedNamespaceOptions(
        primary_namespace_name="contoso",
        backlog_queue_count=BACKLOGS,
        failover_interval=timedelta(0),
        ping_primary_interval=timedelta(seconds=1),
    ),
}
# one message at a time, settled by the commands that come in
PROCESSOR = ProcessorOptions(max_concurrent_calls=1, autosettle=False)
