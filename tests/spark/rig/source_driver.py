"""A driver that is killed with -9 when a batch is written but not committed.

Arguments: bootstrap, topic, checkpoint, folder for batches, number of the batch in which to die,
how many offsets a batch waits for.
"""

import os
import signal
import sys
from typing import Any

from batch_folders import write_batches

from tidelog.spark import register, spark_session


def main() -> None:
    bootstrap, topic, checkpoint, out, last, least = sys.argv[1:]
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    spark = spark_session("dies", "local[2]", settings)
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    write = write_batches(out)

    def write_and_die(frame: Any, batch: int) -> None:
        write(frame, batch)
        if batch == int(last):
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    frame = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("minOffsetsPerTrigger", least)
        .option("maxTriggerDelay", "10m")
        .load()
    )
    query = (
        frame.writeStream.foreachBatch(write_and_die)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination(500)


if __name__ == "__main__":
    main()
