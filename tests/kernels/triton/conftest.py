import os

# Read when kernels are first imported: they are interpreted with numpy then, on any machine.
os.environ["TRITON_INTERPRET"] = "1"
