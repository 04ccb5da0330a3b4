"""`termchat doctor`: what this machine offers, what is used of it, and what is wrong."""
