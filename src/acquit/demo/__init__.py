"""``acquit demo``: a pipeline over real files, with kills, and a balance sheet at the end.

`play.run` plays it; nothing is imported here, so that the child processes start quickly. The parts, in the order in
which a file meets them:

    manifest   the frozen list of what must be accounted for         messages   what a posting looks like
    roles      producers post the files, workers check and forward   checks     is a file what its name claims?
    collector  fills a SQLite table, where there is no Spark         ingest     fills a Delta table, where there is
    chaos      who is killed when                                    children   processes, and certainty that they end
    sheet      manifest, journal and table compared                  broker     ``acquit serve``, to be killed
    stage      what a spectator sees                                 play       the order of all this
"""
