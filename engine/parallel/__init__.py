"""One model on several devices: processes that each hold a part of it and compute every step together."""
