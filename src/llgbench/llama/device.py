"""Devices as ggml knows them: their names, what they have, and whether a model's work lies on one.

llama.cpp puts on the CPU what a device cannot take, or what it was not asked to offload, and says
so in a log at most. So a model that was loaded for a device is asked: :func:`elsewhere` decodes one
token and looks where each matrix product of the graph was placed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from llgbench.errors import UnavailableError
from llgbench.llama.api import first_error, llama, quiet

CPU = "cpu"

# ggml-backend.h's ggml_backend_dev_type.
_KINDS = ("CPU", "GPU", "integrated GPU", "accelerator", "meta")
_REMEDY = "docs/cuda.md has the commands that build llama.cpp with a device"

# What a backend's devices are called besides the backend's own name.
_ALSO = {"metal": "mtl", "mtl": "metal"}


@dataclass(frozen=True)
class Device:
    """A device of ggml's.

    Attributes:
        name: ggml's, such as ``CUDA0``, ``Vulkan0``, ``CPU``.
        description: the hardware, in the driver's words.
        backend: ggml's name of the backend, such as ``CUDA``.
        kind: CPU, GPU, integrated GPU, accelerator.
        memory_mib: in all; 0 where the backend does not say.
        free_mib: now.
        driver: its version, ``unknown`` where nobody says.
        index: in ggml's list.
    """

    name: str
    description: str
    backend: str
    kind: str
    memory_mib: int
    free_mib: int
    driver: str
    index: int

    def facts(self) -> dict[str, str]:
        """Return what a record says of it; of the CPU, which the provenance describes, its kind."""
        if self.kind == _KINDS[0]:
            return {"kind": CPU}
        return {
            "kind": self.backend.lower(),
            "name": f"{self.name}: {self.description}",
            "driver": self.driver,
        }


@lru_cache(maxsize=1)
def _ggml() -> Any:
    """Return ggml's functions on devices (ggml-backend.h), declared for ctypes."""
    llama()
    from llama_cpp import llama_cpp as c

    # llama.cpp links the libraries of ggml, so its symbols are found through it.
    library = ctypes.CDLL(c._lib._name)
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("ggml_backend_dev_count", size, []),
        ("ggml_backend_dev_get", pointer, [size]),
        ("ggml_backend_dev_name", text, [pointer]),
        ("ggml_backend_dev_description", text, [pointer]),
        ("ggml_backend_dev_type", ctypes.c_int, [pointer]),
        ("ggml_backend_dev_memory", None, [pointer, ctypes.POINTER(size), ctypes.POINTER(size)]),
        ("ggml_backend_dev_backend_reg", pointer, [pointer]),
        ("ggml_backend_reg_name", text, [pointer]),
        ("ggml_backend_buffer_get_type", pointer, [pointer]),
        ("ggml_backend_buft_get_device", pointer, [pointer]),
        ("ggml_backend_buft_is_host", ctypes.c_bool, [pointer]),
        ("ggml_get_name", text, [pointer]),
        ("ggml_op_desc", text, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def devices() -> list[Device]:
    """Return every device that ggml knows here, the CPU among them.

    Raises:
        UnavailableError: llama.cpp is not to be had.
    """
    ggml = _ggml()
    found = []
    for index in range(ggml.ggml_backend_dev_count()):
        handle = ggml.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
        kind = ggml.ggml_backend_dev_type(handle)
        backend = _text(ggml.ggml_backend_reg_name(ggml.ggml_backend_dev_backend_reg(handle)))
        description = _text(ggml.ggml_backend_dev_description(handle))
        found.append(
            Device(
                name=_text(ggml.ggml_backend_dev_name(handle)),
                description=description,
                backend=backend,
                kind=_KINDS[kind] if kind < len(_KINDS) else "unknown",
                memory_mib=total.value >> 20,
                free_mib=free.value >> 20,
                driver=_driver(backend, description),
                index=index,
            )
        )
    return found


def find(name: str) -> Device:
    """Return a device by ggml's name, or the first of its kind: ``CUDA1``, ``cuda``, ``Metal``.

    Raises:
        UnavailableError: there is none; the message says which there are.
    """
    known = devices()
    wanted = name.lower()
    for device in known:
        if device.name.lower() == wanted:
            return device
    for device in known:
        if device.backend.lower() in (wanted, _ALSO.get(wanted)):
            return device
    usable = ", ".join(d.name for d in known)
    raise UnavailableError(
        f"--device {name}: this llama.cpp has no such device, only {usable}; {_REMEDY}"
    )


def handle_of(device: Device) -> int:
    """Return a device's ``ggml_backend_dev_t``, as an address."""
    return int(_ggml().ggml_backend_dev_get(device.index))


class _Tensor(ctypes.Structure):
    """The head of ggml.h's ggml_tensor."""

    _fields_ = [("type", ctypes.c_int), ("buffer", ctypes.c_void_p)]


def elsewhere(model: Any, device: Device) -> tuple[int, list[str]]:
    """Decode one token and look where the matrix products of the graph were placed.

    Args:
        model: ``llama_model_p`` of llama-cpp-python.
        device: where they should be.

    Returns:
        How many there are, and the names of those that lie on another device.

    Raises:
        UnavailableError: llama.cpp does not decode.
    """
    from llama_cpp import llama_cpp as c

    ggml = _ggml()
    products: dict[str, bool] = {}

    def look(address: int, ask: bool, _: Any) -> bool:
        if ask and ggml.ggml_op_desc(address).startswith(b"MUL_MAT"):
            buffer = _Tensor.from_address(address).buffer
            kind = buffer and ggml.ggml_backend_buffer_get_type(buffer)
            where = kind and ggml.ggml_backend_buft_get_device(kind)
            # A device gives out memory of the host, too, which it reads fast; the CPU works there.
            there = where and not ggml.ggml_backend_buft_is_host(kind)
            on = _text(ggml.ggml_backend_dev_name(where)) if there else "CPU"
            products[_text(ggml.ggml_get_name(address))] = on == device.name
        return False  # not to be stopped at

    callback = c.ggml_backend_sched_eval_callback(look)
    params = c.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 64
    params.n_seq_max = 1
    params.cb_eval = callback
    params.offload_kqv = device.kind != _KINDS[0]
    with quiet():
        context = c.llama_init_from_model(model, params)
        if not context:
            raise UnavailableError(f"--device {device.name}: no context: {first_error()}")
        try:
            token = (c.llama_token * 1)(0)
            status = c.llama_decode(context, c.llama_batch_get_one(token, 1))
            c.llama_synchronize(context)
        finally:
            c.llama_free(context)
    if status != 0:
        raise UnavailableError(f"--device {device.name}: llama_decode returns {status}")
    return len(products), [name for name, there in products.items() if not there]


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _driver(backend: str, description: str) -> str:
    known: dict[str, Callable[[str], str]] = {"CUDA": _cuda_driver, "Vulkan": _vulkan_driver}
    if backend not in known:
        return "unknown"
    return known[backend](description)


def _cuda_driver(_: str) -> str:
    with suppress(OSError, IndexError):
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    with suppress(OSError, AttributeError):
        version = ctypes.c_int(0)
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return "unknown"


def _vulkan_driver(description: str) -> str:
    """Return the driver of the Vulkan device of that name, by vkGetPhysicalDeviceProperties."""
    with suppress(OSError, AttributeError):
        vulkan = ctypes.CDLL("libvulkan.so.1")
        # VkInstanceCreateInfo: a type of 1, and nothing asked for.
        create = (ctypes.c_uint64 * 8)(1)
        instance, count = ctypes.c_void_p(), ctypes.c_uint32()
        if vulkan.vkCreateInstance(create, None, ctypes.byref(instance)) != 0:
            return "unknown"
        try:
            vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
            handles = (ctypes.c_void_p * count.value)()
            vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
            for handle in handles:
                # VkPhysicalDeviceProperties: five words, the name, and some 550 bytes more.
                data = ctypes.create_string_buffer(2048)
                vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), data)
                if _text(data.raw[20:276].partition(b"\0")[0]) == description:
                    api, driver = (int.from_bytes(data.raw[at : at + 4], "little") for at in (0, 4))
                    return f"Vulkan {_version(api)}, driver {_version(driver)}"
        finally:
            vulkan.vkDestroyInstance(instance, None)
    return "unknown"


def _version(word: int) -> str:
    return f"{word >> 22 & 0x7F}.{word >> 12 & 0x3FF}.{word & 0xFFF}"
