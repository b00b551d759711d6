"""What a team would write in place of a paired client, and what each of it stores while a namespace fails."""
