"""What can be asked of a running broker.

`management` reads requests and words answers, `management_node` has their links, `administration` does what they ask:
`moving`, `purging`, `schedule`. `reload` says what another configuration changes.
"""
