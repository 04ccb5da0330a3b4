from engine.chunking import FIRST_GUESS, SMALLEST, TARGET_SECONDS, ChunkBudget


def test_a_fixed_chunk_stays() -> None:
    chunks = ChunkBudget(24, 512)
    chunks.observe(10.0, 24)
    assert chunks.limit() == 24


def test_the_chunk_fills_the_target_on_top_of_a_decode_step() -> None:
    chunks = ChunkBudget(None, 512)
    assert chunks.limit() == FIRST_GUESS
    for _ in range(50):
        chunks.observe(0.010, 0)
        chunks.observe(0.010 + 100 * 0.001, 100)
    assert abs(chunks.limit() - (TARGET_SECONDS - 0.010) / 0.001) <= 2


def test_a_machine_slower_than_the_target_still_prefills() -> None:
    chunks = ChunkBudget(None, 512)
    for _ in range(20):
        chunks.observe(0.4, 0)
        chunks.observe(0.4 + 32 * 0.005, 32)
    assert abs(chunks.limit() - 0.2 / 0.005) <= 1
    chunks.observe(100.0, 16)
    assert chunks.limit() >= SMALLEST


def test_a_small_first_prompt_says_nothing_about_the_cost_of_a_row() -> None:
    chunks = ChunkBudget(None, 512)
    chunks.observe(0.5, 7)
    assert chunks.limit() == FIRST_GUESS
