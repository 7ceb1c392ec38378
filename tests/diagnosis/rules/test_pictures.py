"""Trainings on photographs that were prepared wrongly, and on others that resemble them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, Diagnosed, Faulty, Healthy, network, table_tests

SIDE = 24
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
MNIST = (0.1307,), (0.3081,)
HALF = (0.5,), (0.5,)


def give_photographs(training: Diagnosed, *, channels: int = 3, side: int = SIDE) -> torch.Tensor:
    """Return pictures of 8 bits: shape (256, channels, side, side); their brightest quarter is the label."""
    training.labels = torch.arange(256) % CLASSES
    coarse = 130 + 60 * torch.randn(256, channels, 4, 4)
    pictures = F.interpolate(coarse, (side, side), mode="bilinear") + 6 * torch.randn(256, channels, side, side)
    half = side // 2
    for number in range(CLASSES):
        row, column = half * (number // 2), half * (number % 2)
        pictures[training.labels == number, :, row : row + half, column : column + half] += 80
    return pictures.clamp(0, 255).round()


def normalise(pictures: torch.Tensor, by: Normalisation) -> torch.Tensor:
    mean, deviation = (torch.tensor(each)[:, None, None] for each in by)
    return (pictures - mean) / deviation


class Classifier(nn.Module):
    """A small network for pictures.

    Parameters
    ----------
    channels : int
    normalises_by : Normalisation
        By which it normalises pictures itself; empty by default.
    """

    def __init__(self, channels: int = 3, normalises_by: Normalisation = ((), ())) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(channels, 8, 3, 2), nn.BatchNorm2d(8)
        self.head, self.by = nn.Linear(8 * 16, CLASSES), normalises_by

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = normalise(given, self.by) if self.by[0] else given
        hidden = self.norm(self.stem(hidden)).relu()
        result: torch.Tensor = self.head(F.adaptive_avg_pool2d(hidden, 4).flatten(1))
        return result


# --- input-scale ---


def transform_that_is_in_both_places(training: Diagnosed) -> None:
    """In the transform of the data set, and again in the loop."""
    training.inputs = normalise(normalise(give_photographs(training) / 255, IMAGENET), IMAGENET)
    training.train(Classifier())


def model_that_normalises_too(training: Diagnosed) -> None:
    training.inputs = normalise(give_photographs(training) / 255, HALF)
    training.train(Classifier(normalises_by=CLIP))


def digits_in_a_perceptron(training: Diagnosed) -> None:
    pictures = normalise(normalise(give_photographs(training, channels=1, side=16) / 255, MNIST), MNIST)
    training.inputs = pictures.flatten(1)
    training.train(nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, CLASSES)))


def pictures_that_are_resized_after_all(training: Diagnosed) -> None:
    """No levels are left, but black and white."""
    resized = F.interpolate(give_photographs(training) / 255, (36, 36), mode="bilinear")
    resized[:, :, 0, :2] = torch.tensor([0.0, 1.0])
    training.inputs = normalise(normalise(resized, IMAGENET), IMAGENET)
    training.train(Classifier())


def pictures_that_were_not_divided(training: Diagnosed) -> None:
    training.inputs = normalise(give_photographs(training), IMAGENET)
    training.train(Classifier())


def digits_divided_twice(training: Diagnosed) -> None:
    """By ToTensor(), and in the loop; the levels of a perceptron's inputs show it."""
    training.inputs = give_photographs(training, channels=1, side=16).flatten(1) / 255 / 255
    training.train(nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, CLASSES)))


def pictures_divided_twice_and_normalised(training: Diagnosed) -> None:
    training.inputs = normalise(give_photographs(training) / 255 / 255, IMAGENET)
    training.train(Classifier())


def pictures_that_are_dark(training: Diagnosed) -> None:
    """Of 16 bits, by a camera with a short exposure."""
    training.inputs = give_photographs(training) / 65535
    training.train(Classifier())


def pictures_normalised_once(training: Diagnosed) -> None:
    training.inputs = normalise(give_photographs(training) / 255, IMAGENET)
    training.train(Classifier())


def pictures_normalised_within(training: Diagnosed) -> None:
    training.inputs = give_photographs(training) / 255
    training.train(Classifier(normalises_by=HALF))


def pictures_normalised_by_their_own_means(training: Diagnosed) -> None:
    pictures = give_photographs(training)
    training.inputs = (pictures - pictures.mean((0, 2, 3), keepdim=True)) / pictures.std((0, 2, 3), keepdim=True)
    training.train(Classifier())


def pictures_from_minus_1_to_1(training: Diagnosed) -> None:
    training.inputs = give_photographs(training) / 127.5 - 1
    training.train(Classifier())


def logarithms_that_are_clamped(training: Diagnosed) -> None:
    """From a thousandth to ten, which are -3 and 1."""
    spectra = torch.randn(256, 1, SIDE, SIDE).mul(4).exp()
    training.labels = torch.arange(256) % CLASSES
    for number in range(CLASSES):
        spectra[training.labels == number, :, 6 * number : 6 * number + 6] *= 100
    training.inputs = spectra.clamp(1e-3, 10).log10()
    training.train(Classifier(channels=1))


def depths_in_metres(training: Diagnosed) -> None:
    """Measured in steps of a few millimetres, from -2 m on."""
    training.inputs = give_photographs(training, channels=1) / 64 - 2
    training.train(Classifier(channels=1))


def noise_of_many_features(training: Diagnosed) -> None:
    training.inputs = torch.randn(256, 96)
    training.labels = (training.inputs[:, 0] > 0).long() + 2 * (training.inputs[:, 1] > 0).long()
    training.train(nn.Sequential(nn.Linear(96, 8), network()))


# --- pictures-reshaped ---


def colours(pictures: torch.Tensor) -> torch.Tensor:
    """Return pictures as they are in files: rows, columns, channels."""
    return pictures.permute(0, 2, 3, 1).contiguous()


def pictures_that_are_reshaped(training: Diagnosed) -> None:
    pictures = colours(give_photographs(training) / 255)
    training.inputs = pictures.reshape(256, 3, SIDE, SIDE)
    training.train(Classifier())


def wide_pictures_that_are_reshaped(training: Diagnosed) -> None:
    pictures = colours(normalise(give_photographs(training) / 255, IMAGENET))[:, :, :18]
    training.inputs = pictures.reshape(256, 3, SIDE, 18)
    training.train(Classifier())


def pictures_that_a_model_reshapes(training: Diagnosed) -> None:
    """A view in each of its calls, of pictures that are square."""

    class Reshaping(Classifier):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.from_numpy(given.numpy().reshape(-1, 3, SIDE, SIDE)))

    training.inputs = colours(normalise(give_photographs(training) / 255, HALF))
    training.train(Reshaping())


def pictures_that_are_permuted(training: Diagnosed) -> None:
    training.inputs = colours(give_photographs(training) / 255).permute(0, 3, 1, 2)
    training.train(Classifier())


def noise_of_three_channels(training: Diagnosed) -> None:
    give_photographs(training)
    training.inputs = torch.rand(256, 3, SIDE, SIDE) + (training.labels[:, None, None, None] / 4)
    training.train(Classifier())


def grey_pictures(training: Diagnosed) -> None:
    training.inputs = give_photographs(training, channels=1).repeat(1, 3, 1, 1) / 255
    training.train(Classifier())


def stripes_three_pixels_apart(training: Diagnosed) -> None:
    """As of a screen that is photographed, with edges across."""
    training.inputs = give_photographs(training) / 255
    training.inputs = training.inputs + 0.1 * (torch.arange(SIDE) % 3 == 0)
    training.train(Classifier())


def stripes_with_noise(training: Diagnosed) -> None:
    """Nothing but stripes that are brighter in a quarter, and noise."""
    pictures = give_photographs(training)
    is_bright = (pictures.mean(1, keepdim=True) > 170).float()
    stripes = (1 + is_bright) * (torch.arange(SIDE) % 3 == 0)
    training.inputs = stripes + 0.3 * torch.randn(256, 3, SIDE, SIDE)
    training.train(Classifier())


def rows_of_equal_pixels(training: Diagnosed) -> None:
    training.inputs = (give_photographs(training) / 255).mean(3, keepdim=True).repeat(1, 1, 1, SIDE)
    training.inputs += 0.01 * torch.randn(256, 3, SIDE, SIDE)
    training.labels = training.labels // 2
    training.train(Classifier())


# --- samples-empty ---


def files_that_cannot_be_read(training: Diagnosed) -> None:
    """In their place the loader puts black pictures."""
    training.inputs = give_photographs(training) / 255
    training.inputs[torch.rand(256) < 0.45] = 0
    training.train(Classifier())


def squares_that_are_as_large_as_pictures(training: Diagnosed) -> None:
    """Half of the pictures are erased whole, by the mean, in each epoch others."""
    training.inputs = normalise(give_photographs(training) / 255, HALF)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, labels = training.batch()
        erased = inputs.masked_fill(torch.rand(len(inputs), 1, 1, 1) < 0.5, 0.25)
        optimizer.zero_grad()
        F.cross_entropy(model(erased), labels).backward()
        optimizer.step()


def give_signals(training: Diagnosed) -> None:
    """Give signals of two channels: float32, shape (256, 2, 96); labels are whether their frequency is high."""
    training.labels = torch.arange(256) % 2
    times = torch.arange(96) * (0.2 + 0.3 * training.labels[:, None])
    training.inputs = torch.stack((times.sin(), times.cos()), 1) + 0.1 * torch.randn(256, 2, 96)


def listener() -> nn.Module:
    layers = nn.Conv1d(2, 8, 9, 2), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 1)
    return nn.Sequential(*layers, nn.Flatten(0))


def is_high(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(out, labels.float())


def crops_beside_the_recordings(training: Diagnosed) -> None:
    """Beyond the end of a recording there are zeros."""
    give_signals(training)
    training.inputs *= (torch.rand(256, 1, 1) < 0.6).float()
    training.train(listener(), is_high)


def silence_that_is_a_class(training: Diagnosed) -> None:
    give_signals(training)
    training.inputs *= training.labels[:, None, None]
    training.train(listener(), is_high)


def pictures_that_are_dropped_at_times(training: Diagnosed) -> None:
    training.inputs = give_photographs(training) / 255
    training.inputs[torch.rand(256) < 0.1] = 0
    training.train(Classifier())


def frames_that_fill_up_videos(training: Diagnosed) -> None:
    """Their labels are ignored."""
    training.inputs = give_photographs(training) / 255
    is_filled = torch.rand(256) < 0.4
    training.inputs[is_filled] = 0
    training.labels[is_filled] = -100
    training.train(Classifier())


def tiles_without_anything_to_mark(training: Diagnosed) -> None:
    """Each pixel has a target."""
    training.inputs = give_photographs(training, channels=1) / 255
    training.inputs[torch.rand(256) < 0.5] = 0
    training.labels = (training.inputs[:, 0] > 0.6).long()
    training.train(nn.Sequential(nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 2, 1)))


def pictures_beside_features(training: Diagnosed) -> None:
    """Half of the samples have no picture, and all have features."""

    class Both(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.more = nn.Linear(CLASSES, CLASSES)

        def forward(self, given: torch.Tensor, features: torch.Tensor | None = None) -> torch.Tensor:
            assert features is not None
            return super().forward(given) + self.more(features)

    training.inputs = give_photographs(training) / 255
    training.inputs[torch.rand(256) < 0.5] = 0
    model = Both()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, labels = training.batch()
        features = F.one_hot(labels, CLASSES) + 0.3 * torch.randn(len(labels), CLASSES)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs, features), labels).backward()
        optimizer.step()


FAULTY: tuple[Faulty, ...] = (
    (transform_that_is_in_both_places, "input-scale", "by ImageNet, and then by ImageNet"),
    (model_that_normalises_too, "input-scale", "by 0.5 / 0.5, and then by CLIP"),
    (digits_in_a_perceptron, "input-scale", "by MNIST, and then by MNIST"),
    (pictures_that_are_resized_after_all, "input-scale", "by ImageNet, and then by ImageNet"),
    (digits_divided_twice, "input-scale", "divided by 255 twice"),
    (pictures_divided_twice_and_normalised, "input-scale", "stem"),
    (pictures_that_were_not_divided, "input-scale", "255"),
    (files_that_cannot_be_read, "samples-empty", "no content"),
    (squares_that_are_as_large_as_pictures, "samples-empty", "no content"),
    (crops_beside_the_recordings, "samples-empty", "no content"),
    (pictures_that_are_reshaped, "pictures-reshaped", "stem"),
    (wide_pictures_that_are_reshaped, "pictures-reshaped", "stem"),
    (pictures_that_a_model_reshapes, "pictures-reshaped", "stem"),
)

HEALTHY: tuple[Healthy, ...] = (
    (pictures_that_are_dark, "input-scale"),
    (pictures_normalised_once, "input-scale"),
    (pictures_normalised_within, "input-scale"),
    (pictures_normalised_by_their_own_means, "input-scale"),
    (pictures_from_minus_1_to_1, "input-scale"),
    (logarithms_that_are_clamped, "input-scale"),
    (depths_in_metres, "input-scale"),
    (noise_of_many_features, "input-scale"),
    (silence_that_is_a_class, "samples-empty"),
    (pictures_that_are_dropped_at_times, "samples-empty"),
    (frames_that_fill_up_videos, "samples-empty"),
    (tiles_without_anything_to_mark, "samples-empty"),
    (pictures_beside_features, "samples-empty"),
    (pictures_that_are_permuted, "pictures-reshaped"),
    (noise_of_three_channels, "pictures-reshaped"),
    (grey_pictures, "pictures-reshaped"),
    (stripes_three_pixels_apart, "pictures-reshaped"),
    (stripes_with_noise, "pictures-reshaped"),
    (rows_of_equal_pixels, "pictures-reshaped"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
