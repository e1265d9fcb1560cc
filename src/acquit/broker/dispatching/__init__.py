"""Messages go out: which one is for whom, in which order.

`dispatch` is the pass over queues where something changed. `backlog` is what waits, in order. Where not every
consumer would take every message, `choosing` places them by what consumers want (`interest`, `groups`) and keeps
`aside` what nobody there may have; `succession` says who is served at all. `sending` writes transfers, with `tags`;
`browsing` and `reading` are for links that acquire nothing.
"""
