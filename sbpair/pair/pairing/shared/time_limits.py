"""How long a client waits for its own operations beside the sends, in seconds."""

MAX_PROBE_SECONDS = 15.0  # for a probe of a side that refused the client, with its link
MAX_ENTRY_SECONDS = 5.0  # that entering a sender waits for its link
MAX_PING_SECONDS = 30.0  # for one ping, including opening its link
CLOSING = 5.0  # that close() waits for operations in progress
SPOOL_CLOSING = 2.0  # that it then waits for the disk of the spool
