"""The deployment test set: a folder of real pretrained CNNs, images and reference outputs.

Layout of the folder:

    models/<model>.onnx     float32, NCHW, batch 1, static shapes
    images/<set>/*.png      images at exactly the network's size
    refs/<model>.npz        key `<image>|<output>`: outputs of a reference run
    bulk/                   MNIST test set (gzipped IDX), 500 CIFAR-10 test images, 200
                            photographs (npz)
    labels.csv              file, label, name, source and licence of each image

The folder is no part of a checkout; `find_shared_models` says where it is, if anywhere.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from .errors import ModelDataError, UnknownModelError

ENVIRONMENT_VARIABLE = "TVM_NPU_SHARED_MODELS"

Float = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arithmetic:
    """(x / divisor - mean) / scale on NCHW values 0..255; `bgr` turns the channels round first."""

    divisor: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)
    bgr: bool = False

    def __call__(self, x: Float) -> Float:
        ordered = (x[:, ::-1] if self.bgr else x) / np.float32(self.divisor)
        mean = np.array(self.mean, dtype=np.float32).reshape(1, -1, 1, 1)
        scale = np.array(self.scale, dtype=np.float32).reshape(1, -1, 1, 1)
        return np.ascontiguousarray((ordered - mean) / scale, dtype=np.float32)


@dataclass(frozen=True)
class ModelEntry:
    """How one model of the folder is fed. `arithmetic` maps NCHW 0..255 (RGB or grey)."""

    images: str
    arithmetic: Arithmetic
    label_offset: int = 0
    """Class index of the model = label + offset (1 where class 0 is the background)."""


MODELS = {
    "mnist_cntk": ModelEntry("mnist28", Arithmetic()),
    "squeezenet1.1": ModelEntry("photo224", Arithmetic(mean=(104.0, 117.0, 123.0), bgr=True)),
    "resnet8_cifar10": ModelEntry("cifar32", Arithmetic()),
    "resnet20_cifar10": ModelEntry(
        "cifar32", Arithmetic(255.0, mean=(0.485, 0.456, 0.406), scale=(0.229, 0.224, 0.225))
    ),
    "mobilenet_v2_1.0_224": ModelEntry(
        "photo224", Arithmetic(mean=(127.5,), scale=(127.5,)), label_offset=1
    ),
    "mobilenet_v1_0.25_vww96": ModelEntry("person96", Arithmetic(255.0)),
    "super_resolution_x3": ModelEntry("superres", Arithmetic(255.0)),
    "ultraface_rfb320": ModelEntry("face320x240", Arithmetic(mean=(127.0,), scale=(128.0,))),
}
_TRUTH_SUFFIX = "_truth"


def find_shared_models() -> Path | None:
    """The folder named by TVM_NPU_SHARED_MODELS, else ../shared/models beside the checkout.

    None if there is no such folder, or if the variable is set but empty. A variable that names
    something else than a models folder is an error, not an absence.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named is not None:
        return SharedModels(Path(named)).root if named else None
    beside = Path(__file__).resolve().parents[3] / "shared" / "models"
    return beside if (beside / "models").is_dir() else None


class SharedModels:
    """Reads one such folder; nothing is loaded before it is asked for."""

    def __init__(self, root: Path) -> None:
        for part in ("models", "images", "refs"):
            if not (root / part).is_dir():
                raise ModelDataError(
                    f"{root} has no folder {part}/; allowed: a folder with models/, images/, refs/"
                )
        self.root = root

    def names(self) -> tuple[str, ...]:
        """The models that the folder holds, in the order of `MODELS`."""
        return tuple(name for name in MODELS if (self.root / "models" / f"{name}.onnx").is_file())

    def path(self, name: str) -> Path:
        """The ONNX file of `name`."""
        self._entry(name)
        return self._existing(f"models/{name}.onnx")

    def load(self, name: str) -> onnx.ModelProto:
        return onnx.load(self.path(name))

    def input_name(self, name: str) -> str:
        """The one graph input that is not a weight."""
        graph = self.load(name).graph
        weights = {tensor.name for tensor in graph.initializer}
        return str(next(value.name for value in graph.input if value.name not in weights))

    def inputs(self, name: str) -> list[tuple[str, Float]]:
        """(image name, network input [1, C, H, W]) of every image of the model, by name."""
        return [
            (path.stem, self.preprocess(name, _read_png(path)[None]))
            for path in self._image_paths(name)
        ]

    def preprocess(self, name: str, pixels: Pixels) -> Float:
        """Images [N, H, W, C] 0..255 (RGB or grey) -> what the network wants, [N, C, H, W]."""
        planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).astype(np.float32)
        return self._entry(name).arithmetic(planes)

    def references(self, name: str) -> dict[str, dict[str, Float]]:
        """Image name -> output name -> reference output."""
        self._entry(name)
        result: dict[str, dict[str, Float]] = {}
        with np.load(self._existing(f"refs/{name}.npz"), allow_pickle=False) as arrays:
            for key in arrays.files:
                image, output = key.split("|", 1)
                result.setdefault(image, {})[output] = arrays[key]
        return result

    def labels(self, name: str) -> dict[str, int]:
        """Image name -> class index of the model (ultraface: number of faces)."""
        entry = self._entry(name)
        folder = f"images/{entry.images}/"
        with self._existing("labels.csv").open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["file"].startswith(folder)]
        return {
            Path(row["file"]).stem: int(row["label"]) + entry.label_offset
            for row in rows
            if row["label"]
        }

    def super_resolution_truth(self) -> Float:
        """The image [1, 1, 672, 672] in 0..1 that super_resolution_x3 should come near."""
        path = self._existing(f"images/superres/cat_y_672{_TRUTH_SUFFIX}.png")
        return self.preprocess("super_resolution_x3", _read_png(path)[None])

    def mnist_test(self) -> tuple[Float, Labels]:
        """The MNIST test set: images [10000, 1, 28, 28] float32 0..255, labels [10000]."""
        images = self._idx("bulk/t10k-images-idx3-ubyte.gz", dimensions=3)
        labels = self._idx("bulk/t10k-labels-idx1-ubyte.gz", dimensions=1)
        return images[:, None].astype(np.float32), labels.astype(np.int64)

    def cifar_test(self) -> tuple[Pixels, Labels]:
        """500 CIFAR-10 test images [500, 32, 32, 3] uint8 RGB, labels [500]."""
        with np.load(self._existing("bulk/cifar10_jpeg_500.npz"), allow_pickle=False) as arrays:
            return arrays["images"], arrays["labels"].astype(np.int64)

    def photographs(self) -> tuple[Pixels, Labels]:
        """200 photographs [200, 224, 224, 3] uint8 RGB, their ImageNet classes [200]."""
        from PIL import Image

        with np.load(self._existing("bulk/imagenet_200_jpeg.npz"), allow_pickle=False) as arrays:
            content, offsets = arrays["jpeg"].tobytes(), arrays["offsets"]
            labels = arrays["labels"].astype(np.int64)

        def image(begin: int, end: int) -> Pixels:
            with Image.open(io.BytesIO(content[begin:end])) as found:
                return np.asarray(found.convert("RGB"), np.uint8)

        ends = [int(one) for one in offsets]
        return np.stack([image(a, b) for a, b in zip(ends, ends[1:], strict=False)]), labels

    def _entry(self, name: str) -> ModelEntry:
        if name not in MODELS:
            raise UnknownModelError(name, MODELS)
        return MODELS[name]

    def _existing(self, part: str) -> Path:
        path = self.root / part
        if not path.is_file():
            raise ModelDataError(f"{self.root} has no file {part}")
        return path

    def _image_paths(self, name: str) -> list[Path]:
        folder = self.root / "images" / self._entry(name).images
        paths = sorted(folder.glob("*.png"))
        return [path for path in paths if not path.stem.endswith(_TRUTH_SUFFIX)]

    def _idx(self, part: str, *, dimensions: int) -> Pixels:
        """A gzipped IDX file of unsigned bytes: 0, 0, 8, rank, sizes (big endian), values."""
        content = gzip.decompress(self._existing(part).read_bytes())
        if content[:4] != bytes([0, 0, 8, dimensions]):
            raise ModelDataError(f"{part} is no IDX file of bytes with {dimensions} dimensions")
        start = 4 + 4 * dimensions
        sizes = [int(size) for size in np.frombuffer(content[4:start], dtype=">u4")]
        return np.frombuffer(content[start:], dtype=np.uint8).reshape(sizes)


def _read_png(path: Path) -> Pixels:
    """[H, W, C] uint8, C = 1 or 3."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ModelDataError(f"reading {path.name} needs Pillow: pip install pillow") from error
    with Image.open(path) as image:
        pixels = np.asarray(image, dtype=np.uint8)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
