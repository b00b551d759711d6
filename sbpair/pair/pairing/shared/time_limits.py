"""Time limits in seconds for a client's own operations other than sends."""

MAX_PROBE_SECONDS = 15.0  # for a probe of a side that refused the client, with its link
MAX_ENTRY_SECONDS = 1.0  # that entering a sender waits for its link, which a silent primary never opens
MAX_PING_SECONDS = 30.0  # for one ping, including opening its link
MOMENT = 0.01  # between two looks of a send that waits for the spool
CLOSING = 5.0  # that close() waits for operations in progress
SPOOL_CLOSING = 2.0  # that it then waits for the disk of the spool
