"""AMQP 1.0 without sockets: a client's and a server's protocol machine, and the codec under it.

Standard library only. Time is an argument, bytes go in and out by method calls.
"""
