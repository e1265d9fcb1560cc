"""Transactions: what happens together, or not at all (specification 4).

`coordinator` answers control links; `transactions` holds what they declare, each a `transaction`, and ends it;
`held_postings` records what is posted in one; `fates` tells who lost the answer.
"""
