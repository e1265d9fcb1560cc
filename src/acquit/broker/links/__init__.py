"""Links of peers.

`attaching` answers each with `receivers` or `senders`, which say what it gets and why it gets none; `filters` reads
what a receiver wants. `endpoints` is who is there, `crediting` what senders may have.
"""
