"""The admission of peers: listeners, authentication, permissions and quotas.

`listeners` opens sockets for TLS and the SASL mechanisms that are for them; `logins` goes through a mechanism with the
keys of `users`, which `users_file` keeps; `permissions` says what a user may do where, `admission` which connections
may be open.
"""
