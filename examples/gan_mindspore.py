"""A GAN draws points on a circle: two networks, two optimizers, a loop written by hand.

``--fault frozen-layer`` keeps the gradients away from the generator's first layer, so that it never learns.
"""

import argparse

import mindspore as ms
import numpy as np
from mindspore import nn, ops

BATCH = 64
NOISE = 8


class Generator(nn.Cell):
    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen
        self.hidden1 = nn.Dense(NOISE, 32)
        self.hidden2 = nn.Dense(32, 32)
        self.output = nn.Dense(32, 2)
        self.relu = nn.ReLU()

    def first(self, noise):
        if self.frozen:
            return ops.stop_gradient(self.relu(self.hidden1(noise)))  # FAULT: no gradient comes back to hidden1
        return self.relu(self.hidden1(noise))

    def construct(self, noise):
        return self.output(self.relu(self.hidden2(self.first(noise))))


class Discriminator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.hidden1 = nn.Dense(2, 32)
        self.hidden2 = nn.Dense(32, 32)
        self.output = nn.Dense(32, 1)
        self.relu = nn.LeakyReLU(0.2)

    def construct(self, points):
        return self.output(self.relu(self.hidden2(self.relu(self.hidden1(points)))))


def real_points(random):
    angles = random.uniform(0, 2 * np.pi, BATCH)
    return ms.Tensor(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))


def noise(random):
    return ms.Tensor(random.standard_normal((BATCH, NOISE), np.float32))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fault", choices=["none", "frozen-layer"], default="none")
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--save", metavar="FILE", help="write the weights of the generator there at the end")
    arguments = parser.parse_args()

    ms.set_context(mode=ms.GRAPH_MODE if arguments.mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device(arguments.device)
    ms.set_seed(0)

    generator, discriminator = Generator(frozen=arguments.fault == "frozen-layer"), Discriminator()
    generator.update_parameters_name("generator.")
    discriminator.update_parameters_name("discriminator.")

    def discriminator_loss(real, fake):
        scores = ops.concat((discriminator(real), discriminator(fake)))
        truth = ops.concat((ops.ones((BATCH, 1)), ops.zeros((BATCH, 1))))
        return ops.binary_cross_entropy_with_logits(scores, truth, ops.ones_like(truth), ops.ones_like(truth))

    def generator_loss(seeds):
        scores = discriminator(generator(seeds))
        truth = ops.ones_like(scores)
        return ops.binary_cross_entropy_with_logits(scores, truth, ops.ones_like(truth), ops.ones_like(truth))

    generator_optimizer = nn.Adam(generator.trainable_params(), learning_rate=0.002, beta1=0.5)
    discriminator_optimizer = nn.Adam(discriminator.trainable_params(), learning_rate=0.002, beta1=0.5)
    discriminator_gradients = ms.value_and_grad(discriminator_loss, None, discriminator_optimizer.parameters)
    generator_gradients = ms.value_and_grad(generator_loss, None, generator_optimizer.parameters)

    generator.set_train()
    discriminator.set_train()
    random = np.random.default_rng(0)
    # To debug only this loop, instead of the whole script with `tensight run`, put it below
    #     with tensight.mindspore.debug(generator, discriminator, recommended=True) as dbg:
    # and end each turn of it with `dbg.step()`.
    for step in range(1, arguments.steps + 1):
        fake = generator(noise(random))
        loss_of_discriminator, gradients = discriminator_gradients(real_points(random), fake)
        discriminator_optimizer(gradients)
        loss_of_generator, gradients = generator_gradients(noise(random))
        generator_optimizer(gradients)
        print(
            f"step {step}  loss {float(loss_of_discriminator.asnumpy()):.9g}"
            f"  generator {float(loss_of_generator.asnumpy()):.9g}",
            flush=True,
        )
    if arguments.save:
        ms.save_checkpoint(generator, arguments.save)


if __name__ == "__main__":
    main()
