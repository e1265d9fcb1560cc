"""The administration of a running broker: requests to ``$management``, moves, purges and reloads.

`management` reads requests and words answers, `management_node` has their links, `administration` does what they ask:
`moving`, `purging`, `schedule`. `reload` says what another configuration changes.
"""
