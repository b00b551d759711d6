"""A Celery app that takes tasks in an outage, too; publishers and workers import it.

celery -A tasks worker --pool solo --without-gossip --without-mingle --without-heartbeat
"""

from celery import Celery
from kombu.transport import azureservicebus

from sbpair import PairedServiceBusClient

client = PairedServiceBusClient.from_environment(retry_total=1)
stand_in = client.stand_in()
azureservicebus.ServiceBusClient = stand_in
azureservicebus.ServiceBusAdministrationClient = stand_in.administration

# The URL selects the transport; the namespaces are those of the paired client.
app = Celery("tasks", broker="azureservicebus://unused:unused@unused")
app.conf.update(
    task_default_queue="orders",
    worker_enable_remote_control=False,  # its reply queues would be queues of the namespace
    broker_connection_retry_on_startup=True,  # a worker that starts in an outage waits
)


@app.task(acks_late=True)
def ship(order: int) -> None:
    print(f"shipped order {order}", flush=True)
