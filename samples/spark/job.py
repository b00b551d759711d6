"""Orders that wait become invoices, sent through a pair: a job for spark-submit and for Spark Connect.

The environment has the connection strings, as `sbpair broker --print-env` prints them:

    spark-submit --py-files sbpair.zip job.py CHECKPOINT
    SPARK_REMOTE=sc://HOST:15002 python job.py CHECKPOINT sbpair.zip
"""

import sys

from pyspark.sql import SparkSession

from sbpair.spark import register

PRIMARY = {"connectionString": "env:SBPAIR_PRIMARY"}
PAIR = PRIMARY | {"secondaryConnectionString": "env:SBPAIR_SECONDARY", "primaryNamespaceName": "contoso"}
INVOICE = "concat('invoice for ', cast(body AS string)) AS body"
KEY = "concat_ws(':', namespace, queue, sequence_number) AS message_id"  # the same when a batch runs again


def main(checkpoint: str, *packages: str) -> None:
    spark = SparkSession.builder.appName("invoices").getOrCreate()
    for package in packages:
        spark.addArtifacts(package, pyfile=True)
    register(spark)
    orders = spark.readStream.format("sbpair").options(
        **PRIMARY, queueName="orders", settlement="complete", outageTimeout="600"
    )
    query = (
        orders.load()
        .selectExpr(INVOICE, KEY)
        .writeStream.format("sbpair")
        .options(**PAIR, entityPath="invoices", outageTimeout="600")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    invoices = spark.read.format("sbpair").options(**PRIMARY, queueName="invoices").load()
    print("invoices that wait:", invoices.count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
