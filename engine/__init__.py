"""The inference engine: scheduling, paged KV cache, models, sampling and metrics. Knows no user interface."""
