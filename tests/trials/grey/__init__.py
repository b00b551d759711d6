"""A primary that is only half down, in virtual time: what the callers of many clients get."""
