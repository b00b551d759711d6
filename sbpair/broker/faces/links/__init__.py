"""AMQP: a client's connection, its links, and what each of them is answered."""
