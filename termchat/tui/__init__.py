"""The full-screen terminal interface: `app.py` puts it together."""
