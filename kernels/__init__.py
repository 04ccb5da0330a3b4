"""Compute operations behind one interface; knows neither the engine nor the application."""
