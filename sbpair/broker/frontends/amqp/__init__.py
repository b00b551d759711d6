"""The AMQP frontend: a client's connection, its links, and the node behind each of them."""
