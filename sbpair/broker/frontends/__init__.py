"""Frontends: AMQP links, the administration API, REST and the dashboard over one namespace.

No sockets here.
"""
