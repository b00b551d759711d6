"""What lives in a sender's process beside its senders: the syphon, and those who watch.

pairing names the two modules in one place (pairing/companion.py) and loads them when a client's options ask
for them; so it needs neither the AMQP engine nor an HTTP library, and stands on no room above it.
"""
