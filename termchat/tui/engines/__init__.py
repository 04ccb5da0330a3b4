"""The models in use: found, loaded, watched."""
