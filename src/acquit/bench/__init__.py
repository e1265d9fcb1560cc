"""A load generator for brokers: how fast messages go through one, and how late they come.

It speaks AMQP 1.0 with our own client and knows nothing of the broker at the other end, so that ``acquit bench``
measures any of them in the same way. `plan` says what is to be measured and what was found, `latency` counts times,
`run` sends and receives.
"""
