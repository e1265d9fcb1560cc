"""The sink: rows of a batch or of a stream as messages, ``df.write.format("acquit")`` and ``writeStream``.

`options` are what it is told, `rows` makes messages of rows, `poster` posts those of one task, each once where the
broker grants that, and `writers` adapt all of it to PySpark. `docs/spark-sink.md` is for users.

**How a row is posted once.** A task may die, be run again, or run twice at once, and a batch may be run again after a
restart. So each row has an id that is the same whenever it is made again, ``query:batch:partition:index``, and the
broker tells the repeated ones:

    acquit                     the sender's mark (docs/duplicates.md), which knows any number of rows by one number.
                               The rows must come in the same order again: a checksum that the mark keeps tells if not
    Artemis, or an id column   the id in ``_AMQ_DUPL_ID``, for a window of ids that the user states
    any other                  not at all: at-least-once must be asked for
"""
