"""`termchat batch`: many prompts from a file, answered together."""
