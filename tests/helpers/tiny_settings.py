"""Settings that tiny models of several families share: how positions turn, how many heads have keys."""

from __future__ import annotations

MHA, MQA = {"num_key_value_heads": 4}, {"num_key_value_heads": 1}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.5}
DYNAMIC_ROPE = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 6.0}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
GROWING_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.4,
}
MROPE = {"rope_type": "default", "rope_theta": 1e5, "mrope_section": [2, 3, 3]}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
OLMO3_ROPE = {"full_attention": YARN_ROPE, "sliding_attention": PLAIN_ROPE}
