"""Models as files again: quantized, in one step from the old file to the new one, in bounded memory."""
