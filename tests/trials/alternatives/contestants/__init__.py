"""The contestants: each a module with a class Sender, of which one object is shared by all threads."""
