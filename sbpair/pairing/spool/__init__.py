"""The spool: a file for messages that neither namespace accepts, and their replay in order."""
