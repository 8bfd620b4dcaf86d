"""Write what the role driver has to know of GPUs, from the tables of lpxdoctor/knowledge: one line for each PCI id.

python docs/gpu_table.py > playbooks/roles/driver/vars/main/gpus.yml
"""

import sys

from lpxdoctor import knowledge

HEAD = """---
# Written by docs/gpu_table.py from lpxdoctor/knowledge/gpu.toml: not to be edited here.
# open: whether the open kernel module is unsupported, supported or required. branch: the first that knows the GPU, 0
# where every branch in use does. board: whether it sits on a board with NVSwitches; c2c: whether on one with its CPU.
driver_gpus:
"""


def page() -> str:
    """Return the file."""
    known = knowledge.load()
    rows: dict[str, str] = {}
    for gpu in known.gpus:
        capability = known.capability(gpu.cc)
        branch = (capability.first_branch if capability else None) or 0
        board = gpu.nvlink == "board" and not gpu.c2c
        for device in gpu.pci:
            open_modules = known.open_modules_of(gpu) or "supported"
            text = f"{{name: {gpu.name}, open: {open_modules}, branch: {branch}, board: {board}, c2c: {gpu.c2c}}}"
            rows.setdefault(device, text.replace("True", "true").replace("False", "false"))
    return HEAD + "".join(f'  "{device}": {text}\n' for device, text in sorted(rows.items()))


if __name__ == "__main__":
    sys.stdout.write(page())
