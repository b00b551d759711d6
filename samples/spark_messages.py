"""A stream of messages in Spark: consumed from a queue, and sent on through a pair."""

import tempfile

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.broker import Broker
from sbpair.data.spark.session import SHORT_JOB
from sbpair.spark import build_session


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker, tempfile.TemporaryDirectory() as state:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        for queue in ("orders", "invoices"):
            primary.create_queue(queue)
        client = ServiceBusClient.from_connection_string(primary.connection_string)
        with client, client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(f"order {number}") for number in range(25)])
        spark = build_session("sample", master="local[1,2]", settings=SHORT_JOB)
        orders = spark.readStream.format("sbpair").options(
            connectionString=primary.connection_string, queueName="orders", settlement="complete"
        )
        query = (
            orders.load()
            .selectExpr("concat('invoice for ', cast(body as string)) body")
            .writeStream.format("sbpair")
            .options(connectionString=primary.connection_string, entityPath="invoices")
            .options(secondaryConnectionString=secondary.connection_string, primaryNamespaceName="contoso")
            .options(checkpointLocation=state, assumeBacklogsExist="true")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        left = [primary.counts(queue).active for queue in ("orders", "invoices")]
        print("orders that wait, and invoices:", left)
        spark.read.format("sbpair").options(
            connectionString=primary.connection_string, queueName="invoices"
        ).load().selectExpr("cast(body as string) invoice").orderBy("sequence_number").show(3, truncate=False)
        spark.stop()
        assert left == [0, 25]


if __name__ == "__main__":
    main()
