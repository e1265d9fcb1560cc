"""Outcomes and expiry of messages.

`settling` performs what consumers say, or what it means when they say nothing; `locks` and `expiry` what time says,
by `timers`; `letters` writes what goes to dead letter and expiry addresses.
"""
