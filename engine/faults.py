"""What is said where something fails that nobody foresaw: the exception as an error for people."""

from __future__ import annotations

from kernels.program import DeviceFault

from .types import EngineError


def of_request(fault: Exception) -> EngineError:
    """Why one request ended that failed by itself, while all others go on."""
    if isinstance(fault, EngineError):
        return fault
    if isinstance(fault, MemoryError):
        return _too_large(fault)
    return EngineError("request_failed", f"this reply failed: {_named(fault)}")


def of_prompt(fault: BaseException) -> EngineError:
    """Why a prompt could not be prepared."""
    if isinstance(fault, MemoryError):
        return _too_large(fault)
    return EngineError("request_failed", f"the prompt could not be prepared: {_named(fault)}")


def of_thread(fault: RuntimeError) -> EngineError:
    """The system gives no thread."""
    hint = "allow this user more processes (ulimit -u)"
    return EngineError("engine_failed", f"the engine's threads cannot be started ({fault}); {hint}")


def of_call(fault: Exception) -> EngineError:
    """Why a call of the engine is not answered."""
    return EngineError("engine_failed", _named(fault))


def of_engine(fault: BaseException, model: object, *, loaded: bool) -> EngineError:
    """Why the engine ended, while its model was being loaded or afterwards."""
    if isinstance(fault, EngineError):
        return fault
    if loaded or isinstance(fault, DeviceFault):
        what = fault if isinstance(fault, DeviceFault) else _named(fault)
        return EngineError("engine_failed", f"the engine stopped: {what}; restart termchat")
    if isinstance(fault, MemoryError):
        return EngineError("out_of_memory", f"{model} does not fit: {fault}")
    if isinstance(fault, ImportError):  # the installation's fault, not the model's
        what = "a library that termchat needs can't be imported"
        return EngineError("engine_failed", f"{what}: {fault}; install it again")
    return EngineError("model_invalid", f"{model}: {_named(fault)}")


def _too_large(fault: MemoryError) -> EngineError:
    return EngineError("out_of_memory", f"this request does not fit into memory: {str(fault) or 'no more'}")


def _named(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}"
