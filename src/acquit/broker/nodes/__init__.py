"""Nodes that addresses stand for: queues, topics, subscriptions, temporary nodes.

`addresses` knows names and policies; `finding` says what an address means to a link. `node` is a queue, `topics` has
those whose messages go to subscriptions. `queues`, `subscriptions` and `temporary` make them, `removal` deletes them,
whoever uses them.
"""
