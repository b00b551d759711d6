"""The spool: a file for messages that no namespace has yet, and their replay in order."""
