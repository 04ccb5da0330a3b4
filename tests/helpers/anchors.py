"""What the default model says (docs/cases.md)."""

COUNT = "Count from 1 to 10."
COUNT_IDS = [
    1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182,
    2, 198, 1, 4093, 198, 9825, 429, 216, 33, 288, 216, 33, 32, 30, 2, 198, 1, 520, 9531, 198,
]  # fmt: skip
"""A1: the prompt `COUNT` with the model's own template and system turn."""
COUNT_REPLY = [
    33, 30, 216, 33, 198, 34, 30, 216, 34, 198, 35, 30, 216, 35, 198, 36, 30, 216, 36, 198,
    37, 30, 216, 37, 198,
    38, 30, 216, 38, 198, 39, 30, 216, 39, 198, 40, 30, 216, 40, 198, 41, 30, 216, 41, 198,
    33, 32, 30, 216, 33, 32,
]  # fmt: skip
"""A1: its first 51 greedy tokens."""
COUNT_TEXT = "\n".join(f"{i}. {i}" for i in range(1, 11))
FACES = "🫠" * 8
FACES_IDS = [10813, 121, 250] * 8
