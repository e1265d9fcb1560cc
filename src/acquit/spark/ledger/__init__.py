"""The journals of brokers as a table of delivery events: the batch source `acquit.ledger`.

`options` are read once, `chain` lists the segments of each folder and what the hash chain says of them, `segments`
reads one and holds it to that, `names` finds what its numbers of queues and links stand for, `columns` makes Arrow of
it. All of them run without Spark; `source` is the adapter.

Nothing is imported here: `acquit.spark.ledger.source` needs pyspark, the others numpy and pyarrow at most.
"""
