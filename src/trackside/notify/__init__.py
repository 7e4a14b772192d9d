"""Tells people and programs of the turns in jobs' lives: words, formats, webhooks, mail, and trying again."""
