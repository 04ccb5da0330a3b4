"""The parts of the main screen. Messages, the prompt and the small plots are in `termchat.widgets`."""
