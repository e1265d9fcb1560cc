"""Streaming source from a queue to a table through Spark, the spool that makes it exact, and pipelines.

Nothing is imported here: `acquit.spark.spool` needs pyarrow, `acquit.spark.source` needs pyspark, and
`acquit.spark.java` needs neither.
"""
