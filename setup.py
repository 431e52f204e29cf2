"""The four folders of the checkout are one import package, tvm_npu; the rest is pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

FOLDERS = {
    "tvm_npu": "tvm_npu",
    "tvm_npu.codegen": "codegen",
    "tvm_npu.runtime": "runtime",
    "tvm_npu.sim": "sim",
}

packages = []
for package, folder in FOLDERS.items():
    if (Path(__file__).parent / folder / "__init__.py").is_file():
        packages.append(package)
        packages += [f"{package}.{inner}" for inner in find_packages(folder)]

setup(packages=packages, package_dir=FOLDERS)
